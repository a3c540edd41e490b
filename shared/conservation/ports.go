package conservation

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Cursor is how far a journal has been read, in its own words. Empty is before the
// first entry.
type Cursor string

// Journal is a side's own record of what it did.
//
// Each entry is read once: a page or a point has exactly those that are not behind
// its cursor already. What two calls return does not depend on who else reads.
//
// A journal that is not the one which a cursor is of, since what was read of it is not
// there any more, fails with [ErrWentBack].
type Journal interface {
	// Page reads what follows a cursor, about limit entries at most, and says how far
	// that was. More says that there was more at that moment; an entry that was
	// committed before a call that ends without more is in what has been read, or
	// will be in the next Point.
	Page(ctx context.Context, after Cursor, limit int) (Page, error)

	// Point reads all that follows a cursor, up to one point at or after the call,
	// and every balance as it was at that point.
	Point(ctx context.Context, after Cursor) (Point, error)
}

// Page is a part of a journal.
type Page struct {
	Entries []transfer.Entry
	Scales  []Scale
	Next    Cursor
	More    bool
}

// Point is the end of a journal, and the balances there.
type Point struct {
	Entries  []transfer.Entry
	Scales   []Scale
	Next     Cursor
	Balances map[Account]Sum
}

// Payouts is the journal of the chain: a Deposit for each payout whose managed
// transaction is CONFIRMED with proof of payment, under the transfer's req_id, with
// its user, asset and units. Every payout that was COMMITTED before a call is in what
// has been read when pages end. Page is as in [Journal].
type Payouts interface {
	Page(ctx context.Context, after Cursor, limit int) (Page, error)
}

// Cursors are how far a run has read.
type Cursors struct {
	Transfers Cursor `json:"transfers"`
	Funding   Cursor `json:"funding"`
	Trading   Cursor `json:"trading"`
	Payouts   Cursor `json:"payouts"`
}

// Checkpoint is what runs have come to, together. Version goes up with each step
// that is stored; a step is stored only on the version that it was made from.
type Checkpoint struct {
	Generation int64
	Version    int64
	Full       bool // of a full run that has not come to its end
	Cursors    Cursors
	Began      time.Time // by the database, before the run read anything
}

// Step is what is stored at once, or not at all.
type Step struct {
	From     Checkpoint
	Cursors  Cursors
	Moved    map[Side]map[Account]Sum // added to the sums
	Evidence map[string]*Evidence     // in place of what was known
	Scales   []Scale                  // beside those that are known
	Found    []Finding
	Verdict  bool     // every balance and scale was looked at: those that are right again stand no longer
	Chain    bool     // and so was what was read of the chain itself
	Owed     []string // payouts that became COMMITTED: the chain must have a payment of each
	Lost     bool     // a journal is not the one that was read: no run goes on from here, and the next is a full one
	Mode     Mode     // of halting, for those of Found that do not stand yet
	Halts    int      // the most to be made, each for one of Found, but the last for all that are left; at least 1
}

// Stored is what became of a step.
type Stored struct {
	Checkpoint Checkpoint
	Fresh      []Finding // those of Found that did not stand before
	Halts      []Halt    // that were made: whatever is fresh is in one of them
}

// ErrSuperseded reports that another run has stored a step in between. Nothing was
// stored.
var ErrSuperseded = errors.New("another run of the check was faster")

// Book keeps checkpoints, sums, evidence, findings and halts.
type Book interface {
	// Begin is where an incremental run goes on, or a full one: from nothing, or
	// from where another full run of the last hour has stopped. Where there is nothing
	// to go on from an incremental run is a full one.
	Begin(ctx context.Context, full bool) (Checkpoint, error)

	// Claims reads transfers that became final, as [Journal].Page does entries.
	Claims(ctx context.Context, after Cursor, limit int) (Claims, error)

	// Known reads what the checkpoint knows of the requests; with open, of all that
	// is open, and of the scales of assets, too. It fails with [ErrSuperseded] if the checkpoint has moved.
	Known(ctx context.Context, at Checkpoint, requests []string, open bool) (Known, error)

	// Sums reads the sums of a side. It fails with [ErrSuperseded] if the checkpoint
	// has moved.
	Sums(ctx context.Context, at Checkpoint, side Side) (map[Account]Sum, error)

	// Store stores a step, its findings and its halts, in one commit, if the
	// checkpoint has not moved; otherwise it fails with [ErrSuperseded].
	Store(ctx context.Context, s Step) (Stored, error)

	// Finish puts a full run's checkpoint in the place of the one that incremental
	// runs go on from. What was found before the run began, and not by it, stands no
	// longer.
	Finish(ctx context.Context, c Checkpoint) error
}

// Claims are transfers that became final.
type Claims struct {
	Claims []Claim
	Next   Cursor
	More   bool
}
