package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// maxForbiddenChecked is the most queued intents that are evaluated to inform an operator.
const maxForbiddenChecked = 500

// submitterNow is a submitter with the number of its queued intents that its policy and callers now
// forbid.
type submitterNow struct {
	store.SubmitterView
	Forbidden *int `json:"forbidden,omitempty"` // among the first maxForbiddenChecked intents without a nonce; nil: unknown
}

// replySubmitter answers with the submitter's present state.
func (a *Server) replySubmitter(w http.ResponseWriter, r *http.Request, s txmanager.Submitter) error {
	view, err := a.Store.Submitter(r.Context(), s)
	if err != nil {
		return fmt.Errorf("show %s: %w", s, err)
	}
	now := submitterNow{SubmitterView: view}
	switch n, err := a.forbidden(r.Context(), view); {
	case err != nil: // the requested change is already stored
		a.Log.WarnContext(r.Context(), "the queue could not be evaluated", telemetry.SubmitterKey, s, "error", err.Error())
	default:
		now.Forbidden = &n
	}
	web.Reply(w, r, http.StatusOK, now)
	return nil
}

// forbidden counts the waiting intents that the submitter's policy and callers no longer allow. A
// resume would end these without a nonce.
func (a *Server) forbidden(ctx context.Context, view store.SubmitterView) (int, error) {
	if view.Queued == view.Held {
		return 0, nil
	}
	rules, err := a.Chains.RulesOf(view.Submitter)
	if err != nil {
		return 0, err
	}
	chain, err := a.Chains.Connector(view.Submitter)
	if err != nil {
		return 0, err
	}
	w, err := a.Store.Waiting(ctx, view.Submitter, maxForbiddenChecked)
	if err != nil {
		return 0, err
	}
	return rules.Forbidden(w, chain), nil
}
