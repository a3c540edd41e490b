package transfers_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A payout in INIT does not begin while a halt is open for it, or its asset is suspended. It expires
// there, or begins once that is over. Transfers between ledgers, and payouts that the halt does not
// concern, continue.
func TestAHaltHoldsAPayoutThatHasNotBegun(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ halt, resume string }{
		"all":        {`insert into transfer_halt (scope, evidence) values ('all', '{}')`, resumeAll},
		"asset":      {`insert into transfer_halt (scope, asset_id, evidence) values ('asset', 1, '{}')`, resumeAll},
		"user_asset": {`insert into transfer_halt (scope, user_id, asset_id, evidence) values ('user_asset', 7, 1, '{}')`, resumeAll},
		"suspended":  {`update assets_tb set status = 'SUSPENDED' where asset_id = 1`, `update assets_tb set status = 'ACTIVE'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.offer(t, payable)
			waits, late, inside := r.created(t, payout()), r.created(t, payout()), r.created(t, request(""))
			r.run(t, x.halt)
			r.age(t, late.ReqID, "16 minutes")
			for range 2 {
				if got := r.drive(t, waits.ReqID, transfer.Init); got.NextAttemptAt != nil || got.RetryCount != 0 {
					t.Errorf("got %+v, want it as it was", got)
				}
			}
			if got := r.drive(t, late.ReqID, transfer.Failed); got.Reason != transfer.Expired {
				t.Errorf("too old: got %s, want EXPIRED", got.Reason)
			}
			if r.asked != 0 || r.states(t, waits.ReqID) != "0" || !strings.Contains(r.log.String(), "a halt is open") {
				t.Errorf("got %d calls, states %s; want none, 0, and a line that says why", r.asked, r.states(t, waits.ReqID))
			}
			r.drive(t, inside.ReqID, transfer.Committed)
			r.run(t, x.resume)
			r.drive(t, waits.ReqID, transfer.Committed)
		})
	}
}

const resumeAll = `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'o', resume_reason = 'r'`

// A halt of another user's money, or of another asset, stops nothing else.
func TestHaltStopsOnlyItsScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.offer(t, payable)
	goes := r.created(t, payout())
	if err := r.OpenHalt(t.Context(), transfers.Halt{Scope: transfers.UserAsset, UserID: goes.UserID + 1, AssetID: goes.AssetID, Evidence: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	r.drive(t, goes.ReqID, transfer.Committed)
}
