package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

type stepRequest struct {
	ReqID string `json:"req_id"`
	Swept bool   `json:"swept"` // the next sweep makes another
}

// stepFailed makes the task come again. It is neither 429 nor 503, and has no
// Retry-After: by these Cloud Tasks holds back the whole queue, and one transfer that
// always fails would hold back all others.
var stepFailed = web.Code{Name: "STEP_FAILED", Status: http.StatusInternalServerError}

// stepTransfer carries a transfer as far as it gets. It answers 204 whenever nothing
// is owed, or a later task or the sweep has it; anything else makes the task come
// again.
func (a *App) stepTransfer(w http.ResponseWriter, r *http.Request) error {
	body, err := web.Decode[stepRequest](w, r, a.config.HTTP.MaxBodyBytes)
	if err != nil {
		return err
	}
	a.log.DebugContext(r.Context(), "task", "reqId", body.ReqID, "function", "transfer",
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	err = a.step(r.Context(), body.ReqID)
	switch {
	case err != nil && !body.Swept:
		return &web.Problem{Code: stepFailed, Detail: "the transfer's state is in doubt: the task comes again", Cause: err}
	case err != nil:
		a.log.ErrorContext(r.Context(), "a sweep's step failed: the next sweep tries again", "reqId", body.ReqID, "error", err.Error())
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// step drives, and leaves a task for what comes next. It returns an error where that
// is not known to be somebody's.
func (a *App) step(ctx context.Context, reqID string) error {
	ctx, cancel := context.WithTimeout(ctx, a.config.Tasks.DispatchDeadline-time.Second)
	defer cancel()
	t, err := a.transfers.coordinator.Drive(ctx, reqID)
	switch {
	case errors.Is(err, transfer.ErrNotFound): // coming again would not help
		a.log.ErrorContext(ctx, "task of an unknown transfer dropped", "reqId", reqID)
		return nil
	case errors.Is(err, transfer.ErrForeign): // the sweep has it, once the database is accepted
		a.log.ErrorContext(ctx, "nothing is driven in a restored database before it is accepted", "reqId", reqID)
		return nil
	case err != nil:
		return err
	}
	a.points.At("transfer.driven")
	return a.leaveStep(ctx, t)
}

// leaveStep makes the task of t's next step, unless t has come to its end. It does so
// for a caller that has left, too. Where nobody has planned an attempt, since a write
// failed or another worker is at it, one is made soon: asking too often does no harm.
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

// dueMost is how many transfers the sweep takes at a time. Each time it reads all
// that are open.
const dueMost = 10_000

// sweepTransfers makes tasks for the transfers that are overdue and those whose worker
// is lost, each once, until all were taken or ctx ends; and tells a person of those
// that are late.
func (a *App) sweepTransfers(ctx context.Context, out *sweepResponse) error {
	failures := []error{a.within(ctx, 20, a.alarm)}
	var began time.Time
	for ctx.Err() == nil {
		found, now, err := a.transfers.store.Due(ctx, a.transfers.rules.RescueAfter, dueMost, began)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if began.IsZero() {
			began = now
		}
		if len(found) > 0 {
			a.points.At("transfer.swept")
		}
		out.Transfers += len(found)
		failures = append(failures, a.sweepSteps(ctx, out, found, began))
		if len(found) < dueMost {
			break
		}
	}
	return errors.Join(failures...)
}

// sweepSteps makes a task for each, and says how many it could not make.
func (a *App) sweepSteps(ctx context.Context, out *sweepResponse, found []transfers.Due, began time.Time) error {
	var enqueued atomic.Int64
	failed, first := makeTasks(ctx, found, func(d transfers.Due) error {
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

// alarmsMost is how many transfers of each alert, and how many users, one sweep tells
// of by name.
const alarmsMost = 100

// alarm tells a person of transfers whose money has been in flight for too long, and
// of users with unusually many.
func (a *App) alarm(ctx context.Context) error {
	pending, refunds, err := a.transfers.store.Alarming(ctx, a.transfers.rules, alarmsMost)
	if err == nil {
		a.tellLate(ctx, "MON-001", transfer.TargetPending, "withdrawn, and not deposited for too long", pending)
		a.tellLate(ctx, "MON-002", transfer.Compensating, "refused, and the refund fails again and again", refunds)
	}
	busy, busyErr := a.transfers.store.Busy(ctx, time.Minute, a.config.Transfer.UnusualPerMinute, alarmsMost)
	for _, b := range busy {
		a.log.WarnContext(ctx, "unusually many transfers of one user in a minute: find out whether that is the user",
			"alert", "MON-004", "userId", b.UserID, "transfers", b.Transfers, "usual", a.config.Transfer.UnusualPerMinute)
	}
	return errors.Join(err, busyErr)
}

func (a *App) tellLate(ctx context.Context, alert string, state transfer.State, what string, late transfers.Late) {
	telemetry.TransferStuck.Record(ctx, int64(late.Longest/time.Second), telemetry.State(state.String()))
	for _, t := range late.Newest {
		a.log.Log(ctx, telemetry.LevelCritical, what+": look at GET /admin/v1/transfers/{req_id}/why",
			"alert", alert, "reqId", t.ReqID, "transferId", t.ID, "state", state.String(), "inState", t.InState().Round(time.Second).String(),
			"failures", t.Failures, "nextAttemptAt", t.NextAttemptAt, "unknown", cmp.Or(t.LastUnknown, "nobody has answered yet"))
	}
	if more := late.Count - len(late.Newest); more > 0 {
		a.log.Log(ctx, telemetry.LevelCritical, what+": more transfers, which came before those that are named",
			"alert", alert, "state", state.String(), "more", more, "longest", late.Longest.Round(time.Second).String())
	}
}
