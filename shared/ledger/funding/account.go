package funding

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Status is what an account may do.
type Status string

// The statuses: a FROZEN account takes money and gives none, a DISABLED one only
// takes its refunds.
const (
	Active   Status = "ACTIVE"
	Frozen   Status = "FROZEN"
	Disabled Status = "DISABLED"
)

// ErrNoAccount reports that a user has no account in an asset.
var ErrNoAccount = errors.New("no such account")

// Account is a Funding account as it is.
type Account struct {
	Available string // a decimal number with eight places, as balances_tb has it
	Status    Status
}

// Account is the user's account in the asset, or [ErrNoAccount].
func (l *Ledger) Account(ctx context.Context, userID int64, assetID int32) (a Account, err error) {
	err = l.db.QueryRow(ctx, `
select available::text, status
  from balances_tb
 where user_id = $1 and asset_id = $2 and account_type = 'FUNDING'`, userID, assetID).Scan(&a.Available, &a.Status)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNoAccount
	}
	if err != nil {
		return Account{}, fmt.Errorf("read account of user %d in asset %d: %w", userID, assetID, err)
	}
	return a, nil
}

// SetStatus is an operator's: it waits for a call that holds the account, and the
// next call goes by it. It changes no balance. [ErrNoAccount] where there is none.
func (l *Ledger) SetStatus(ctx context.Context, userID int64, assetID int32, s Status) error {
	tag, err := l.db.Exec(ctx, `
update balances_tb
   set status = $3, updated_at = clock_timestamp()
 where user_id = $1 and asset_id = $2 and account_type = 'FUNDING'`, userID, assetID, s)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNoAccount
	}
	if err != nil {
		return fmt.Errorf("make account of user %d in asset %d %s: %w", userID, assetID, s, err)
	}
	return nil
}
