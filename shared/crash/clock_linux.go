//go:build crashpoints && (amd64 || arm64)

package crash

import (
	"os"
	"time"
)

// shift is added to the seconds of the wall clock.
var shift = func() int64 {
	d, _ := time.ParseDuration(os.Getenv(ShiftVariable))
	spread, _ := time.ParseDuration(os.Getenv(SpreadVariable))
	return int64((d + spread*time.Duration(os.Getpid()%3-1)) / time.Second)
}()

func init() {
	if shift != 0 {
		replaceClock()
	}
}

// replaceClock makes the Go runtime read all clocks by readClock.
func replaceClock()

// readClock is clock_gettime(2) in the calling convention of C, with shift added to CLOCK_REALTIME.
func readClock()
