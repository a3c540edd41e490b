package rules

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A node's text never appears in the text for callers, whatever happened to the transaction.
// Operators have all of it.
func TestNodeTextsAreForOperators(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		const words = "nonce too high: tx nonce 31337, gapped, next nonce 31336; for operators: 31338"
		r, w := rulesOf(3), txtest.StateOf(1, 6)
		texts := map[string]string{}
		for class := txmanager.SendUnknown; class <= txmanager.SendInvalid; class++ {
			if res := (txmanager.SendResult{Class: class, Text: words}); !res.Acknowledged() {
				texts["sent, "+class.String()] = r.AfterBroadcast(txtest.Submitted(5), res, txtest.Block('a', 100), txtest.DbNow).LastError
			}
		}
		for name, e := range map[string]txmanager.Estimate{"reverts": {Outcome: txmanager.Refused, Reason: words}, "unknown": {Reason: words}} {
			for _, busy := range []bool{false, true} {
				work := txtest.Queue(w, txtest.Queued(1, "call"))
				if busy {
					work = txtest.Queue(txtest.StateOf(2, 6, txtest.Pending(5)), txtest.Queued(1, "call"))
				}
				p := r.PlanAllocations(work, txtest.Reader(nil), txtest.ViewOf(work, txtest.Block('a', 100)), map[string]txmanager.Estimate{work.Queue[0].ID: e})
				if len(p.Transitions) != 1 {
					t.Fatalf("%s, busy %v: got %d moves, want the one that says why", name, busy, len(p.Transitions))
				}
				texts[name+", prepared"] = p.Transitions[0].To.LastError
			}
		}
		for what, text := range texts {
			said, detail := txmanager.CallerText(text)
			if strings.Contains(said, "3133") || strings.Contains(said, strings.TrimSpace(txmanager.OperatorsOnly)) || said == "" {
				t.Errorf("%s: a caller reads %q, want nothing of the node's words", what, said)
			}
			if detail != words {
				t.Errorf("%s: an operator reads %q, want the node's words", what, detail)
			}
		}
	})
}
