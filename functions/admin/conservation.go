package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// checkConservation is the scheduled check at an operator's request.
func (a *TransferServer) checkConservation(w http.ResponseWriter, r *http.Request, c call[struct{}, usertransfers.CheckRequest]) error {
	a.Log.InfoContext(r.Context(), "check of conservation demanded", "operator", c.by, "full", c.body.Full)
	report, err := a.Transfers.Monitor.Check(r.Context(), c.body.Full)
	if err != nil {
		return err
	}
	return web.Reply(w, r, http.StatusOK, usertransfers.ReportOf(report))
}

// showConservation shows an operator the result of the last check and the open halts.
func (a *TransferServer) showConservation(r *http.Request) (out client.Conservation, err error) {
	if out.LastCheck, err = a.lastCheck(r.Context()); err != nil {
		return out, err
	}
	halts, open, err := a.Transfers.Store.OpenHalts(r.Context(), usertransfers.MaxHalts)
	out.OpenHalts, out.Halts = open, serve.ViewsOf(halts, func(h transfers.Halt) client.Halt {
		return client.Halt{ID: h.ID, HaltScope: usertransfers.ScopeOf(string(h.Scope), h.UserID, h.AssetID), Since: h.Since.UTC(), Evidence: h.Evidence}
	})
	return out, err
}

type resumeRequest struct {
	reasonRequest
	Earlier bool `json:"earlier"` // also end the halts that were opened before this one
}

// resume ends one halt by an operator's decision and stores the reason. A halt that was opened after
// the operator read the list stays open.
func (a *TransferServer) resume(w http.ResponseWriter, r *http.Request, c call[int64, resumeRequest]) error {
	if mustPropose(r) {
		what := proposed{"halt-resume", idSubject("halt", c.on), c.reason, fmt.Sprintf("ends halt %d", c.on)}
		if c.body.Earlier {
			what.effect += ", and those that were opened before it"
		}
		return proposeIf(a.Desk, w, r, what, transfers.ErrNotHalted, func(now struct{ ResumedAt *time.Time }) error {
			if now.ResumedAt != nil {
				return transfers.ErrNotHalted
			}
			return nil
		})
	}
	if err := a.Transfers.Store.Resume(r.Context(), c.on, c.by, c.reason, c.body.Earlier); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "transfers resumed", "halt", c.on, "earlier", c.body.Earlier, "operator", c.by, "reason", c.reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// lastCheck reads the result of the last check; nil if none has finished.
func (a *TransferServer) lastCheck(ctx context.Context) (*client.LastCheck, error) {
	last, err := a.Checks.Last(ctx, usertransfers.MaxFindings)
	if err != nil || last == nil {
		return nil, err
	}
	out := &client.LastCheck{At: last.At.UTC(), Result: "ok", Standing: last.Standing, Found: []client.Finding{}}
	if last.Standing > 0 {
		out.Result = "standing"
	}
	for _, f := range last.Found {
		v := usertransfers.FindingOf(f.Finding)
		v.ID, v.At = f.ID, &f.At
		out.Found = append(out.Found, v)
	}
	return out, nil
}

type adjustRequest struct {
	reasonRequest
	Move string `json:"move"` // journal or balance
}

// adjust makes a balance equal to the sum of its journal again, by an operator's decision. It runs
// once for a finding and by exactly the finding's difference.
func (a *TransferServer) adjust(w http.ResponseWriter, r *http.Request, c call[int64, adjustRequest]) error {
	if c.body.Move != "journal" && c.body.Move != "balance" {
		return web.FieldProblem("move", "is %.40q: want journal, which leaves the balance, or balance, which leaves the journal's sum", c.body.Move)
	}
	if mustPropose(r) {
		what := proposed{"adjust", idSubject("finding", c.on), c.reason, fmt.Sprintf("makes balance and journal of finding %d equal, by moving the %s", c.on, c.body.Move)}
		return proposeIf(a.Desk, w, r, what, checks.ErrNoFinding, func(now struct{ Standing, Adjusted bool }) error {
			switch {
			case now.Adjusted:
				return checks.ErrAdjusted
			case !now.Standing:
				return checks.ErrNoFinding
			}
			return nil
		})
	}
	order := checks.AdjustmentOrder{FindingID: c.on, Journal: c.body.Move == "journal", By: c.by, Reason: c.reason}
	made, err := a.Checks.Adjust(context.WithoutCancel(r.Context()), order, a.adjustTrading)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "an account was adjusted", "finding", c.on, "side", made.Side, "op", made.Op, "userId", made.Account.UserID,
		"assetId", made.Account.AssetID, "units", made.Units, "by", c.by, "why", c.reason)
	return web.Reply(w, r, http.StatusOK, client.Adjustment{
		FindingID: c.on, Side: string(made.Side), Op: string(made.Op), UserID: made.Account.UserID, AssetID: made.Account.AssetID,
		Units: strconv.FormatUint(made.Units, 10), By: c.by, At: made.At.UTC(),
	})
}

// adjustTrading makes the adjustment in the trading core. A refusal is returned as an error of package
// conservation.
func (a *TransferServer) adjustTrading(ctx context.Context, op transfer.Op, c transfer.Call, found uint64) error {
	err := a.Trading.Adjust(ctx, op, c, found)
	problem, ok := errors.AsType[*trading.ProblemError](err)
	if !ok {
		return err
	}
	switch problem.Code {
	case wire.AccountMoved.Name:
		return errors.Join(checks.ErrMoved, err)
	case wire.OutOfRange.Name:
		return errors.Join(checks.ErrOutOfRange, err)
	case wire.Contradiction.Name: // the finding already has another adjustment
		return errors.Join(checks.ErrAdjusted, err)
	}
	return err
}
