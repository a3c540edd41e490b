package admin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/transactions"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type decideRequest struct {
	reasonRequest
	Action string `json:"action"`
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
	out, err := a.Intents.RecordDecision(r, store.Decision{
		TxID: c.on, By: store.Viewer{Caller: c.by, Operator: true}, Action: action, Reason: c.reason,
	})
	if err != nil {
		return err
	}
	if out.Recorded {
		counted.Decision(r.Context(), action)
	}
	return web.Reply(w, r, http.StatusAccepted, client.Decision{TxID: c.on, State: client.TxState(out.State), RequestedAction: string(out.RequestedAction)})
}

// cancel cancels an intent by an operator's decision, with the reason.
func (a *Server) cancel(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	return a.Intents.Cancel(w, r, c.on, store.Viewer{Caller: c.by, Operator: true}, c.reason)
}

// proceed lets one held intent continue, by an operator's decision, and stores the reason.
func (a *Server) proceed(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	if mustPropose(r) {
		what := proposed{"proceed", map[string]any{"txId": c.on}, c.reason, fmt.Sprintf("lets the held intent %s proceed", c.on)}
		type state struct {
			Held    bool
			HeldFor *string
		}
		return proposeIf(a.Desk, w, r, what, store.ErrNotFound, func(now state) error {
			switch {
			case !now.Held:
				return store.ErrNotHeld
			case now.HeldFor != nil && *now.HeldFor == "CALL":
				return store.ErrHeldForForeign
			}
			return nil
		})
	}
	out, err := a.Store.Proceed(r.Context(), c.on, c.by, c.reason)
	if err != nil {
		return err
	}
	if out.Recorded {
		a.Log.WarnContext(r.Context(), "held intent proceeds", telemetry.SubmitterKey, out.Submitter, telemetry.TxIDKey, c.on,
			"operator", c.by, "reason", c.reason, telemetry.NodeIDKey, a.Node)
	}
	if out.State == txmanager.Queued {
		a.EnqueueAdvance(telemetry.Onward(r.Context(), out.Trace), out.Submitter, out.Token)
	}
	return web.Reply(w, r, http.StatusOK, transactions.ActResult{TxID: c.on, State: out.State, SubState: out.SubState})
}

// proceedPage is the number of held intents that one call releases.
const proceedPage = 500

type proceedAllRequest struct {
	reasonRequest
	Through string `json:"through"` // the txId of the newest held intent that the operator has read
}

// proceedAll lets a submitter's held intents continue, oldest first and one page a call. It leaves
// intents that were stored after the one that the operator names.
func (a *Server) proceedAll(w http.ResponseWriter, r *http.Request, c submitterCall[proceedAllRequest]) error {
	through, ok := serve.ParseTxID(c.body.Through)
	if !ok {
		return web.FieldProblem("through", "is required: the txId of the newest held intent that you have seen, "+serve.UUIDForm+"; intents stored after it stay held")
	}
	if mustPropose(r) {
		if _, err := a.Store.Submitter(r.Context(), c.on); err != nil {
			return err
		}
		subject := submitterSubject(c.on)
		subject["through"] = through
		return a.propose(w, r, proposed{"proceed-all", subject, c.reason, fmt.Sprintf("lets up to %d held intents of %s proceed, none newer than %s", proceedPage, c.on, through)})
	}
	out, err := a.Store.ProceedAll(r.Context(), c.on, through, c.by, c.reason, proceedPage)
	if err != nil {
		return err
	}
	if out.Proceeded > 0 {
		a.Log.WarnContext(r.Context(), "held intents proceed", telemetry.SubmitterKey, c.on, "number", out.Proceeded,
			"operator", c.by, "reason", c.reason, telemetry.NodeIDKey, a.Node)
		a.EnqueueAdvance(r.Context(), c.on, out.Token)
	}
	return web.Reply(w, r, http.StatusOK, client.ProceedReport{
		Submitter: string(c.on), Proceeded: out.Proceeded, Remaining: out.Remaining, Newer: out.Newer, Cancelled: out.Cancelled, Payouts: out.Payouts, Beside: out.Beside,
	})
}

type queueCancelRequest struct {
	reasonRequest
	Caller *string `json:"caller"`
}

// cancelPage is the number of intents that one call cancels.
const cancelPage = 500

// cancelQueue cancels the queued intents of a submitter, or of one of its callers, one page a call.
func (a *Server) cancelQueue(w http.ResponseWriter, r *http.Request, in submitterCall[queueCancelRequest]) error {
	c, body := store.QueueCancel{Submitter: in.on, By: in.by, Reason: in.reason, Limit: cancelPage}, in.body
	if body.Caller != nil {
		handler, isHandler := strings.CutPrefix(*body.Caller, store.HandlerCaller)
		if c.Caller = *body.Caller; !serve.CallerName.MatchString(c.Caller) && (!isHandler || handler == "") {
			return web.FieldProblem("caller", "is %.100q: want email:<verified e-mail>, sub:<subject of the token> or handler:<name>, as the intents were stored; leave it out to cancel every caller's", c.Caller)
		}
	}
	out, err := a.Store.CancelQueue(r.Context(), c)
	if err != nil {
		return err
	}
	if out.Cancelled > 0 {
		telemetry.Finality.Add(r.Context(), int64(out.Cancelled), telemetry.Result("cancelled"))
		a.Log.WarnContext(r.Context(), "queue cancelled", telemetry.SubmitterKey, c.Submitter, "caller", c.Caller, "number", out.Cancelled, "remaining", out.Remaining, "operator", c.By, "reason", c.Reason)
		a.EnqueueAdvance(r.Context(), c.Submitter, out.Token)
	}
	return web.Reply(w, r, http.StatusOK, client.QueueCancelReport{
		Submitter: string(c.Submitter), Cancelled: out.Cancelled, Remaining: out.Remaining, Bound: out.Bound, Payouts: out.Payouts, Beside: out.Beside,
	})
}
