package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variables of a program that was built with the overlay of [WrongClock].
const (
	// ShiftVariable is the error of the program's wall clock, as a duration.
	ShiftVariable = "TIME_SHIFT"
	// SpreadVariable spreads the clocks of several processes. Of each three process ids one clock is
	// behind by this duration, one is right, and one is ahead.
	SpreadVariable = "TIME_SPREAD"
)

// wrongClock is added to the standard library's package time.
const wrongClock = `
var shift = func() int64 {
	text, _ := syscall.Getenv("` + ShiftVariable + `")
	d, _ := ParseDuration(text)
	text, _ = syscall.Getenv("` + SpreadVariable + `")
	spread, _ := ParseDuration(text)
	return int64((d + spread*Duration(syscall.Getpid()%3-1)) / Second)
}()
`

// WrongClock writes an overlay for go build into folder and returns its path. A program built with -overlay
// and this path has a wrong wall clock (see [ShiftVariable]) and a right monotonic clock. (Go reads the
// clock without a system call that could be intercepted.)
func WrongClock(ctx context.Context, folder string) (overlay string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	const reading = "sec, nsec, mono := runtimeNow()\n"
	if n := strings.Count(string(source), reading); n != 1 {
		return "", fmt.Errorf("%s reads the clock at %d places like %q, want 1", original, n, reading)
	}
	text := strings.Replace(string(source), reading, reading+"\tsec += shift\n", 1)
	text = strings.Replace(text, "import (\n", "import (\n\t\"syscall\"\n", 1) + wrongClock
	replacement, overlay := filepath.Join(folder, "time.go"), filepath.Join(folder, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{replacement: []byte(text), overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", err
		}
	}
	return overlay, nil
}
