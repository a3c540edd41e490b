package txmanager

import (
	"strings"
	"testing"
)

// A node's text never appears in the text for callers, whatever happened to the transaction.
// Operators have all of it.
func TestNodeTextsAreForOperators(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		const words = "nonce too high: tx nonce 31337, gapped, next nonce 31336; for operators: 31338"
		r, w := rulesOf(3), stateOf(1, 6)
		texts := map[string]string{}
		for class := SendUnknown; class <= SendInvalid; class++ {
			if res := (SendResult{Class: class, Text: words}); !res.Acknowledged() {
				texts["sent, "+class.String()] = r.afterBroadcast(submitted(5), res, block('a', 100), dbNow).LastError
			}
		}
		for name, e := range map[string]Estimate{"reverts": {Outcome: Refused, Reason: words}, "unknown": {Reason: words}} {
			for _, busy := range []bool{false, true} {
				work := queue(w, queued(1, "call"))
				if busy {
					work = queue(stateOf(2, 6, pending(5)), queued(1, "call"))
				}
				p := r.planAllocations(work, reader(nil), viewOf(work, block('a', 100)), map[string]Estimate{work.Queue[0].ID: e})
				if len(p.transitions) != 1 {
					t.Fatalf("%s, busy %v: got %d moves, want the one that says why", name, busy, len(p.transitions))
				}
				texts[name+", prepared"] = p.transitions[0].To.LastError
			}
		}
		for what, text := range texts {
			said, detail := CallerText(text)
			if strings.Contains(said, "3133") || strings.Contains(said, strings.TrimSpace(operatorsOnly)) || said == "" {
				t.Errorf("%s: a caller reads %q, want nothing of the node's words", what, said)
			}
			if detail != words {
				t.Errorf("%s: an operator reads %q, want the node's words", what, detail)
			}
		}
	})
}

// Texts stored before node texts were separated are recognised by their class.
func TestOldNodeTextsAreForOperators(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"nonce_too_high: nonce too high: tx nonce 0, gapped, next nonce 7": {SendNonceTooHigh.description(), "nonce too high: tx nonce 0, gapped, next nonce 7"},
		SendPoolFull.description():      {SendPoolFull.description(), ""},
		"balance: the account is empty": {"balance: the account is empty", ""},
		"":                              {"", ""},
	} {
		if said, detail := CallerText(text); said != want[0] || detail != want[1] {
			t.Errorf("%q: got %q and %q, want %q and %q", text, said, detail, want[0], want[1])
		}
	}
}
