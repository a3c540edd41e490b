package worker

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// decider gives the same answer for every transaction.
type decider struct {
	order  txmanager.Action
	reason string
}

func (d decider) Resolve(txmanager.Tx) (txmanager.Action, string) { return d.order, d.reason }

// Code may decide about STUCK transactions, with a reason that is stored, except in PROTECT. A forbidden
// action is ignored, and an action that is already requested stays.
func TestStuckResolution(t *testing.T) {
	t.Parallel()
	ordered := txtest.Stuck(5)
	ordered.RequestedAction = txmanager.ActionReplace
	unsigned := txtest.Bare(5)
	unsigned.State = txmanager.Stuck
	payout := txtest.Of(txmanager.PayoutCaller, txtest.Stuck(5))
	for _, c := range []struct {
		name    string
		tx      txmanager.Tx
		answer  txmanager.StuckResolution
		ask     bool
		want    txmanager.Action
		decided bool
	}{
		{"no code", txtest.Stuck(5), nil, false, "", false},
		{"it waits", txtest.Stuck(5), decider{txmanager.ActionWait, "later"}, false, "", false},
		{"it replaces", txtest.Stuck(5), decider{txmanager.ActionReplace, "too cheap"}, false, txmanager.ActionReplace, true},
		{"without a reason", txtest.Stuck(5), decider{txmanager.ActionReplace, ""}, false, "", false},
		{"what is no order", txtest.Stuck(5), decider{"SKIP", "why not"}, false, "", false},
		{"a caller's order", txtest.Stuck(5), decider{txmanager.ActionCancel, "r"}, false, "", false},
		{"under ask, a placeholder", txtest.Stuck(5), decider{txmanager.ActionPlaceholder, "r"}, true, "", false},
		{"under ask, the same bytes again", txtest.Stuck(5), decider{txmanager.ActionRebroadcast, "r"}, true, txmanager.ActionRebroadcast, true},
		{"a placeholder for a payout", payout, decider{txmanager.ActionPlaceholder, "r"}, false, "", false},
		{"a payout's bytes again", payout, decider{txmanager.ActionRebroadcast, "r"}, false, txmanager.ActionRebroadcast, true},
		{"a payout at a higher fee", payout, decider{txmanager.ActionReplace, "r"}, false, txmanager.ActionReplace, true},
		{"somebody has decided", ordered, decider{txmanager.ActionPlaceholder, "r"}, false, txmanager.ActionReplace, false},
		{"not STUCK", txtest.Pending(5), decider{txmanager.ActionPlaceholder, "r"}, false, "", false},
		{"in PROTECT", txtest.Stuck(5), decider{txmanager.ActionReplace, "r"}, false, "", false},
		{"no bytes to send again", unsigned, decider{txmanager.ActionRebroadcast, "r"}, false, "", false},
	} {
		r := rulesOf(3)
		r.AskBeforePlaceholder = c.ask
		w := txtest.StateOf(1, 6, c.tx)
		w.Protected = c.name == "in PROTECT"
		tn := invocationBy(&Worker{Service: sessiontest.Service(r, nil), Resolution: c.answer}, session.Session{State: w})
		j := rules.Evaluation{After: []txmanager.Tx{c.tx}}
		tn.resolveStuck(t.Context(), &j)
		check.Equal(t, c.name+": ordered", j.After[0].RequestedAction, c.want)
		if got := len(j.Transitions) == 1 && j.Transitions[0].Decision != nil && j.Transitions[0].Decision.By == decidedByCode; got != c.decided {
			t.Errorf("%s: recorded as decided by code: got %v, want %v", c.name, j.Transitions, c.decided)
		}
	}
}
