package admin

import (
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type decideRequest struct {
	Action string `json:"action"`
	Reason string `json:"reason"`
}

type decideResponse struct {
	TxID    string           `json:"txId"`
	State   txmanager.State  `json:"state"`
	Ordered txmanager.Action `json:"ordered,omitempty"` // carried out by the next invocation that holds the lease
}

// actions maps the API's names to the actions that an operator may request for a transaction that has
// a nonce.
var actions = map[string]txmanager.Action{
	"wait": txmanager.ActionWait, "rebroadcast": txmanager.ActionRebroadcast,
	"replace": txmanager.ActionReplace, "placeholder": txmanager.ActionPlaceholder,
}

// decide records the action that an operator requests for a transaction, with the reason. It is
// carried out only while no version of the transaction has a receipt.
func (a *Server) decide(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	txID, err := serve.PathTxID(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[decideRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	action, ok := actions[body.Action]
	if !ok {
		return web.FieldProblem("action", "is %q: want wait, rebroadcast, replace or placeholder", body.Action)
	}
	reason := strings.TrimSpace(body.Reason)
	if reason == "" || len(reason) > serve.MaxReason {
		return web.FieldProblem("reason", "is required, in at most %d bytes: it is kept with your name", serve.MaxReason)
	}
	out, err := a.Decide(r, store.Decision{
		TxID: txID, By: store.Viewer{Caller: operator, Operator: true}, Action: action, Reason: reason,
	})
	if err != nil {
		return err
	}
	if out.Recorded {
		counted.Decision(r.Context(), action)
	}
	web.Reply(w, r, http.StatusAccepted, decideResponse{TxID: txID, State: out.State, Ordered: out.Ordered})
	return nil
}
