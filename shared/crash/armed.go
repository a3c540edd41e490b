//go:build crashpoints

package crash

import (
	"os"
	"os/signal"
	"syscall"
)

// FromEnvironment is the points armed by [Variable]; nil where it is not set.
func FromEnvironment() (Points, error) {
	folder := os.Getenv(Variable)
	if folder == "" {
		return nil, nil
	}
	return func(point string) { pass(folder, point) }, nil
}

// most bounds how many passes can be counted.
const most = 64

// pass takes one of the point's files away; whoever takes the last acts. Only
// one process can take a file away.
func pass(folder, point string) {
	for n := most - 1; n >= 0; n-- {
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

// end kills the process, or stops it and returns once it goes on. The signal may
// reach another thread first: this one must not run on in the meantime.
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
