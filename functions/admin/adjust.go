package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

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
func (a *TransferServer) adjust(w http.ResponseWriter, r *http.Request, c call[int64, adjustRequest]) error {
	if c.body.Move != "journal" && c.body.Move != "balance" {
		return web.FieldProblem("move", "is %.40q: want journal, which leaves the balance, or balance, which leaves the journal's sum", c.body.Move)
	}
	reason, err := reasonOf(c.body.Reason)
	if err != nil {
		return err
	}
	if mustPropose(r) {
		what := proposed{"adjust", idSubject("finding", c.on), reason, fmt.Sprintf("makes balance and journal of finding %d equal, by moving the %s", c.on, c.body.Move)}
		return proposeIf(a.Desk, w, r, what, func(now struct{ Standing, Adjusted bool }, _ bool) error {
			switch {
			case now.Adjusted:
				return checks.ErrAdjusted
			case !now.Standing:
				return checks.ErrNoFinding
			}
			return nil
		})
	}
	order := checks.AdjustmentOrder{FindingID: c.on, Journal: c.body.Move == "journal", By: c.by, Reason: reason}
	made, err := a.Checks.Adjust(context.WithoutCancel(r.Context()), order, a.adjustTrading)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "an account was adjusted", "finding", c.on, "side", made.Side, "op", made.Op, "userId", made.Account.UserID,
		"assetId", made.Account.AssetID, "units", made.Units, "by", c.by, "why", reason)
	web.Reply(w, r, http.StatusOK, adjustmentResponse{
		c.on, made.Side, made.Op, made.Account.UserID, made.Account.AssetID, strconv.FormatUint(made.Units, 10), c.by, made.At.UTC(),
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
