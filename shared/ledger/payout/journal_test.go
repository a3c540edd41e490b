package payout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
)

// journal reads all entries, two at a time.
func (h *env) journal() (all []transfer.Entry) {
	h.t.Helper()
	j, cursor := payout.NewJournal(families, h.db.Store), conservation.Cursor("")
	for {
		page := check.Value(j.Page(h.t.Context(), cursor, 2))(h.t)
		all, cursor = append(all, page.Entries...), page.Next
		if !page.More {
			return all
		}
	}
}

// The journal has each paid payout once, with its transfer's user, asset and units, also after
// payloads and receipts were archived. It has no unpaid payout, whatever state its transfer has.
func TestJournalHasEachPaidPayoutOnce(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.deploy(contracts.Token())
	want := []transfer.Entry{}
	for _, a := range []transfer.Asset{coin, token, coin} {
		x := h.due(a)
		h.confirm(x)
		want = append(want, transfer.Entry{ReqID: x.ReqID, Op: transfer.Deposit, UserID: user, AssetID: a.ID, Units: x.Units})
	}
	given := h.due(coin)
	h.giveUp(given.ReqID)
	for range 2 {
		check.Same(t, "journal", h.journal(), want, cmpopts.IgnoreFields(transfer.Entry{}, "Seq", "At"))
		h.archive()
	}
	for _, e := range want {
		h.drive(e.ReqID, transfer.Committed)
	}
}

// archive removes every document from the table.
func (h *env) archive() {
	h.t.Helper()
	for _, statement := range []string{`alter table tx_document disable trigger guard_documents`, `delete from tx_document`} {
		check.OK(h.t)(h.db.DB.Exec(h.t.Context(), statement))
	}
}

// A payment under the coordinator's name without a transfer is in the journal: it is money that no
// ledger gave.
func TestJournalHasPaymentsWithoutATransfer(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	in := h.intentOf(x)
	in.RequestID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	check.OK(t)(h.db.Store.Create(t.Context(), in, 100))
	h.mineUntil(in.RequestID, "CONFIRMED")
	want := []transfer.Entry{{ReqID: in.RequestID, Op: transfer.Deposit}}
	check.Same(t, "journal", h.journal(), want, cmpopts.IgnoreFields(transfer.Entry{}, "Seq", "At"))
}
