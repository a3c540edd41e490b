package rules

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A handler is called only where its transaction could be sent: not above a nonce that no node
// holds, not twice at once, not before its time.
func TestWhoseHandlerIsAskedNext(t *testing.T) {
	t.Parallel()
	later := txtest.OfHandler(5)
	later.NextCheckAt = txtest.In(time.Minute)
	decided := txtest.OfHandler(5)
	decided.RequestedAction = txmanager.ActionPlaceholder
	claimedStuck := ClaimBroadcast(txtest.Stuck(4), txtest.Now)
	for name, c := range map[string]struct {
		unsettled []txmanager.Tx
		want      bool
	}{
		"alone":                                {[]txmanager.Tx{txtest.OfHandler(5)}, true},
		"behind what a node holds":             {[]txmanager.Tx{txtest.Pending(4), txtest.OfHandler(5)}, true},
		"behind what goes in this round":       {[]txmanager.Tx{ClaimBroadcast(txtest.Submitted(4), txtest.Now), txtest.OfHandler(5)}, true},
		"behind what no node took":             {[]txmanager.Tx{txtest.Submitted(4), txtest.OfHandler(5)}, false},
		"behind STUCK":                         {[]txmanager.Tx{txtest.Stuck(4), txtest.OfHandler(5)}, false},
		"behind STUCK, whose send was claimed": {[]txmanager.Tx{claimedStuck, txtest.OfHandler(5)}, false},
		"behind what has no bytes":             {[]txmanager.Tx{txtest.Bare(4), txtest.OfHandler(5)}, false},
		"not yet":                              {[]txmanager.Tx{later}, false},
		"decided about":                        {[]txmanager.Tx{decided}, false},
	} {
		got, ok := NextHandlerCall(txtest.StateOf(4, 6, c.unsettled...))
		if ok != c.want || (ok && *got.Nonce != 5) {
			t.Errorf("%s: got %v, %v; want %v", name, got.ID, ok, c.want)
		}
	}
}

// A transaction without bytes always plans its next check. Otherwise iterations would repeat
// without end.
func TestWaitingWithoutBytesIsNoLoop(t *testing.T) {
	t.Parallel()
	cancelled, undecided := txtest.OfHandler(5), txtest.OfHandler(5)
	cancelled.State, cancelled.RequestedAction, cancelled.LastError = txmanager.Stuck, txmanager.ActionCancel, "a cancel was asked for, and nonce.placeholder=ask: an operator must decide"
	undecided.State, undecided.NextCheckAt = txmanager.Stuck, txtest.Ago(time.Second)
	r := rulesOf(3)
	r.AskBeforePlaceholder = true
	w := txtest.StateOf(1, 6, cancelled)
	_, moves := r.PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), HandlerResult{})
	if len(moves) != 1 || moves[0].To.IsDueBy(txtest.Now) {
		t.Errorf("STUCK with a cancel under ask: got %+v, want its next look planned", moves)
	}
	w = txtest.StateOf(1, 6, undecided)
	j := r.Evaluate(w, txtest.Asking(w), txtest.ViewOf(w, txtest.Block('a', 100)))
	if len(j.Transitions) != 1 || !j.Transitions[0].To.NextCheckAt.Equal(txtest.Now.Add(StuckPollBlocks*r.BlockTime)) {
		t.Errorf("STUCK without bytes or order: got %+v, want its next look ten blocks on", j.Transitions)
	}
}

// In PROTECT, and above a nonce that no node holds, a requested action waits; polling continues.
func TestWaitingActionDoesNotEndPolling(t *testing.T) {
	t.Parallel()
	ordered := txtest.Pending(5)
	ordered.RequestedAction = txmanager.ActionCancel
	w := txtest.StateOf(1, 6, ordered)
	w.Protected = true
	check.Equal(t, "in PROTECT", rulesOf(3).PlanNextWork(w), NextWork{Kind: txmanager.KindReceipt, At: *ordered.NextCheckAt})
	ordered.Nonce = new(uint64(6))
	w = txtest.StateOf(2, 7, txtest.Stuck(5), ordered)
	check.Equal(t, "behind STUCK: an advance now", rulesOf(3).PlanNextWork(w).AdvanceNow, false)
}
