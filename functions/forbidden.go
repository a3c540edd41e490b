package functions

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// forbiddenMost bounds how many intents of a queue are judged to tell an operator.
const forbiddenMost = 500

// submitterNow is a submitter, and what its policy and callers make of its queue now.
type submitterNow struct {
	store.SubmitterView
	Forbidden *int `json:"forbidden,omitempty"` // of the first forbiddenMost intents without a nonce; nil: it could not be found out
}

// replySubmitter answers with the submitter as it is now.
func (a *App) replySubmitter(w http.ResponseWriter, r *http.Request, s txmanager.Submitter) error {
	view, err := a.store.Submitter(r.Context(), s)
	if err != nil {
		return fmt.Errorf("show %s: %w", s, err)
	}
	now := submitterNow{SubmitterView: view}
	switch n, err := a.forbidden(r.Context(), view); {
	case err != nil: // what was to be done is done
		a.log.WarnContext(r.Context(), "the queue could not be judged", telemetry.SubmitterKey, s, "error", err.Error())
	default:
		now.Forbidden = &n
	}
	web.Reply(w, r, http.StatusOK, now)
	return nil
}

// forbidden is how many of the intents that wait the submitter's policy and callers do not
// allow any more: what a resume would end without a nonce.
func (a *App) forbidden(ctx context.Context, view store.SubmitterView) (int, error) {
	if view.Queued == view.Held {
		return 0, nil
	}
	served, err := a.servedOf(view.Submitter)
	if err != nil {
		return 0, err
	}
	chain, err := a.chainOf(view.Submitter)
	if err != nil {
		return 0, err
	}
	w, err := a.store.Waiting(ctx, view.Submitter, forbiddenMost)
	if err != nil {
		return 0, err
	}
	return rules(a.config, served.ServedChain).Forbidden(w, chain), nil
}
