package payouts

import (
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// raw returns the bytes of a version of the payout's transaction.
func (u *user) raw(reqID, kind string) (bytes []byte) {
	u.T.Helper()
	err := u.DB.QueryRow(u.Ctx, `
select d.bytes
  from managed_tx m
  join tx_version v using (tx_id)
  join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version
 where m.request_id = $1 and v.kind = $2
 order by v.version limit 1`, reqID, kind).Scan(&bytes)
	if err != nil {
		u.T.Fatalf("the %s of %s: %v", kind, reqID, err)
	}
	return bytes
}

// H1d: a reorg removes the block of three payments before it is final. The first was mined although it
// was given up; now its placeholder is mined, and it is refunded. Of the second the placeholder was
// mined; now its payment is, and it is paid. The third has vanished from the chain and the pool, and
// is sent again.
func TestH01ReorgTakesPaymentsBack(t *testing.T) {
	t.Parallel()
	h := own(t, true, stack.Options{Settings: map[string]string{"FENCEPOST_CONFIRMATIONS_REQUIRED": "6"}})
	h.Chain.StopMining()
	refunded, executed, vanished := h.newUser(t, h.coin(), 1_000_000), h.newUser(t, h.token(), 1_000_000), h.newUser(t, h.coin(), 1_000_000)
	all := map[*user]string{}
	for _, u := range []*user{refunded, executed, vanished} {
		all[u] = u.accepted(400_001)
		u.awaitManaged(all[u], "TRACKING/PENDING")
	}
	for _, u := range []*user{refunded, executed} {
		u.Want("given up", u.resolve(all[u]), http.StatusOK, "TARGET_PENDING", "")
		u.placeholder(all[u])
	}
	paid, filler := refunded.raw(all[refunded], "ORIGINAL"), executed.raw(all[executed], "PLACEHOLDER")
	check(t, h.Chain.MineExactly(paid, filler, vanished.raw(all[vanished], "ORIGINAL")))
	check(t, h.Chain.Mine(2))
	for u, reqID := range all {
		u.awaitManaged(reqID, "TRACKING/INCLUDED")
		u.Task(reqID)
		equal(t, "included, not final", u.Load(reqID).State, transfer.TargetPending)
	}
	refunded.wantMoney("before the reorg", 599_999, 400_001, 1)

	after := [][][]byte{{refunded.raw(all[refunded], "PLACEHOLDER"), executed.raw(all[executed], "ORIGINAL")}, nil, nil, nil}
	check(t, h.Chain.Reorg(3, after...))
	h.Chain.DropPool()
	refunded.wantMoney("after the reorg", 599_999, 0, 0)
	h.Chain.StartMining()
	refunded.ends(all[refunded], rollback)
	executed.ends(all[executed], happy)
	vanished.ends(all[vanished], happy)
	refunded.wantMoney("in the end", 1_000_000, 0, 0)
	executed.wantMoney("in the end", 599_999, 400_001, 1)
	vanished.wantMoney("in the end", 599_999, 400_001, 1)
}
