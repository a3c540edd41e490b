package transfer

import "time"

// Transfer is a transfer's row. Times are the database's.
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
	Reason      Reason // why it failed or is given back; empty otherwise
	RetryCount  int    // attempts that were postponed, over its life; never lower
	Failures    int    // unknown answers in a row, in this state
	LastUnknown string // the last of them

	NextAttemptAt *time.Time // nil: nobody has planned one
	StateAt       time.Time  // in this state since
	CreatedAt     time.Time
	UpdatedAt     time.Time
	Now           time.Time // when the row was read
	Foreign       bool      // in a database that is not the one written last
}

// Amount is the amount as a decimal number.
func (t Transfer) Amount() string { return FormatUnits(t.Units, t.Precision) }

// Call is what its ledgers are told, at each attempt the same.
func (t Transfer) Call() Call {
	return Call{ReqID: t.ReqID, UserID: t.UserID, AssetID: t.AssetID, Units: t.Units, CreatedAt: t.CreatedAt}
}

// InState is how long it has been in its state, by the database.
func (t Transfer) InState() time.Duration { return t.Now.Sub(t.StateAt) }

// NextIn is how long after the row was read the next attempt is due: 0 where it is
// due already, and rescue where nobody has planned one.
func (t Transfer) NextIn(rescue time.Duration) time.Duration {
	due := t.UpdatedAt.Add(rescue)
	if t.NextAttemptAt != nil {
		due = *t.NextAttemptAt
	}
	return max(due.Sub(t.Now), 0)
}
