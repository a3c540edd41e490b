package worker

import (
	"log/slog"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A handler's transaction does not fail because one node says that it would revert.
func TestHandlersCallsFailByAQuorum(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		x := txtest.Bare(5)
		w := txtest.StateOf(1, 6, x)
		says := func(o txmanager.Outcome, gas uint64) txmanager.ChainObservation {
			v := txtest.ViewOf(w, txtest.Block('a', 100))
			v.Estimates = []txmanager.Estimate{{Outcome: o, Gas: gas, Reason: "execution reverted"}}
			return v
		}
		for name, c := range map[string]struct {
			views []txmanager.ChainObservation
			fails bool
		}{
			"alone":                  {txtest.OfNodes(says(txmanager.Refused, 0), says(txmanager.Done, 50_000), says(txmanager.Done, 50_000)), false},
			"alone, others are away": {txtest.OfNodes(says(txmanager.Refused, 0)), false},
			"two of three":           {txtest.OfNodes(says(txmanager.Refused, 0), says(txmanager.Done, 50_000), says(txmanager.Refused, 0)), true},
		} {
			tn := invocationBy(&Worker{Service: session.Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}}, session.Session{Chain: &txtest.Panel{Views: c.views, Needed: 2}, State: w})
			m, err := tn.priceCall(t.Context(), x, rules.HandlerResult{Call: txmanager.Call{}}, c.views[0])
			if got := m.Failed != ""; err != nil || got != c.fails || !c.fails && m.Wait == "" {
				t.Errorf("%s: got failed %q, wait %q, %v; want failed %v, else it waits", name, m.Failed, m.Wait, err, c.fails)
			}
		}
	})
}
