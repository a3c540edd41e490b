package worker

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A handler's transaction is never bumped: its first version offers all that the handler allows,
// with or without gas bumps.
func TestAHandlersFirstVersionOffersAllItMay(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		x := txtest.Bare(5)
		x.Handler = "wage"
		w := txtest.StateOf(1, 6, x)
		for name, r := range map[string]rules.Rules{"on": bumpRules(), "off": rulesOf(3)} {
			tn := invocationBy(&Worker{Service: session.Service{Rules: r, Timing: testTiming}}, session.Session{State: w})
			made, err := tn.priceCall(t.Context(), x, rules.HandlerResult{Call: txmanager.Call{Gas: 21_000, FeeCapWei: big.NewInt(5000)}}, txtest.ViewOf(w, txtest.Block('a', 100)))
			if err != nil || made.Params.FeeCapWei.Int64() != 5000 {
				t.Errorf("%s: got %v, %v; want 5000 wei per gas, as the handler said", name, made.Params.FeeCapWei, err)
			}
		}
	})
}
