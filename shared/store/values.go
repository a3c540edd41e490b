package store

import (
	"math"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// micros truncates to microseconds, the precision of Postgres.
func micros(t *time.Time) *time.Time {
	return orNull(t, func(t *time.Time) time.Time { return t.Truncate(time.Microsecond) })
}

// orNull is the value of what p points to; nil, which is null in the database, if p is nil.
func orNull[T, Value any](p *T, value func(*T) Value) *Value {
	if p == nil {
		return nil
	}
	return new(value(p))
}

// decimalOrNull is the amount as a decimal text; nil: there is none.
func decimalOrNull(n *big.Int) *string { return orNull(n, (*big.Int).String) }

// bigintOrNull is [Bigint] of what n points to; nil: there is none.
func bigintOrNull(n *uint64) *int64 { return orNull(n, func(n *uint64) int64 { return Bigint(*n) }) }

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
