package transfers

import (
	"context"
	"errors"
	"net/http"

	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

type stepRequest struct {
	ReqID string `json:"req_id"`
	Act   int64  `json:"act"`   // of an account, in place of req_id
	Swept bool   `json:"swept"` // the next sweep makes another task
}

// stepFailed makes Cloud Tasks retry the task. It is neither 429 nor 503 and has no Retry-After. With
// these, Cloud Tasks would slow the whole queue, so that one failing transfer would delay all others.
var stepFailed = web.Code{Name: "STEP_FAILED", Status: http.StatusInternalServerError}

// stepTransfer drives a transfer as far as possible. It returns nil when nothing is due, or when a
// later task or the sweep will continue.
func (a *Server) stepTransfer(r *http.Request, body stepRequest) (err error) {
	a.Log.DebugContext(r.Context(), "task", "reqId", body.ReqID, "act", body.Act, "function", "transfer",
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	if body.Act != 0 {
		err = a.settleAct(r.Context(), body.Act)
	} else {
		err = a.step(r.Context(), body.ReqID)
	}
	switch {
	case err != nil && !body.Swept:
		return &web.Problem{Code: stepFailed, Detail: "the transfer's state is unknown: Cloud Tasks delivers the task again", Cause: err}
	case err != nil:
		a.Log.ErrorContext(r.Context(), "a sweep's step failed: the next sweep tries again", "reqId", body.ReqID, "act", body.Act, "error", err.Error())
	}
	return nil
}

// settleAct repeats an act on an account, whose answer is not known.
func (a *Server) settleAct(ctx context.Context, id int64) error {
	act, err := a.Acts.Settle(ctx, id)
	if err == nil && act.Open() {
		a.Log.WarnContext(ctx, "an act on an account still has no answer: the sweep repeats it", "actId", act.ID, "kind", act.Kind,
			"userId", act.UserID, "asset", act.Asset, "since", act.At.UTC(), "unknown", act.Unknown)
	}
	return err
}

// step drives a transfer and enqueues its next step. It returns an error if no task or sweep is known
// to continue it.
func (a *Server) step(ctx context.Context, reqID string) error {
	t, err := a.Coordinator.Drive(ctx, reqID)
	switch {
	case errors.Is(err, transfer.ErrNotFound): // a retry would not help
		a.Log.ErrorContext(ctx, "task of an unknown transfer dropped", "reqId", reqID)
		return nil
	case errors.Is(err, transfer.ErrForeign): // the sweep continues it once the database is accepted
		a.Log.ErrorContext(ctx, "transfers wait: the restored database is not accepted", "reqId", reqID)
		return nil
	case err != nil:
		return err
	}
	a.Points.At("transfer.driven")
	return a.LeaveStep(ctx, t)
}

// LeaveStep enqueues the next step of t, unless t is terminal. It does so even if the caller has
// disconnected. If no attempt is planned, a write failed or another worker drives t; then the step
// comes soon. A superfluous step is harmless.
func (a *Server) LeaveStep(ctx context.Context, t transfer.Transfer) error {
	if t.State.Terminal() {
		return nil
	}
	at := t.Now.Add(a.RetryFirst)
	if t.NextAttemptAt != nil {
		at = *t.NextAttemptAt
	}
	return a.Tasks.Step(context.WithoutCancel(ctx), t.ReqID, t.RetryCount, at)
}
