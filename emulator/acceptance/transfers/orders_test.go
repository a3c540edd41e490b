package transfers

import (
	"net/http"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Operators cancel and resolve a transfer while tasks drive it. It has exactly one end, the money is
// where that end says, and both ledgers agree.
func TestCancelResolveAndTasksAtOnce(t *testing.T) {
	t.Parallel()
	h := setup(t)
	ends := map[transfer.State]int{}
	for i := range 40 {
		u, from := h.newUser(t, 100, 100), sides[i%2]
		reqID := u.accepted(from, 40)
		u.ordersAtOnce(reqID)
		poll(t, "it has ended", func() bool { u.Task(reqID); return u.Load(reqID).State.Terminal() })
		end := u.Load(reqID).State
		ends[end]++
		moved := int64(0)
		if end == transfer.Committed {
			moved = 40
		}
		if from == spot {
			moved = -moved
		}
		u.wantUnits(end.String(), 100-moved, 100+moved)
		terminal := 0
		for _, s := range u.States(reqID) {
			if s.Terminal() {
				terminal++
			}
		}
		if terminal != 1 {
			t.Errorf("states: got %v, want exactly one end", u.States(reqID))
		}
		u.ordersAtOnce(reqID) // calls after the end change nothing
		equal(t, "after its end", u.Load(reqID).State, end)
		u.wantUnits("after its end", 100-moved, 100+moved)
	}
	t.Log(ends)
}

// ordersAtOnce makes every call that may move the transfer, at the same time.
func (u *user) ordersAtOnce(reqID string) {
	u.T.Helper()
	path := "/admin/v1/transfers/" + reqID
	cancel := func() int { return u.order(path+"/cancel", map[string]string{"reason": "x"}) }
	drive := func() int { return u.Task(reqID) }
	calls := []func() int{drive, cancel, drive, cancel}
	for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund} {
		for range 3 {
			calls = append(calls, func() int { return u.order(path+"/resolve", map[string]string{"op": string(op), "reason": "x"}) })
		}
	}
	got := make([]int, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { got[i] = call() })
	}
	all.Wait()
	for i, status := range got {
		if status != http.StatusOK && status != http.StatusNoContent && status != http.StatusConflict {
			u.T.Errorf("call %d: got %d, want 200, 204 or 409", i, status)
		}
	}
}

// order makes an operator's call, and returns its status; 0: it gave no answer.
func (u *user) order(path string, body any) (status int) {
	status, _, _ = u.Call(u.Ctx, stack.OperatorAccount, http.MethodPost, path, body)
	return status
}
