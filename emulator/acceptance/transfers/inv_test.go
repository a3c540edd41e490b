package transfers

import (
	"math/big"
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/transfer"
)

// conserved requires that the user's balances on both sides sum to what came from outside according to
// the two journals, and that this is want.
func (u *user) conserved(want int64) {
	u.T.Helper()
	evidence := must(money.ReadEvidence(u.Ctx, money.Run{Database: u.Database, Core: u.Core.Ledger()}))(u.T)
	seen := false
	for at, outside := range evidence.Outside() {
		if at.UserID != u.ID {
			continue
		}
		seen = true
		funding := evidence.Balance(money.Account{Side: transfer.Funding, UserID: u.ID, AssetID: at.AssetID})
		trading := evidence.Balance(money.Account{Side: transfer.Spot, UserID: u.ID, AssetID: at.AssetID})
		has := new(big.Int).Add(funding, trading)
		if has.Cmp(outside) != 0 || has.Cmp(big.NewInt(want)) != 0 {
			u.T.Errorf("asset %d: got %s in Funding and %s in Trading, %s from outside; want %d in all", at.AssetID, funding, trading, outside, want)
		}
	}
	if !seen {
		u.T.Errorf("user %d is in neither ledger", u.ID)
	}
}

// INV-001: funds are conserved after a transfer.
func TestINV001NormalTransfer(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 700, 300)
	u.conserved(1000)
	for _, from := range sides {
		u.committed(from, other(from), "0.000123")
		u.conserved(1000)
	}
}

// INV-002: funds are conserved after a transfer that failed.
func TestINV002FailedTransfer(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 700, 300)
	for _, from := range sides {
		a := u.post(from, other(from), "1")
		u.Want("short", a, http.StatusUnprocessableEntity, "FAILED", "INSUFFICIENT_BALANCE")
		u.conserved(1000)
		u.wantUnits("short", 700, 300)
	}
}

// INV-003: funds are conserved after a transfer that was rolled back.
func TestINV003Rollback(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 700, 300)
		u.status(other(from), "DISABLED")
		a := u.post(from, other(from), "0.000123")
		u.Want("rolled back", a, http.StatusUnprocessableEntity, transfer.RolledBack.String(), "ACCOUNT_DISABLED")
		u.conserved(1000)
		u.wantUnits("rolled back", 700, 300)
	}
}
