package nonce

import (
	"log/slog"
	"testing"
)

// decider answers the same of everything.
type decider struct {
	order  Order
	reason string
}

func (d decider) Resolve(Tx) (Order, string) { return d.order, d.reason }

// Code may decide about what is STUCK, with a reason that is kept; what it may not
// order is not followed, and somebody's order stays.
func TestStuckResolution(t *testing.T) {
	t.Parallel()
	ordered := stuck(5)
	ordered.Ordered = OrderReplace
	unsigned := bare(5)
	unsigned.State = Stuck
	for _, c := range []struct {
		name    string
		tx      Tx
		answer  StuckResolution
		ask     bool
		want    Order
		decided bool
	}{
		{"no code", stuck(5), nil, false, "", false},
		{"it waits", stuck(5), decider{OrderWait, "later"}, false, "", false},
		{"it replaces", stuck(5), decider{OrderReplace, "too cheap"}, false, OrderReplace, true},
		{"without a reason", stuck(5), decider{OrderReplace, ""}, false, "", false},
		{"what is no order", stuck(5), decider{"SKIP", "why not"}, false, "", false},
		{"a caller's order", stuck(5), decider{OrderCancel, "r"}, false, "", false},
		{"under ask, a placeholder", stuck(5), decider{OrderPlaceholder, "r"}, true, "", false},
		{"under ask, the same bytes again", stuck(5), decider{OrderRebroadcast, "r"}, true, OrderRebroadcast, true},
		{"somebody has decided", ordered, decider{OrderPlaceholder, "r"}, false, OrderReplace, false},
		{"not STUCK", pending(5), decider{OrderPlaceholder, "r"}, false, "", false},
		{"no bytes to send again", unsigned, decider{OrderRebroadcast, "r"}, false, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rulesOf(3)
			r.AskBeforePlaceholder = c.ask
			tn := &tenure{Worker: &Worker{Rules: r, Resolution: c.answer, Log: slog.New(slog.DiscardHandler)}, work: workOf(1, 6, c.tx)}
			j := judgement{after: []Tx{c.tx}}
			tn.resolve(t.Context(), &j)
			if got := j.after[0].Ordered; got != c.want {
				t.Errorf("ordered: got %q, want %q", got, c.want)
			}
			if got := len(j.moves) == 1 && j.moves[0].Decided != nil && j.moves[0].Decided.By == decidedByCode; got != c.decided {
				t.Errorf("recorded as decided by code: got %v, want %v", j.moves, c.decided)
			}
		})
	}
}

// In PROTECT nothing is ordered.
func TestStuckResolutionIsNotAskedInProtect(t *testing.T) {
	t.Parallel()
	w := workOf(1, 6, stuck(5))
	w.Protected = true
	tn := &tenure{Worker: &Worker{Rules: rulesOf(3), Resolution: decider{OrderReplace, "r"}, Log: slog.New(slog.DiscardHandler)}, work: w}
	j := judgement{after: []Tx{stuck(5)}}
	if tn.resolve(t.Context(), &j); len(j.moves) != 0 {
		t.Errorf("moves: got %v, want none", j.moves)
	}
}
