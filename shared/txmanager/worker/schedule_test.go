package worker

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A transaction without bytes above one that no node holds is not overdue before that one is
// checked. Once that one is broadcasting, it is due at once.
func TestBlockedTransactionIsNotOverdue(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		past, far := txtest.Ago(time.Hour), txtest.DbNow.Add(rules.StuckPollBlocks*r.BlockTime)
		waiting := func(reason string, at *time.Time) txmanager.Tx {
			x := txtest.Bare(6)
			x.NextCheckAt, x.LastError = at, reason
			return x
		}
		ordered := waiting("", past)
		ordered.RequestedAction = txmanager.ActionPlaceholder
		due := txtest.Stuck(5)
		due.NextCheckAt = past
		distant := txtest.Stuck(5)
		distant.NextCheckAt = txtest.In(time.Hour)
		for _, c := range []struct {
			name         string
			below, above txmanager.Tx
			want         *time.Time // nil: no move
		}{
			{"behind STUCK", txtest.Stuck(5), waiting("", past), &far},
			{"behind STUCK, never planned", txtest.Stuck(5), waiting("", nil), &far},
			{"behind what no node took", txtest.Submitted(5), waiting("", past), &far},
			{"behind a later check", distant, waiting("", past), distant.NextCheckAt},
			{"behind a check that is due now", due, waiting("", past), nil},
			{"planned already", txtest.Stuck(5), waiting("", txtest.In(time.Minute)), nil},
			{"behind what a node holds, planned", txtest.Pending(5), waiting("", txtest.In(time.Minute)), &txtest.DbNow},
			{"behind what goes now, planned", rules.ClaimBroadcast(txtest.Submitted(5), txtest.DbNow), waiting("", txtest.In(time.Minute)), &txtest.DbNow},
			{"behind what a node holds, due", txtest.Pending(5), waiting("", past), nil},
			{"it waits for something of its own", txtest.Pending(5), waiting("not signed: no answer", txtest.In(time.Minute)), nil},
			{"with an order", txtest.Stuck(5), ordered, nil},
		} {
			moves := r.PostponeBlocked(txtest.StateOf(2, 7, c.below, c.above))
			if c.want == nil {
				if len(moves) != 0 {
					t.Errorf("%s: got %+v, want it left as it is", c.name, moves[0].To)
				}
				continue
			}
			if len(moves) != 1 || moves[0].To.ID != "tx-6" || moves[0].From != txmanager.InFlight || !moves[0].To.NextCheckAt.Equal(*c.want) {
				t.Errorf("%s: got %+v, want its next look at %v", c.name, moves, c.want)
			}
		}
		w := txtest.StateOf(2, 7, txtest.Stuck(5), waiting("", past))
		w.Protected = true
		if moves := r.PostponeBlocked(w); len(moves) != 0 {
			t.Errorf("in PROTECT: got %+v, want nothing moved", moves)
		}
		w = txtest.StateOf(2, 7, txtest.Stuck(5), waiting("", past))
		tn := invocationBy(&Worker{Service: session.Service{Rules: r, Timing: testTiming}}, session.Session{Chain: txtest.Reader(nil), Kind: txmanager.KindReceipt, State: w})
		if p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), false); len(p.Transitions) != 1 || !p.Transitions[0].To.NextCheckAt.Equal(far) {
			t.Errorf("a look by receipt: got %+v, want it planned too", p.Transitions)
		}
	})
}
