package store

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// micros truncates to microseconds, the precision of Postgres.
func micros(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	r := t.Truncate(time.Microsecond)
	return &r
}

// hashText is a target of a scan for a hash in a text column.
type hashText struct{ *txmanager.Hash }

// ScanText implements [pgtype.TextScanner].
func (h hashText) ScanText(text pgtype.Text) (err error) {
	*h.Hash, err = txmanager.ParseHash(text.String)
	return err
}

// Bigint converts n to a Postgres bigint. A higher nonce is impossible in practice: EIP-2681
// limits nonces to 2^64 - 2, and no account can send 2^63 transactions.
func Bigint(n uint64) int64 {
	return int64(min(n, math.MaxInt64))
}
