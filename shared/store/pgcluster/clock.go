package pgcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// clockLibraries is where Debian, Ubuntu and Fedora install libfaketime.
var clockLibraries = []string{
	"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib64/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1",
}

// errFixedClock reports a cluster that was started without a clock library.
var errFixedClock = errors.New("the cluster was started without Options.ClockLibrary")

// FindClockLibrary returns the path of libfaketime, or "" where it is not installed
// (Debian, Ubuntu: apt-get install libfaketime).
func FindClockLibrary() string {
	for _, pattern := range clockLibraries {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// clockEnvironment returns the environment for the server's clock. The server reads the offset again
// once a second. Time-outs inside the server use the real clock.
func clockEnvironment(library string) []string {
	if library == "" {
		return nil
	}
	return []string{"CLOCK_LIBRARY=" + library, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_RESET=1"}
}

// SetClock sets the server's clock ahead of the machine's by offset, or behind it if offset is
// negative. The server follows within about a second. The cluster must have been started with
// [Options.ClockLibrary].
func (c *Cluster) SetClock(offset time.Duration) error {
	if c.opts.ClockLibrary == "" {
		return errFixedClock
	}
	text := fmt.Sprintf("%+.3f\n", offset.Seconds())
	// The server's account owns the file, so it is written in place.
	return results.Wrap(os.WriteFile(filepath.Join(c.keeper.dir, "clock"), []byte(text), 0o600), "set the clock")
}
