package payouts

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	cloudtasksapi "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// still returns a deployment for t in which only the test steps payouts: it has no sweep, and the
// queue of steps is paused. The transaction manager works.
func still(t *testing.T) *deployment {
	t.Helper()
	h := own(t, true, stack.Options{})
	h.pauseSteps(t)
	return h
}

// pauseSteps pauses the queue of steps.
func (h *deployment) pauseSteps(t *testing.T) {
	t.Helper()
	h.queue(t, func(c *cloudtasksapi.Client, name string) error {
		_, err := c.PauseQueue(t.Context(), &cloudtaskspb.PauseQueueRequest{Name: name})
		return err
	})
}

// goOn resumes the queue of steps.
func (h *deployment) goOn(t *testing.T) {
	t.Helper()
	h.queue(t, func(c *cloudtasksapi.Client, name string) error {
		_, err := c.ResumeQueue(t.Context(), &cloudtaskspb.ResumeQueueRequest{Name: name})
		return err
	})
}

func (h *deployment) queue(t *testing.T, do func(c *cloudtasksapi.Client, name string) error) {
	t.Helper()
	c, err := h.TasksClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := do(c, stack.QueueName("transfer")); err != nil {
		t.Fatal(err)
	}
}

// stepTo delivers step tasks until the payout has this history.
func (u *user) stepTo(reqID string, want []transfer.State) transfer.Transfer {
	u.t.Helper()
	poll(u.t, "payout "+reqID+" has ended", func() bool {
		u.task(reqID)
		x, err := u.Transfers.Load(u.ctx, reqID)
		return err == nil && x.State.Terminal()
	})
	return u.ends(reqID, want)
}

// aside starts a process that gets no routed requests.
func (h *deployment) aside(t *testing.T, settings map[string]string) *processes.Process {
	t.Helper()
	p, err := h.StartAside(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

// armed starts a process that does the action when it reaches the point. Its time-outs are long enough
// to be stopped.
func (h *deployment) armed(t *testing.T, point, action string) (p *processes.Process, hit func() bool) {
	t.Helper()
	folder := t.TempDir()
	if err := crash.Arm(folder, point, 1, action); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{crash.Variable: folder}
	if action == crash.Stop {
		settings["FENCEPOST_TRANSFER_CALL_TIMEOUT"], settings["FENCEPOST_TRANSFER_RESCUE_AFTER"] = "50s", "1m"
	}
	return h.aside(t, settings), func() bool { return crash.Hit(folder, point) }
}

// died waits until the process has exited at the point.
func died(t *testing.T, p *processes.Process, hit func() bool, point string) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(within):
		t.Fatalf("nobody passed %s", point)
	}
	if !hit() {
		t.Fatalf("the process ended by %v, want by passing %s", p.Err(), point)
	}
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
	u.t.Helper()
	p, hit := u.armed(u.t, point, crash.Stop)
	s = slow{u, p, time.Now(), make(chan answer, 1)}
	go func() {
		a, err := u.payAt(p.Addr(), units)
		if err != nil {
			a.Message = err.Error()
		}
		s.answered <- a
	}()
	poll(u.t, "a process is stopped at "+point, hit)
	return s, u.only().ReqID
}

// wakes continues the process and returns its final answer.
func (s slow) wakes() answer {
	s.t.Helper()
	if err := s.p.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	select {
	case a := <-s.answered:
		return a
	case <-time.After(within):
		s.t.Fatal("the process that was stopped never answered")
		return answer{}
	}
}

// drivesFor is how long a request drives its transfer (see package functions). After that it answers
// PENDING.
const drivesFor = 20 * time.Second

// wakesTo continues the process and requires the answer. On a slow machine the request's time can be
// over: then it answers PENDING, whatever the payout's state.
func (s slow) wakesTo(what string, status int, state, code string) {
	s.t.Helper()
	a := s.wakes()
	if a.State == "PENDING" && time.Since(s.began) > drivesFor {
		status, state, code = http.StatusAccepted, "PENDING", ""
	}
	s.want(what, a, status, state, code)
}
