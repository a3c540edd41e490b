package attacks

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
)

// An attacker in the function that records ends writes that a payout failed, while it is on
// its way. The user gets the money back, and the chain pays it too. The next check of
// conservation finds that, and halts.
func TestAFalseEndOfAPayoutIsFound(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Split: true, Processes: 1, Payouts: true, CheckEvery: -1, BlockTime: 100 * time.Millisecond})
	const user = 7
	h.rich(t, user)
	h.Chain.StopMining()
	if refusal := h.payTo(t, h.bearer(t, user), thiefAddress, "0.5", "payout"); refusal != "" {
		t.Fatalf("the payout: got %s, want it accepted", refusal)
	}
	until := func(what, query string, try func() error) {
		t.Helper()
		h.until(t, "never: "+what, func() bool {
			if err := try(); err != nil {
				t.Logf("%s: %v", what, err)
			}
			return h.count(t, query) > 0
		})
	}
	nothing := func() error { return nil }
	until("the payout is with the node", `select count(*) from managed_tx where caller = 'transfer' and state = 'TRACKING'`, nothing)
	thief := must(pgx.Connect(h.ctx, h.DatabaseURLOf("confirm")))(t)
	defer thief.Close(h.ctx)
	tag, err := thief.Exec(h.ctx, `update managed_tx set state = 'FAILED', sub_state = 'REVERTED', last_error = 'forged', next_check_at = null, confirmed_at = clock_timestamp(), confirmations = '[]', receipt = jsonb_build_object('txHash', tx_hash, 'blockNumber', 1, 'blockHash', tx_hash, 'succeeded', false) where caller = 'transfer' and state = 'TRACKING'`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("the false end: got %v, %v; this test sees nothing where the database refuses it", tag, err)
	}
	until("the payout is given back", `select count(*) from transfers_tb where state = -30`, func() error { return h.RunSweep(h.ctx) })
	h.Chain.StartMining()
	until("a halt", `select count(*) from transfer_halt where resumed_at is null`, func() error { return h.RunConservation(h.ctx) })
	if n := h.count(t, `select count(*) from conservation_finding where kind = 'PAYMENT_DIFFERS'`); n == 0 {
		t.Error("the finding: got another than PAYMENT_DIFFERS")
	}
}
