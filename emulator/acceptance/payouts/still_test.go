package payouts

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// still returns a deployment for t in which only the test steps payouts: it has no sweep, and the
// queue of steps is paused. The transaction manager works.
func still(t *testing.T) *deployment {
	t.Helper()
	h := own(t, true, stack.Options{})
	h.pauseSteps(t)
	return h
}

// pauseSteps pauses the queue of steps, and goOn resumes it.
func (h *deployment) pauseSteps(t *testing.T) { h.queues(t, false, "transfer") }
func (h *deployment) goOn(t *testing.T)       { h.queues(t, true, "transfer") }

// queues pauses or resumes the queues of functions.
func (h *deployment) queues(t *testing.T, run bool, kinds ...txmanager.Kind) {
	t.Helper()
	c := must(h.Tasks.Client(t.Context()))(t)
	defer c.Close()
	for _, kind := range kinds {
		var err error
		if run {
			_, err = c.ResumeQueue(t.Context(), &cloudtaskspb.ResumeQueueRequest{Name: stack.QueueName(kind)})
		} else {
			_, err = c.PauseQueue(t.Context(), &cloudtaskspb.PauseQueueRequest{Name: stack.QueueName(kind)})
		}
		check(t, err)
	}
}

// stepTo delivers step tasks until the payout has this history.
func (u *user) stepTo(reqID string, want []transfer.State) transfer.Transfer {
	u.T.Helper()
	poll(u.T, "payout "+reqID+" has ended", func() bool {
		u.Task(reqID)
		x, err := u.Transfers.Load(u.Ctx, reqID)
		return err == nil && x.State.Terminal()
	})
	return u.ends(reqID, want)
}

// armed starts a process that does the action at the point, with time for being stopped.
func (h *deployment) armed(t *testing.T, point, action string) (p *processes.Process, hit func() bool) {
	t.Helper()
	var settings map[string]string
	if action == crash.Stop {
		settings = map[string]string{"FENCEPOST_TRANSFER_CALL_TIMEOUT": "50s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "1m"}
	}
	return h.Armed(t, point, action, settings)
}

// slow is a payout whose process stops at a point until the test continues it.
type slow struct {
	*user
	p        *processes.Process
	began    time.Time
	answered chan answer
}

// stopped makes a process post a payout and stop at the point.
func (u *user) stopped(point string, units uint64) (s slow, reqID string) {
	u.T.Helper()
	p, hit := u.armed(u.T, point, crash.Stop)
	s = slow{u, p, time.Now(), make(chan answer, 1)}
	go func() {
		a, err := u.payAt(p.Addr(), units)
		if err != nil {
			a.Message = err.Error()
		}
		s.answered <- a
	}()
	poll(u.T, "a process is stopped at "+point, hit)
	return s, u.only().ReqID
}

// wakes continues the process and returns its final answer.
func (s slow) wakes() answer {
	s.T.Helper()
	check(s.T, s.p.Signal(syscall.SIGCONT))
	select {
	case a := <-s.answered:
		return a
	case <-time.After(acceptancetest.Within):
		s.T.Fatal("the process that was stopped never answered")
		return answer{}
	}
}

// drivesFor is how long a request drives its transfer (see package functions). After that it answers
// PENDING.
const drivesFor = 20 * time.Second

// wakesTo continues the process and requires the answer. On a slow machine the request's time can be
// over: then it answers PENDING, whatever the payout's state.
func (s slow) wakesTo(what string, status int, state, code string) {
	s.T.Helper()
	a := s.wakes()
	if a.State == "PENDING" && time.Since(s.began) > drivesFor {
		status, state, code = http.StatusAccepted, "PENDING", ""
	}
	s.Want(what, a, status, state, code)
}
