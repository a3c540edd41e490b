package payout

import (
	"context"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Journal is the journal of the chain's payments. It has a deposit for each payout that is
// CONFIRMED with proof of payment, or that another transaction proves. It does not depend on the
// coordinator's state of the transfer. Its cursor is a Postgres snapshot.
type Journal struct {
	families chain.Families
	from     *store.Store
}

var _ conservation.Payouts = Journal{}

// NewJournal returns the journal of the payouts in from, whose payers are of the families.
func NewJournal(families chain.Families, from *store.Store) Journal { return Journal{families, from} }

// Page implements [conservation.Payouts]. A payout that is CONFIRMED without proof is no entry.
func (j Journal) Page(ctx context.Context, after conservation.Cursor, limit int) (page conservation.Page, err error) {
	var read []store.ConfirmedPayout
	read, page.Next, page.More, err = j.from.ConfirmedPayouts(ctx, after, limit)
	for _, one := range read {
		if e, ok := j.entry(one); ok {
			page.Entries = append(page.Entries, e)
		}
	}
	return page, err
}

// entry returns the deposit that a payout proves. A payment under the name of a transfer that is
// not recorded is an entry without a user, so that the check finds it.
func (j Journal) entry(one store.ConfirmedPayout) (transfer.Entry, bool) {
	e := transfer.Entry{
		Seq: uint64(one.Number), ReqID: one.ReqID, Op: transfer.Deposit,
		UserID: one.UserID, AssetID: one.AssetID, Units: one.Units, At: one.At.UTC(),
	}
	return e, one.Proof || one.UserID == 0 || isPaid(j.families, one.Terms, one.Payload, one.Receipt)
}
