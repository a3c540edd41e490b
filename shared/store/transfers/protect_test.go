package transfers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

const secondPayer = "eip155:1337:0x00000000000000000000000000000000000000a2"

// H1a: a payout in INIT does not begin while its payer is in PROTECT, however often and by whom it is
// driven. It expires there, or begins once the payer is released. Other transfers, and other payers'
// payouts, begin.
func TestH01NoPayoutBeginsInProtect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.offer(t, payable)
	waits, late := r.created(t, payout()), r.created(t, payout())
	other := payable
	other.ID, other.Name, other.Payout = 2, "ETH", &transfer.PayoutTerms{Submitter: secondPayer, ChainID: 1337, Decimals: 18}
	r.offer(t, other)
	fromOther := payout()
	fromOther.Asset, fromOther.Payout.Submitter, fromOther.Payout.Token = "ETH", secondPayer, ""
	begins, inside := r.created(t, fromOther), r.created(t, request(""))
	r.run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, payer)
	r.age(t, late.ReqID, "16 minutes")
	for range 3 {
		if got := r.drive(t, waits.ReqID, transfer.Init); got.NextAttemptAt != nil || got.RetryCount != 0 {
			t.Errorf("in PROTECT: got %+v, want it as it was", got)
		}
	}
	if got := r.drive(t, late.ReqID, transfer.Failed); got.Reason != transfer.Expired {
		t.Errorf("too old, in PROTECT: got %s, want EXPIRED", got.Reason)
	}
	if r.asked != 0 || r.states(t, waits.ReqID) != "0" || !strings.Contains(r.log.String(), "in PROTECT") {
		t.Errorf("in PROTECT: got %d calls, states %s; want none, 0, and a line that says why", r.asked, r.states(t, waits.ReqID))
	}
	r.drive(t, begins.ReqID, transfer.Committed)
	r.drive(t, inside.ReqID, transfer.Committed)
	r.old(t, waits.ReqID, "2 minutes")
	if found, _ := r.due(t, 10, time.Time{}); !slices.Equal(found, []string{waits.ReqID}) {
		t.Errorf("due: got %v, want the one that waits", found)
	}
	r.run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	r.drive(t, waits.ReqID, transfer.Committed)
}

// age makes a transfer older than it is.
func (r rig) age(t testing.TB, reqID, by string) {
	t.Helper()
	r.run(t, `alter table transfers_tb disable trigger user`)
	r.run(t, `update transfers_tb set created_at = created_at - $2::text::interval where req_id = $1`, reqID, by)
	r.run(t, `alter table transfers_tb enable trigger user`)
}
