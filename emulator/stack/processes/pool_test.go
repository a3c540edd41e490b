package processes_test

import (
	"testing"

	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/check"
)

type event struct {
	what       string
	p          *processes.Process
	unexpected bool
}

func TestAPoolReplacesWhatEndsUnexpectedly(t *testing.T) {
	t.Parallel()
	events := make(chan event, 100)
	pool := check.Value(processes.StartPool(within(t), processes.PoolOptions{
		Spec: spec("child", nil), Size: 3,
		Started: func(p *processes.Process) { events <- event{"started", p, false} },
		Ended:   func(p *processes.Process, _ error, unexpected bool) { events <- event{"ended", p, unexpected} },
	}))(t)
	for range 3 {
		<-events
	}
	victim := pool.Processes()[1]
	check.OK(t)(victim.Kill())
	if got, want := next(t, events, "event"), (event{"ended", victim, true}); got != want {
		t.Errorf("got event %+v, want %+v", got, want)
	}
	heir := next(t, events, "event")
	if heir.what != "started" || heir.p == victim {
		t.Errorf("got event %+v, want another child started", heir)
	}
	if got := pool.Processes(); len(got) != 3 || got[2] != heir.p {
		t.Errorf("got children %v, want three with the new one last", got)
	}
	children := pool.Processes()
	check.OK(t)(pool.Stop(within(t)))
	for range children {
		if got := next(t, events, "event"); got.what != "ended" || got.unexpected {
			t.Errorf("got event %+v, want the end of a child that was stopped", got)
		}
	}
	for _, p := range children {
		next(t, p.Done(), "end of a child of a stopped pool")
	}
	if got := pool.Processes(); len(got) != 0 {
		t.Errorf("got children %v of a stopped pool, want none", got)
	}
}

func TestAPoolThatCannotStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pool, err := processes.StartPool(within(t), processes.PoolOptions{Spec: spec("broken", nil), Size: 2})
	if err == nil {
		t.Errorf("got %v, want an error", pool)
	}
}
