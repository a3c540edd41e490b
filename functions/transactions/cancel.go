package transactions

import (
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteCancel serves the function cancel.
func (a *Server) RouteCancel(mux *web.Mux) {
	a.Handle(mux, "cancel", "POST /api/v1/tx/{txId}/cancel", a.DeliverAfter(serve.By(a.Viewer, a.cancel)))
}

// ActResult is what an act on a transaction answers: the transaction after the act.
type ActResult struct {
	TxID     string             `json:"txId"`
	Outcome  string             `json:"outcome,omitempty"` // of a cancel
	State    txmanager.State    `json:"state"`
	SubState txmanager.SubState `json:"subState,omitempty"`
	Stated   bool               `json:"stated,omitempty"` // EXECUTED by an operator's statement, without proof on the chain
}

// The outcomes of a cancel. The first two are definite and never change.
const (
	outcomeCancelled = "CANCELLED" // the intent was not carried out and never will be
	outcomeExecuted  = "EXECUTED"  // a version of the intent was mined and is final, or a release recorded it as executed
	outcomePending   = "PENDING"   // ask again: a placeholder competes for the nonce
)

// cancel serves a cancel of a caller, or of an operator with a token of callers.
func (a *Server) cancel(w http.ResponseWriter, r *http.Request, v store.Viewer) error {
	txID, err := serve.PathTxID(r)
	if err != nil {
		return err
	}
	if v.Operator {
		a.LogOperator(r, v)
	}
	return a.Cancel(w, r, txID, v, "")
}

// Cancel cancels a queued intent at once. If the intent has a nonce, a placeholder transaction
// competes for it, and the one that becomes final decides. Until then the answer is 202 PENDING.
// Repeating the call is harmless. The reason is an operator's; "": none.
func (a *Server) Cancel(w http.ResponseWriter, r *http.Request, txID string, v store.Viewer, reason string) error {
	asked := "asked by " + v.Caller
	if reason != "" {
		asked += ": " + reason
	}
	out, err := a.RecordDecision(r, store.Decision{TxID: txID, By: v, Action: txmanager.ActionCancel, Reason: asked})
	if err != nil {
		return err
	}
	body := ActResult{TxID: txID, Outcome: outcome(out), State: out.State, SubState: out.SubState, Stated: out.Stated}
	status := http.StatusOK
	if body.Outcome == outcomePending {
		status = http.StatusAccepted
	}
	return web.Reply(w, r, status, body)
}

// outcome returns the definite answer for a terminal state, or PENDING.
func outcome(d store.DecisionResult) string {
	switch {
	case !d.State.Terminal():
		return outcomePending
	case d.State == txmanager.Confirmed, d.SubState == txmanager.Reverted:
		return outcomeExecuted
	}
	return outcomeCancelled
}

// RecordDecision records a decision and enqueues the iteration that carries it out. If the enqueue
// fails, the sweep or the next poll finds the requested action.
func (a *Server) RecordDecision(r *http.Request, d store.Decision) (store.DecisionResult, error) {
	began := time.Now()
	out, err := a.Store.RecordDecision(r.Context(), d)
	if err != nil {
		return out, err
	}
	a.Points.At("cancel.committed")
	log := a.Log.With(telemetry.SubmitterKey, out.Submitter, telemetry.TxIDKey, d.TxID, telemetry.NodeIDKey, a.Node,
		telemetry.FencingTokenKey, out.Token)
	log.InfoContext(r.Context(), "decided", "action", d.Action, "by", d.By.Caller, "reason", d.Reason, "state", out.State)
	if out.Recorded && out.SubState == txmanager.Cancelled {
		telemetry.Finality.Add(r.Context(), 1, telemetry.Result("cancelled"))
	}
	telemetry.Step(r.Context(), out.Trace, "decide "+string(d.Action), began)
	if err := a.Tasks.EnqueueAdvance(telemetry.Onward(r.Context(), out.Trace), out.Submitter, out.Token); err != nil {
		log.WarnContext(r.Context(), "no advance task for a decision: the next iteration carries it out", "error", err.Error())
	}
	return out, nil
}
