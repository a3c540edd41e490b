package admin

import (
	"net/http"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type decideRequest struct {
	Action string `json:"action"`
	Reason string `json:"reason"`
}

type decideResponse struct {
	TxID            string           `json:"txId"`
	State           txmanager.State  `json:"state"`
	RequestedAction txmanager.Action `json:"requestedAction,omitempty"` // carried out by the next invocation that holds the lease
}

// actions maps the API's names to the actions that an operator may request for a transaction that has
// a nonce.
var actions = map[string]txmanager.Action{
	"wait": txmanager.ActionWait, "rebroadcast": txmanager.ActionRebroadcast,
	"replace": txmanager.ActionReplace, "placeholder": txmanager.ActionPlaceholder,
}

// decide records the action that an operator requests for a transaction, with the reason. It is
// carried out only while no version of the transaction has a receipt.
func (a *Server) decide(w http.ResponseWriter, r *http.Request, c call[string, decideRequest]) error {
	action, ok := actions[c.body.Action]
	if !ok {
		return web.FieldProblem("action", "is %q: want wait, rebroadcast, replace or placeholder", c.body.Action)
	}
	reason, err := reasonOf(c.body.Reason)
	if err != nil {
		return err
	}
	out, err := a.Decide(r, store.Decision{
		TxID: c.on, By: store.Viewer{Caller: c.by, Operator: true}, Action: action, Reason: reason,
	})
	if err != nil {
		return err
	}
	if out.Recorded {
		counted.Decision(r.Context(), action)
	}
	web.Reply(w, r, http.StatusAccepted, decideResponse{TxID: c.on, State: out.State, RequestedAction: out.RequestedAction})
	return nil
}
