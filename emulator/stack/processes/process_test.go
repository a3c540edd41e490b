package processes_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/check"
)

func TestAChildRunsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	var got sync.Map
	p := start(t, spec("child", func(line string) { got.Store(line, true) }))
	check.OK(t)(p.Err())
	check.OK(t)(p.Stop(within(t)))
	check.Err(t, "the end", processes.ErrExited)(p.Err())
	if answers(p.Addr(), time.Second) {
		t.Error("got an answer from a stopped child, want none")
	}
	for _, want := range []string{"to stdout", "to stderr, without an end"} {
		if _, ok := got.Load(want); !ok {
			t.Errorf("output: got no line %q", want)
		}
	}
}

func TestKillEndsAChildAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, spec("stubborn", nil))
	check.OK(t)(p.Kill())
	next(t, p.Done(), "end of a killed child")
	if got := p.Err(); got == nil || !strings.Contains(got.Error(), "killed") {
		t.Errorf("got %v, want the signal named", got)
	}
	check.OK(t)(p.Kill())
}

func TestStopKillsAChildThatWillNotEnd(t *testing.T) {
	t.Parallel()
	p := start(t, spec("stubborn", nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Err(t, "stop, when its context is done", context.Canceled)(p.Stop(ctx))
	next(t, p.Done(), "end of the child when Stop has returned")
}

func TestPausedChildAnswersOnlyAfterItResumes(t *testing.T) {
	t.Parallel()
	p := start(t, spec("child", nil))
	check.OK(t)(p.Signal(syscall.SIGSTOP))
	// Stopping is asynchronous: one more request can succeed.
	until(t, "a paused child does not answer", func() bool { return !answers(p.Addr(), 100*time.Millisecond) })
	check.OK(t)(p.Signal(syscall.SIGCONT))
	until(t, "a continued child answers", func() bool { return answers(p.Addr(), time.Second) })
	check.OK(t)(errors.Join(p.Signal(syscall.SIGSTOP), p.Stop(within(t))))
}

func TestChildThatEndsBeforeItIsHealthyIsAnErrorWithItsLastLine(t *testing.T) {
	t.Parallel()
	p, err := processes.Start(within(t), spec("broken", nil))
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no such setting") {
		t.Errorf("got %v, %v, want an error with status and last line", p, err)
	}
	missing := spec("child", nil)
	missing.Path = "/nowhere/at/all"
	if p, err := processes.Start(within(t), missing); err == nil {
		t.Errorf("got %v for a binary that does not exist, want an error", p)
	}
}

// A report of the race detector in a child reaches its parent, and the child has the parent's settings of the
// detector.
func TestRaceInAChildIsReported(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	s := spec("racing", nil)
	s.Env = slices.DeleteFunc(s.Env, func(v string) bool { return strings.HasPrefix(v, "GORACE=") })
	p := start(t, s)
	check.OK(t)(p.Stop(within(t)))
	err := processes.Races()
	if want := "racing: WARNING: DATA RACE\nWrite by atexit_sleep_ms=10"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestAChildDiesWithAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no parent-death signal but on Linux")
	}
	addr := killedParent(t)
	until(t, "the child of a killed parent is gone", func() bool { return !answers(addr, time.Second) })
}
