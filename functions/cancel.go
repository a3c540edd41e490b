package functions

import (
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

func (a *App) routeCancel(mux *web.Mux) {
	a.handle(mux, "cancel", "POST /api/v1/tx/{txId}/cancel", a.telling(a.cancel))
}

type cancelResponse struct {
	TxID     string             `json:"txId"`
	Outcome  string             `json:"outcome"`
	State    txmanager.State    `json:"state"`
	SubState txmanager.SubState `json:"subState,omitempty"`
	Stated   bool               `json:"stated,omitempty"` // EXECUTED on an operator's statement: nothing on the chain proves it
}

// What a cancel came to. Only the first two are definite, and they never change.
const (
	outcomeCancelled = "CANCELLED" // the intent was not carried out and never will be
	outcomeExecuted  = "EXECUTED"  // one of the intent's own versions was mined, and is final; or a release recorded it
	outcomePending   = "PENDING"   // ask again: a placeholder competes for the nonce
)

// cancel takes a queued intent out at once. One that has a nonce gets a
// placeholder beside it, and whichever is mined decides, at finality: until
// then the answer is 202 PENDING. Asking again is harmless.
func (a *App) cancel(w http.ResponseWriter, r *http.Request) error {
	v, err := a.viewer(r)
	if err != nil {
		return err
	}
	txID, err := pathTxID(r)
	if err != nil {
		return err
	}
	out, err := a.order(r, store.Decision{TxID: txID, By: v, Action: txmanager.ActionCancel, Reason: "asked by " + v.Caller})
	if err != nil {
		return err
	}
	body := cancelResponse{TxID: txID, Outcome: outcome(out), State: out.State, SubState: out.SubState, Stated: out.Stated}
	status := http.StatusOK
	if body.Outcome == outcomePending {
		status = http.StatusAccepted
	}
	web.Reply(w, r, status, body)
	return nil
}

// outcome is the definite answer of a final state, or PENDING.
func outcome(d store.DecisionResult) string {
	switch {
	case !d.State.Terminal():
		return outcomePending
	case d.State == txmanager.Confirmed, d.SubState == txmanager.Reverted:
		return outcomeExecuted
	}
	return outcomeCancelled
}

// order records a decision and asks for the look that carries it out. If it
// cannot ask, the sweep or the next poll finds the order.
func (a *App) order(r *http.Request, d store.Decision) (store.DecisionResult, error) {
	began := time.Now()
	out, err := a.store.RecordDecision(r.Context(), d)
	if err != nil {
		return out, err
	}
	a.points.At("cancel.committed")
	log := a.log.With(telemetry.SubmitterKey, out.Submitter, telemetry.TxIDKey, d.TxID, telemetry.NodeIDKey, a.node,
		telemetry.FencingTokenKey, out.Token)
	log.InfoContext(r.Context(), "decided", "action", d.Action, "by", d.By.Caller, "reason", d.Reason, "state", out.State)
	if out.Recorded && out.SubState == txmanager.Cancelled {
		telemetry.Finality.Add(r.Context(), 1, telemetry.Result("cancelled"))
	}
	telemetry.Step(r.Context(), out.Trace, "decide "+string(d.Action), began)
	if err := a.tasks.EnqueueAdvance(telemetry.Onward(r.Context(), out.Trace), out.Submitter, out.Token); err != nil {
		log.WarnContext(r.Context(), "no advance task for a decision: the next look carries it out", "error", err.Error())
	}
	return out, nil
}

// pathTxID is the txId in the path.
func pathTxID(r *http.Request) (string, error) {
	id, ok := parseTxID(r.PathValue("txId"))
	if !ok {
		return "", web.FieldProblem("txId", "is not a txId: want the UUID that create answered, "+uuidForm)
	}
	return id, nil
}

// uuidForm is the one way to write a UUID, as RFC 9562 (section 4) has it.
const uuidForm = "as 32 hex digits in groups of 8, 4, 4, 4 and 12 with hyphens between them"

// parseTxID reads a UUID in that form, of which letter case alone may differ. Of the other
// forms that people write, such as in braces, none is taken.
func parseTxID(text string) (id string, ok bool) {
	u, err := uuid.Parse(text)
	return u.String(), err == nil && strings.EqualFold(text, u.String())
}
