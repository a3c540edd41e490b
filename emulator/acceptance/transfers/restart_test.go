package transfers

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A process that is stopped while the trading core does not answer still answers its caller, and exits
// within Cloud Run's time. The transfer has a planned attempt and a task, and continues without a
// sweep.
func TestAStoppedProcessLeavesItsTransferToOthers(t *testing.T) {
	t.Parallel()
	h := own(t, stack.Options{Settings: map[string]string{"FENCEPOST_TRANSFER_CALL_TIMEOUT": "50s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "5m"}})
	u := h.newUser(t, 100, 100)
	p := u.Aside(t, nil)
	check(t, h.Core.Pause())
	answered := make(chan answer, 1)
	go func() {
		a, err := u.tryAt(p.Addr(), body(transfer.Funding, transfer.Spot, "0.00004"))
		if err != nil {
			t.Errorf("the request in flight at SIGTERM: got %v, want an answer", err)
		}
		answered <- a
	}()
	poll(t, "the core is asked", func() bool {
		asked := h.Core.Proxy.Calls(func(c ubsproxy.Call) bool { return c.Operation.Op == transfer.Deposit && *c.Operation.UserID == u.ID })
		return len(asked) > 0
	})
	stop, cancel := context.WithTimeout(u.Ctx, 10*time.Second)
	defer cancel()
	check(t, p.Stop(stop), "after SIGTERM: ")
	if a := <-answered; a.Status != 202 || a.State != "PENDING" {
		t.Errorf("answered: got %+v, want 202 PENDING", a)
	}
	if x := u.Load(u.Only()); x.NextAttemptAt == nil || x.Failures != 1 {
		t.Errorf("left: got %+v, want a plan after one unknown answer", x)
	}
	check(t, h.Core.Continue())
	u.AwaitState(u.Only(), transfer.Committed)
	u.end()
}
