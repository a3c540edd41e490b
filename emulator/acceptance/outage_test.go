package acceptance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// deafness is a proxy for a service. It accepts connections and answers nothing until it ends.
type deafness struct {
	listener net.Listener
	address  string        // of the service
	before   chan struct{} // closed once the address is known
	over     chan struct{} // closed once it answers again
	stop     chan struct{}
	group    sync.WaitGroup
}

func newDeafness(t *testing.T) *deafness {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	d := &deafness{listener: l, before: make(chan struct{}), over: make(chan struct{}), stop: make(chan struct{})}
	d.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.group.Go(func() { d.serve(c) })
		}
	})
	t.Cleanup(func() {
		close(d.stop)
		_ = l.Close()
		d.group.Wait()
	})
	return d
}

func (d *deafness) standBefore(address string) {
	d.address = address
	close(d.before)
}

func (d *deafness) serve(c net.Conn) {
	defer c.Close()
	select {
	case <-d.stop:
		return
	case <-d.before:
	}
	far, err := net.Dial("tcp", d.address)
	if err != nil {
		return
	}
	defer far.Close()
	ended := make(chan struct{}, 2)
	d.group.Go(func() {
		_, _ = io.Copy(c, far)
		ended <- struct{}{}
	})
	d.group.Go(func() {
		select {
		case <-d.over:
			_, _ = io.Copy(far, c)
		case <-d.stop:
		}
		ended <- struct{}{}
	})
	select {
	case <-ended:
	case <-d.stop:
	}
}

// If Cloud Tasks does not answer at all, a batch of many submitters is still answered soon, and a
// sweep ends in its time. Once Cloud Tasks answers, all intents end.
func TestCloudTasksSaysNothing(t *testing.T) {
	t.Parallel()
	deaf := newDeafness(t)
	b := setup(t, stack.Options{Submitters: 40, Settings: map[string]string{
		"FENCEPOST_TASKS_ENDPOINT": deaf.listener.Addr().String(), "FENCEPOST_TASKS_DISPATCH_DEADLINE": "15s", "FENCEPOST_SWEEP_GRACE": "2s",
	}})
	deaf.standBefore(b.Tasks.Addr())
	var intents []map[string]any
	want := make(map[txmanager.Submitter]int)
	for _, s := range b.Submitters() {
		intents, want[s] = append(intents, transfer(s, "r")), 1
	}
	took := func(what string, most time.Duration, act func()) {
		began := time.Now()
		if act(); time.Since(began) > most {
			t.Errorf("%s: took %v, want less than %v", what, time.Since(began), most)
		}
	}
	// One after another the tasks would take 40 times 5 s, and the sweep as long.
	took("the batch", time.Minute, func() {
		results, _ := b.postBatch(t, intents...)
		for _, r := range results {
			if r.Status != http.StatusAccepted {
				t.Errorf("got %s, want 202", r)
			}
		}
		equal(t, "results", len(results), len(intents))
	})
	b.overdue(t, len(intents))
	took("the sweep", time.Minute, func() {
		if err := b.RunSweep(b.ctx); err == nil {
			t.Error("a sweep without Cloud Tasks: got no error")
		}
	})
	b.logged(t, "no advance tasks: the sweep will find the intents")
	b.logged(t, "no advance task for 40 of 40 submitters")
	close(deaf.over)
	b.ends(t, want)
}

// A sweep in which every CreateTask call seems to fail still handles all overdue submitters, batch
// after batch.
func TestSweepGoesOnWhereTasksFail(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Submitters: 12, Settings: map[string]string{"FENCEPOST_SWEEP_BATCH": "5", "FENCEPOST_SWEEP_GRACE": "2s"}})
	want := make(map[txmanager.Submitter]int)
	b.Tasks.SetFaults(dropEverything)
	for i, s := range b.Submitters() {
		b.postUntilAnswered(t, transfer(s, fmt.Sprint("r-", i)))
		want[s] = 1
	}
	b.overdue(t, len(want))
	b.Tasks.SetFaults(cloudtasks.Faults{DropResponse: 1}) // made, and answered UNAVAILABLE
	if err := b.RunSweep(b.ctx); err == nil {
		t.Error("a sweep whose tasks fail: got no error")
	}
	b.Tasks.SetFaults(noFaults)
	b.wantCount(t, "taken up by one sweep", len(want), `select count(*) from submitter where swept_at > '-infinity'`)
	b.ends(t, want)
}
