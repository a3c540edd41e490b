package txmanager

import (
	"context"
	"fmt"
	"slices"
)

// StuckResolution decides by code about STUCK transactions, in place of an operator.
type StuckResolution interface {
	// Resolve is called at every evaluation of a STUCK transaction without a requested action. The
	// same call may be repeated by any process. It returns [ActionWait] to leave the decision to
	// an operator, or another action with the reason to store. It must make no outside calls and
	// use only t.
	Resolve(t Tx) (Action, string)
}

// Decision is a decision made by code, as it is recorded.
type Decision struct {
	Action Action
	By     string
	Reason string
}

// decidedByCode is recorded as the decider for a [StuckResolution].
const decidedByCode = "StuckResolution"

// resolveStuck calls the StuckResolution for each STUCK transaction. Its answer becomes a
// requested action, which the next iteration carries out.
func (t *invocation) resolveStuck(ctx context.Context, j *evaluation) {
	if t.worker.Resolution == nil {
		return
	}
	for i, x := range j.after {
		if x.State != Stuck || x.RequestedAction != "" || t.state.Protected {
			continue
		}
		action, reason := t.callResolution(ctx, x)
		if action == ActionWait {
			continue
		}
		if problem := t.Rules.refuseAction(x, action); problem != "" || reason == "" {
			t.Log.ErrorContext(ctx, "a decision by code about a STUCK transaction is not followed",
				append(t.logAttrs(), "txId", x.ID, "action", action, "reason", reason, "problem", problem)...)
			continue
		}
		x.RequestedAction, x.NextCheckAt = action, new(t.state.now())
		j.after[i] = x
		j.addDecision(x, Decision{Action: action, By: decidedByCode, Reason: reason})
		t.decided = append(t.decided, x.ID)
	}
}

// callResolution treats a panic of the code as [ActionWait].
func (t *invocation) callResolution(ctx context.Context, x Tx) (action Action, reason string) {
	defer func() {
		if p := recover(); p != nil {
			t.Log.ErrorContext(ctx, "the StuckResolution panicked", append(t.logAttrs(), "txId", x.ID, "panic", fmt.Sprint(p))...)
			action = ActionWait
		}
	}()
	return t.worker.Resolution.Resolve(x)
}

// refuseAction is why code may not request the action, or "".
func (r Rules) refuseAction(t Tx, action Action) string {
	switch {
	case !slices.Contains([]Action{ActionRebroadcast, ActionReplace, ActionPlaceholder}, action):
		return "it is no allowed action: want WAIT, REBROADCAST, REPLACE or PLACEHOLDER"
	case r.AskBeforePlaceholder && action != ActionRebroadcast:
		return "nonce.placeholder=ask: only an operator may decide that"
	case t.isMadeElsewhere() && action == ActionReplace:
		return "what a handler made, or the owner of a reservation, cannot be replaced by a higher fee"
	case len(t.Versions) == 0 && action != ActionPlaceholder:
		return "nothing was signed that could be sent again or replaced"
	}
	return ""
}

// addDecision adds d to the transition of t, and makes one where there is none.
func (j *evaluation) addDecision(t Tx, d Decision) {
	i := slices.IndexFunc(j.transitions, func(m Transition) bool { return m.To.ID == t.ID })
	if i < 0 {
		j.transitions = append(j.transitions, Transition{From: t.State, To: t})
		i = len(j.transitions) - 1
	}
	j.transitions[i].To, j.transitions[i].Decision = t, &d
}
