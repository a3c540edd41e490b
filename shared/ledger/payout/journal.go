package payout

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/conservation/snapshot"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Confirmed reads the payouts that are CONFIRMED. [store.Store] does.
type Confirmed interface {
	// ConfirmedPayouts reads about limit of what a snapshot has not seen, in the order
	// of the transactions that wrote them, and the snapshot that it was read by.
	ConfirmedPayouts(ctx context.Context, seen string, limit int) ([]store.ConfirmedPayout, string, error)
}

// Journal is what the chain has paid: a deposit for each payout that is CONFIRMED with
// proof of payment, or that another transaction proves, whoever has asked for it since. It does not depend on what the
// coordinator made of it. Its cursor is a snapshot of Postgres.
type Journal struct{ from Confirmed }

var _ conservation.Payouts = Journal{}

// NewJournal is the journal of what from has.
func NewJournal(from Confirmed) Journal { return Journal{from} }

// Page implements [conservation.Payouts]. What is CONFIRMED without proof is no entry.
func (j Journal) Page(ctx context.Context, after conservation.Cursor, limit int) (conservation.Page, error) {
	seen, err := snapshot.Parse(string(after))
	if err != nil {
		return conservation.Page{}, fmt.Errorf("read the journal of payouts: %w", err)
	}
	read, text, err := j.from.ConfirmedPayouts(ctx, seen.String(), limit)
	if err != nil {
		return conservation.Page{}, err
	}
	now, err := snapshot.Parse(text)
	if err != nil {
		return conservation.Page{}, fmt.Errorf("read the journal of payouts: %w", err)
	}
	page := conservation.Page{More: len(read) >= limit}
	if page.More {
		now = seen.Upto(read[len(read)-1].Written, now)
	}
	page.Next = conservation.Cursor(now.String())
	for _, one := range read {
		if e, ok := entry(one); ok {
			page.Entries = append(page.Entries, e)
		}
	}
	return page, nil
}

// entry is the deposit that one proves. What was paid under the name of a transfer that
// is not on record is an entry too, of nobody's: the check must see it.
func entry(one store.ConfirmedPayout) (transfer.Entry, bool) {
	e := transfer.Entry{
		Seq: uint64(one.Number), ReqID: one.ReqID, Op: transfer.Deposit,
		UserID: one.UserID, AssetID: one.AssetID, Units: one.Units, At: one.At.UTC(),
	}
	return e, one.Proof || one.UserID == 0 || paid(one.Terms, one.Payload, one.Receipt) == nil
}
