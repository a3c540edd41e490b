//go:build crashpoints

package crash

import (
	"os"
	"os/signal"
	"syscall"
)

// FromEnvironment returns the points armed by [Variable]; nil if it is not set.
func FromEnvironment() (Points, error) {
	folder := os.Getenv(Variable)
	if folder == "" {
		return nil, nil
	}
	return func(point string) { reached(folder, point) }, nil
}

// maxHits bounds how many passes can be counted.
const maxHits = 64

// reached removes one of the point's files; removing the last one triggers the action. Only one process
// can remove a file.
func reached(folder, point string) {
	for n := maxHits - 1; n >= 0; n-- {
		name := file(folder, point, n)
		action, err := os.ReadFile(name)
		if err != nil || os.Remove(name) != nil {
			continue
		}
		if n > 0 {
			return
		}
		end(string(action))
		return
	}
}

// end kills the process, or stops it and returns once it continues. Another thread may get the signal
// first, and this one must not run on meanwhile.
func end(action string) {
	if action != Stop {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-goesOn
}
