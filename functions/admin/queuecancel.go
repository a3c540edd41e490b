package admin

import (
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type queueCancelRequest struct {
	reasonRequest
	Caller *string `json:"caller"`
}

type queueCancelResponse struct {
	Submitter txmanager.Submitter `json:"submitter"`
	Cancelled int                 `json:"cancelled"`
	Remaining int                 `json:"remaining"` // matching intents not cancelled yet: call again
	Bound     int                 `json:"bound"`     // intents with a nonce; they are not changed
	Payouts   int                 `json:"payouts"`   // queued intents whose transfers decide about them
	Beside    int                 `json:"beside"`    // intents held for foreign transactions and decided with these
}

// cancelPage is the number of intents that one call cancels.
const cancelPage = 500

// cancelQueue cancels the queued intents of a submitter, or of one of its callers, one page a call.
func (a *Server) cancelQueue(w http.ResponseWriter, r *http.Request, in submitterCall[queueCancelRequest]) error {
	c, body := store.QueueCancel{Submitter: in.on, By: in.by, Reason: in.reason, Limit: cancelPage}, in.body
	if body.Caller != nil {
		handler, isHandler := cutHandler(*body.Caller)
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
		a.advance(r.Context(), c.Submitter, out.Token)
	}
	web.Reply(w, r, http.StatusOK, queueCancelResponse{c.Submitter, out.Cancelled, out.Remaining, out.Bound, out.Payouts, out.Beside})
	return nil
}
