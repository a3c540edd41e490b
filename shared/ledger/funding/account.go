package funding

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Status decides which operations an account accepts.
type Status string

// The statuses: a FROZEN account accepts deposits and refunds, a DISABLED one only refunds.
const (
	Active   Status = "ACTIVE"
	Frozen   Status = "FROZEN"
	Disabled Status = "DISABLED"
)

// ErrNoAccount reports that a user has no account in an asset.
var ErrNoAccount = errors.New("no such account")

// Account is a Funding account as read.
type Account struct {
	Available string // a decimal number with eight places, as stored in balances_tb
	Status    Status
}

// Account returns the user's account in the asset, or [ErrNoAccount].
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

// SetStatus changes the status of an account, never its balance. It waits for a call that holds the
// account's lock; the next call sees the new status. It returns [ErrNoAccount] if there is none.
func (l *Ledger) SetStatus(ctx context.Context, userID int64, assetID int32, s Status) error {
	tag, err := l.db.Exec(ctx, `
update balances_tb
   set status = $3, updated_at = clock_timestamp()
 where user_id = $1 and asset_id = $2 and account_type = 'FUNDING'`, userID, assetID, s)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNoAccount
	}
	if err != nil {
		return fmt.Errorf("set account of user %d in asset %d to %s: %w", userID, assetID, s, err)
	}
	return nil
}
