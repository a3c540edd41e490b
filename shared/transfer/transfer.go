package transfer

import "time"

// Transfer is a transfer's row. Its times are from the database's clock.
type Transfer struct {
	ID          int64
	ReqID       string
	CID         string // "": none
	UserID      int64
	AssetID     int32
	Asset       string
	Precision   int
	Units       uint64 // in 10^-Precision
	Type        Type
	Payout      *Payout // of a [FundingToChain]
	State       State
	Reason      Reason // why it failed or is refunded; empty otherwise
	RetryCount  int    // postponed attempts in total; never decreases
	Failures    int    // unknown answers in a row, in this state
	LastUnknown string // the last of them

	NextAttemptAt *time.Time // nil: no attempt is planned
	StateAt       time.Time  // since when it has this state
	CreatedAt     time.Time
	UpdatedAt     time.Time
	Now           time.Time // when the row was read
	Foreign       bool      // the row is in a database that is not the one written last
}

// Amount returns the amount as a decimal number.
func (t Transfer) Amount() string { return FormatUnits(t.Units, t.Precision) }

// Call returns the input of the transfer's ledger calls, the same at each attempt.
func (t Transfer) Call() Call {
	return Call{ReqID: t.ReqID, UserID: t.UserID, AssetID: t.AssetID, Units: t.Units, CreatedAt: t.CreatedAt}
}

// InState returns how long the transfer has had its state, by the database's clock.
func (t Transfer) InState() time.Duration { return t.Now.Sub(t.StateAt) }

// NextIn returns the time from the read of the row to the next attempt: 0 if it is due already.
// If no attempt is planned, the next is due a rescue period after the last update.
func (t Transfer) NextIn(rescue time.Duration) time.Duration {
	due := t.UpdatedAt.Add(rescue)
	if t.NextAttemptAt != nil {
		due = *t.NextAttemptAt
	}
	return max(due.Sub(t.Now), 0)
}
