package worker

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// decidedByCode is recorded as the decider for a [txmanager.StuckResolution].
const decidedByCode = "StuckResolution"

// resolveStuck calls the StuckResolution for each STUCK transaction. Its answer becomes a
// requested action, which the next iteration carries out. It returns the ids that it decided about.
func (t *invocation) resolveStuck(ctx context.Context, j *rules.Evaluation) (decided []string) {
	if t.worker.Resolution == nil {
		return nil
	}
	for i, x := range j.After {
		if x.State != txmanager.Stuck || x.RequestedAction != "" || t.State.Protected {
			continue
		}
		action, reason := t.callResolution(ctx, x)
		if action == txmanager.ActionWait {
			continue
		}
		if problem := t.Rules.RefuseAction(x, action); problem != "" || reason == "" {
			t.Log.ErrorContext(ctx, "a decision by code about a STUCK transaction is not followed",
				append(t.LogAttrs(), "txId", x.ID, "action", action, "reason", reason, "problem", problem)...)
			continue
		}
		x.RequestedAction, x.NextCheckAt = action, new(t.State.DatabaseTime())
		j.After[i] = x
		j.AddDecision(x, txmanager.Decision{Action: action, By: decidedByCode, Reason: reason})
		decided = append(decided, x.ID)
	}
	return decided
}

// callResolution treats a panic of the code as [txmanager.ActionWait].
func (t *invocation) callResolution(ctx context.Context, x txmanager.Tx) (action txmanager.Action, reason string) {
	if p := txmanager.PanicOf(func() { action, reason = t.worker.Resolution.Resolve(x) }); p != nil {
		t.Log.ErrorContext(ctx, "the StuckResolution panicked", append(t.LogAttrs(), "txId", x.ID, "panic", fmt.Sprint(p))...)
		return txmanager.ActionWait, ""
	}
	return action, reason
}
