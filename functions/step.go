package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

type stepRequest struct {
	ReqID string `json:"req_id"`
	Swept bool   `json:"swept"` // the next sweep makes another task
}

// stepFailed makes Cloud Tasks retry the task. It is neither 429 nor 503 and has no Retry-After. With
// these, Cloud Tasks would slow the whole queue, so that one failing transfer would delay all others.
var stepFailed = web.Code{Name: "STEP_FAILED", Status: http.StatusInternalServerError}

// stepTransfer drives a transfer as far as possible. It answers 204 when nothing is due, or when a
// later task or the sweep will continue. Any other answer makes Cloud Tasks retry the task.
func (a *App) stepTransfer(w http.ResponseWriter, r *http.Request) error {
	body, err := web.Decode[stepRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	a.Log.DebugContext(r.Context(), "task", "reqId", body.ReqID, "function", "transfer",
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	err = a.step(r.Context(), body.ReqID)
	switch {
	case err != nil && !body.Swept:
		return &web.Problem{Code: stepFailed, Detail: "the transfer's state is in doubt: the task comes again", Cause: err}
	case err != nil:
		a.Log.ErrorContext(r.Context(), "a sweep's step failed: the next sweep tries again", "reqId", body.ReqID, "error", err.Error())
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// step drives a transfer and enqueues its next step. It returns an error if no task or sweep is known
// to continue it.
func (a *App) step(ctx context.Context, reqID string) error {
	ctx, cancel := context.WithTimeout(ctx, a.Deadline-time.Second)
	defer cancel()
	t, err := a.transfers.coordinator.Drive(ctx, reqID)
	switch {
	case errors.Is(err, transfer.ErrNotFound): // a retry would not help
		a.Log.ErrorContext(ctx, "task of an unknown transfer dropped", "reqId", reqID)
		return nil
	case errors.Is(err, transfer.ErrForeign): // the sweep continues it once the database is accepted
		a.Log.ErrorContext(ctx, "nothing is driven in a restored database before it is accepted", "reqId", reqID)
		return nil
	case err != nil:
		return err
	}
	a.Points.At("transfer.driven")
	return a.leaveStep(ctx, t)
}

// leaveStep enqueues the next step of t, unless t is terminal. It does so even if the caller has
// disconnected. If no attempt is planned, a write failed or another worker drives t; then the step
// comes soon. A superfluous step is harmless.
func (a *App) leaveStep(ctx context.Context, t transfer.Transfer) error {
	if t.State.Terminal() {
		return nil
	}
	at := t.Now.Add(a.transfers.rules.RetryFirst)
	if t.NextAttemptAt != nil {
		at = *t.NextAttemptAt
	}
	return a.tasks.Step(context.WithoutCancel(ctx), t.ReqID, t.RetryCount, at)
}

// maxDueTransfers is how many transfers the sweep takes in one batch. Each batch reads all open
// transfers.
const maxDueTransfers = 10_000

// sweepTransfers enqueues a step for each transfer that is overdue or has lost its worker, until all
// are done or ctx ends. It also alerts about late transfers.
func (a *App) sweepTransfers(ctx context.Context, out *sweepResponse) error {
	failures := []error{a.within(ctx, 20, a.alarm)}
	var began time.Time
	for ctx.Err() == nil {
		found, now, err := a.transfers.store.Due(ctx, a.transfers.rules.RescueAfter, maxDueTransfers, began)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if began.IsZero() {
			began = now
		}
		if len(found) > 0 {
			a.Points.At("transfer.swept")
		}
		out.Transfers += len(found)
		failures = append(failures, a.sweepSteps(ctx, out, found, began))
		if len(found) < maxDueTransfers {
			break
		}
	}
	return errors.Join(failures...)
}

// sweepSteps enqueues a step for each transfer, and returns an error that counts the failures.
func (a *App) sweepSteps(ctx context.Context, out *sweepResponse, found []transfers.Due, began time.Time) error {
	var enqueued atomic.Int64
	failed, first := serve.MakeTasks(ctx, found, func(d transfers.Due) error {
		made, err := a.tasks.SweepTransfer(ctx, d.ReqID, began)
		if made {
			enqueued.Add(1)
		}
		return err
	})
	out.Enqueued += int(enqueued.Load())
	if failed > 0 {
		return fmt.Errorf("no step task for %d of %d transfers: %w", failed, len(found), first)
	}
	return nil
}

// maxAlarms is the most transfers per alert, and the most users, that one sweep names.
const maxAlarms = 100

// alarm alerts about transfers whose money has been in flight for too long, and about users with
// unusually many of them.
func (a *App) alarm(ctx context.Context) error {
	pending, refunds, err := a.transfers.store.Alarming(ctx, a.transfers.rules, maxAlarms)
	if err == nil {
		a.tellLate(ctx, "MON-001", transfer.TargetPending, "withdrawn, and not deposited for too long", pending)
		a.tellLate(ctx, "MON-002", transfer.Compensating, "refused, and the refund fails again and again", refunds)
	}
	busy, busyErr := a.transfers.store.Busy(ctx, time.Minute, a.config.Transfer.UnusualPerMinute, maxAlarms)
	for _, b := range busy {
		a.Log.WarnContext(ctx, "unusually many transfers of one user in a minute: find out whether that is the user",
			"alert", "MON-004", "userId", b.UserID, "transfers", b.Transfers, "usual", a.config.Transfer.UnusualPerMinute)
	}
	return errors.Join(err, busyErr)
}

func (a *App) tellLate(ctx context.Context, alert string, state transfer.State, what string, late transfers.Late) {
	telemetry.TransferStuck.Record(ctx, int64(late.Longest/time.Second), telemetry.State(state.String()))
	for _, t := range late.Newest {
		a.Log.Log(ctx, telemetry.LevelCritical, what+": look at GET /admin/v1/transfers/{req_id}/why",
			"alert", alert, "reqId", t.ReqID, "transferId", t.ID, "state", state.String(), "inState", t.InState().Round(time.Second).String(),
			"failures", t.Failures, "nextAttemptAt", t.NextAttemptAt, "unknown", cmp.Or(t.LastUnknown, "nobody has answered yet"))
	}
	if more := late.Count - len(late.Newest); more > 0 {
		a.Log.Log(ctx, telemetry.LevelCritical, what+": more transfers, which came before those that are named",
			"alert", alert, "state", state.String(), "more", more, "longest", late.Longest.Round(time.Second).String())
	}
}
