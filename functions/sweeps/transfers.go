package sweeps

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// maxDueTransfers is how many transfers the sweep takes in one batch. Each batch reads all open
// transfers.
const maxDueTransfers = 10_000

// sweepTransfers enqueues a step for each transfer that is overdue or has lost its worker, until all
// are done or ctx ends.
func (a *Server) sweepTransfers(ctx context.Context, out *sweepResponse) error {
	var failures []error
	var began time.Time
	for ctx.Err() == nil {
		found, now, err := a.Transfers.Due(ctx, a.Rules.RescueAfter, maxDueTransfers, began)
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
		failures = append(failures, enqueueEach(ctx, out, work{"step", "transfers"}, found, func(reqID string) (bool, error) { return a.Tasks.SweepTransfer(ctx, reqID, began) }))
		if len(found) < maxDueTransfers {
			break
		}
	}
	return errors.Join(failures...)
}

// maxAlarms is the most transfers per alert, and the most users, that one sweep names.
const maxAlarms = 100

// alarm alerts about transfers whose money has been in flight for too long.
func (a *Server) alarm(ctx context.Context) error {
	pending, refunds, err := a.Transfers.Alarming(ctx, a.Rules, maxAlarms)
	if err == nil {
		a.tellLate(ctx, "MON-001", transfer.TargetPending, "withdrawn, and not deposited for too long", pending)
		a.tellLate(ctx, "MON-002", transfer.Compensating, "refused, and the refund fails again and again", refunds)
	}
	return err
}

// warnOfBusy alerts about users with unusually many transfers.
func (a *Server) warnOfBusy(ctx context.Context) error {
	busy, err := a.Transfers.Busy(ctx, time.Minute, a.UnusualPerMinute, maxAlarms)
	for _, b := range busy {
		a.Log.WarnContext(ctx, "unusually many transfers of one user in a minute: find out whether that is the user",
			"alert", "MON-004", "userId", b.UserID, "transfers", b.Transfers, "usual", a.UnusualPerMinute)
	}
	return err
}

func (a *Server) tellLate(ctx context.Context, alert string, state transfer.State, what string, late transfers.Late) {
	telemetry.TransferStuck.Record(ctx, late.Longest.Seconds(), telemetry.State(state.String()))
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

// maxDueActs is how many acts on accounts one sweep repeats.
const maxDueActs = 1000

// sweepActs enqueues a repeat of each act on an account whose answer is not known.
func (a *Server) sweepActs(ctx context.Context, out *sweepResponse) error {
	found, began, err := a.Transfers.DueActs(ctx, maxDueActs)
	if err != nil {
		return err
	}
	out.Acts = len(found)
	return enqueueEach(ctx, out, work{"repeat", "acts"}, found, func(id int64) (bool, error) { return a.Tasks.SweepAct(ctx, id, began) })
}
