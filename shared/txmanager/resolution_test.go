package txmanager

import (
	"log/slog"
	"testing"
)

// decider gives the same answer for every transaction.
type decider struct {
	order  Action
	reason string
}

func (d decider) Resolve(Tx) (Action, string) { return d.order, d.reason }

// Code may decide about STUCK transactions, with a reason that is stored. A forbidden action is
// ignored, and an action that is already requested stays.
func TestStuckResolution(t *testing.T) {
	t.Parallel()
	ordered := stuck(5)
	ordered.RequestedAction = ActionReplace
	unsigned := bare(5)
	unsigned.State = Stuck
	for _, c := range []struct {
		name    string
		tx      Tx
		answer  StuckResolution
		ask     bool
		want    Action
		decided bool
	}{
		{"no code", stuck(5), nil, false, "", false},
		{"it waits", stuck(5), decider{ActionWait, "later"}, false, "", false},
		{"it replaces", stuck(5), decider{ActionReplace, "too cheap"}, false, ActionReplace, true},
		{"without a reason", stuck(5), decider{ActionReplace, ""}, false, "", false},
		{"what is no order", stuck(5), decider{"SKIP", "why not"}, false, "", false},
		{"a caller's order", stuck(5), decider{ActionCancel, "r"}, false, "", false},
		{"under ask, a placeholder", stuck(5), decider{ActionPlaceholder, "r"}, true, "", false},
		{"under ask, the same bytes again", stuck(5), decider{ActionRebroadcast, "r"}, true, ActionRebroadcast, true},
		{"somebody has decided", ordered, decider{ActionPlaceholder, "r"}, false, ActionReplace, false},
		{"not STUCK", pending(5), decider{ActionPlaceholder, "r"}, false, "", false},
		{"no bytes to send again", unsigned, decider{ActionRebroadcast, "r"}, false, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rulesOf(3)
			r.AskBeforePlaceholder = c.ask
			tn := invocationBy(&Worker{Service: Service{Rules: r, Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Resolution: c.answer}, leaseSession{state: stateOf(1, 6, c.tx)})
			j := evaluation{after: []Tx{c.tx}}
			tn.resolveStuck(t.Context(), &j)
			if got := j.after[0].RequestedAction; got != c.want {
				t.Errorf("ordered: got %q, want %q", got, c.want)
			}
			if got := len(j.transitions) == 1 && j.transitions[0].Decision != nil && j.transitions[0].Decision.By == decidedByCode; got != c.decided {
				t.Errorf("recorded as decided by code: got %v, want %v", j.transitions, c.decided)
			}
		})
	}
}

// In PROTECT code requests nothing.
func TestStuckResolutionIsNotAskedInProtect(t *testing.T) {
	t.Parallel()
	w := stateOf(1, 6, stuck(5))
	w.Protected = true
	tn := invocationBy(&Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Resolution: decider{ActionReplace, "r"}}, leaseSession{state: w})
	j := evaluation{after: []Tx{stuck(5)}}
	if tn.resolveStuck(t.Context(), &j); len(j.transitions) != 0 {
		t.Errorf("moves: got %v, want none", j.transitions)
	}
}
