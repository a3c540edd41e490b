package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

type adjustRequest struct {
	Move   string `json:"move"` // journal or balance
	Reason string `json:"reason"`
}

type adjustmentResponse struct {
	FindingID int64                `json:"finding_id"`
	Side      transfer.AccountType `json:"side"`
	Op        transfer.Op          `json:"op"` // operation id of the journal line
	UserID    int64                `json:"user_id"`
	AssetID   int32                `json:"asset_id"`
	Units     string               `json:"units"`
	By        string               `json:"by"`
	At        time.Time            `json:"at"`
}

// adjust makes a balance equal to the sum of its journal again, by an operator's decision. It runs
// once for a finding and by exactly the finding's difference.
func (a *TransferServer) adjust(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	id, ok := serve.Digits(r.PathValue("id"))
	if !ok {
		return web.FieldProblem("id", "is no number of a finding: want one that GET /admin/v1/conservation shows")
	}
	body, err := web.Decode[adjustRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	if body.Move != "journal" && body.Move != "balance" {
		return web.FieldProblem("move", "is %.40q: want journal, which leaves the balance, or balance, which leaves the journal's sum", body.Move)
	}
	reason, err := reasonOf(body.Reason)
	if err != nil {
		return err
	}
	if mustPropose(r) {
		what := proposed{"adjust", idSubject("finding", id), reason, fmt.Sprintf("makes balance and journal of finding %d equal, by moving the %s", id, body.Move)}
		var now struct{ Standing, Adjusted bool }
		switch _, err := a.actState(r.Context(), what, &now); {
		case err != nil:
			return err
		case now.Adjusted:
			return checks.ErrAdjusted
		case !now.Standing:
			return checks.ErrNoFinding
		}
		return a.propose(w, r, what)
	}
	order := checks.AdjustmentOrder{FindingID: id, Journal: body.Move == "journal", By: operator, Reason: reason}
	made, err := a.Checks.Adjust(context.WithoutCancel(r.Context()), order, a.adjustTrading)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "an account was adjusted", "finding", id, "side", made.Side, "op", made.Op, "userId", made.Account.UserID,
		"assetId", made.Account.AssetID, "units", made.Units, "by", operator, "why", reason)
	web.Reply(w, r, http.StatusOK, adjustmentResponse{
		id, made.Side, made.Op, made.Account.UserID, made.Account.AssetID, strconv.FormatUint(made.Units, 10), operator, made.At.UTC(),
	})
	return nil
}

// adjustTrading makes the adjustment in the trading core. A refusal is returned as an error of package
// conservation.
func (a *TransferServer) adjustTrading(ctx context.Context, op transfer.Op, c transfer.Call, found uint64) error {
	err := a.Adjust(ctx, op, c, found)
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
