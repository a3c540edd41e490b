package conservation

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Cursor is the position up to which a journal was read, in the journal's own format. Empty is
// before the first entry.
type Cursor string

// Journal is a side's own record of its operations.
//
// Each entry is read once: a page or a point has exactly the entries after its cursor. The result
// does not depend on other readers.
//
// A journal that has lost lines which the cursor covers fails with [ErrWentBack].
type Journal interface {
	// Page reads the entries after a cursor, about limit at most, and returns the new cursor. More
	// reports whether there were more at that moment. An entry that was committed before a call
	// without more is in the pages read so far, or in the next Point.
	Page(ctx context.Context, after Cursor, limit int) (Page, error)

	// Point reads all entries after a cursor up to one point at or after the call, and each balance
	// at that point.
	Point(ctx context.Context, after Cursor) (Point, error)
}

// Page is a part of a journal. Only that of the transfers that became final has Claims, and it has no Entries.
type Page struct {
	Entries []transfer.Entry
	Scales  []Scale
	Claims  []Claim
	Next    Cursor
	More    bool
}

// Point is the last page of a journal, and the balances at its end.
type Point struct {
	Page
	Balances map[Account]Sum
}

// Payouts is the journal of the chain. It has a Deposit for each payout whose managed transaction
// is CONFIRMED with proof of payment, under the transfer's req_id, with its user, asset and units.
// When pages end, each payout that was COMMITTED before the call has been read. Page is as in
// [Journal].
type Payouts interface {
	Page(ctx context.Context, after Cursor, limit int) (Page, error)
}

// Cursors hold the position of a run in each journal.
type Cursors struct {
	Transfers Cursor `json:"transfers"`
	Funding   Cursor `json:"funding"`
	Trading   Cursor `json:"trading"`
	Payouts   Cursor `json:"payouts"`
}

// Checkpoint is the common result of all runs so far. Version increases with each stored step. A
// step is stored only on the version that it was made from.
type Checkpoint struct {
	Generation int64
	Version    int64
	Full       bool // of a full run that is not completed
	Cursors    Cursors
	Began      time.Time // by the database's clock, before the run read anything
}

// Step is stored in one commit.
type Step struct {
	From     Checkpoint
	Cursors  Cursors
	Moved    map[Side]map[Account]Sum // added to the sums
	Evidence map[string]*Evidence     // replaces the known evidence
	Scales   []Scale                  // added to the known ones
	Found    []Finding
	Verdict  bool     // every balance and scale was checked: findings that no longer hold are closed
	Chain    bool     // the chain's payments were checked too
	Owed     []string // payouts that became COMMITTED: the chain must have a payment for each
	Lost     bool     // a journal has lost lines: no run continues from here, and the next is a full one
	Mode     Mode     // for those of Found that are not open yet
	Halts    int      // maximum of halts, each for one of Found, the last for all remaining; at least 1
}

// Stored is the result of storing a step.
type Stored struct {
	Checkpoint Checkpoint
	Fresh      []Finding // those of Found that were not open before
	Halts      []Halt    // that were made; together they cover Fresh
}

// ErrSuperseded reports that another run has stored a step in between. Nothing was stored.
var ErrSuperseded = errors.New("another run of the check has stored a step first")

// Store is the port to Postgres: it stores checkpoints, sums, evidence, findings and halts.
type Store interface {
	// Begin returns the checkpoint from which an incremental run continues, or a full one. A full
	// run begins from nothing, or continues another full run of the last hour. Without a checkpoint
	// an incremental run becomes a full one.
	Begin(ctx context.Context, full bool) (Checkpoint, error)

	// Claims reads transfers that became final, with the same guarantees as [Journal].Page.
	Claims(ctx context.Context, after Cursor, limit int) (Page, error)

	// Known reads the checkpoint's evidence about the requests. With open it also reads the
	// evidence of all open requests, and the scales of assets. It fails with [ErrSuperseded] if the
	// checkpoint has changed.
	Known(ctx context.Context, at Checkpoint, requests []string, open bool) (Known, error)

	// Sums reads the sums of a side. It fails with [ErrSuperseded] if the checkpoint has changed.
	Sums(ctx context.Context, at Checkpoint, side Side) (map[Account]Sum, error)

	// Store stores a step with its findings and halts in one commit, if the checkpoint is
	// unchanged. Otherwise it fails with [ErrSuperseded].
	Store(ctx context.Context, s Step) (Stored, error)

	// Finish makes a full run's checkpoint the one from which incremental runs continue. It closes
	// findings that are older than the run and were not found by it.
	Finish(ctx context.Context, c Checkpoint) error
}
