package acceptance

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// wantReplacedBy checks the versions that the record names: its hash is the mined version's, and
// replaced names the same version if it is not the first.
func (b bench) wantReplacedBy(t *testing.T, name, txID, kind string) {
	t.Helper()
	b.wantEnd(t, name, txID, "CONFIRMED", kind)
	var hash, replaced, mined *string
	if err := b.DB.QueryRow(b.ctx, `
		select m.tx_hash, m.replaced_by_hash, (select v.tx_hash from tx_version v where v.tx_id = m.tx_id and v.kind = $2)
		  from managed_tx m
		 where m.tx_id = $1`, txID, kind).Scan(&hash, &replaced, &mined); err != nil {
		t.Fatal(err)
	}
	var want *string
	if kind == "BUMP" {
		want = mined
	}
	if text(hash) != text(mined) || text(replaced) != text(want) {
		t.Errorf("%s: got hash %s, replaced by %s; want %s, %s", name, text(hash), text(replaced), text(mined), text(want))
	}
}

// Any version can be the one that is mined, and a reorg can change which. The version in the last
// block decides. It is the transaction's hash, and its replacement if it is not the first version. A
// reorg that removes it causes no immediate bid: the newest version is sent again.
func TestAnyVersionMayBeMined(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Submitters: 4, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "1s", "FENCEPOST_GASBUMP_MAX_ATTEMPTS": "1",
		"FENCEPOST_CONFIRMATIONS_REQUIRED": "6", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	})})
	b.Chain.StopMining()
	var first, second, back, gone string
	for i, id := range []*string{&first, &second, &back, &gone} {
		*id = b.postUntilAnswered(t, transfer(b.Submitters()[i], "r"))
		b.replaced(t, *id, "BUMP")
	}
	check(t, b.Chain.MineExactly(b.raw(t, first, "ORIGINAL"), b.raw(t, second, "ORIGINAL"), b.raw(t, back, "BUMP"), b.raw(t, gone, "ORIGINAL")))
	included := func(kinds map[string]string) {
		t.Helper()
		for id, kind := range kinds {
			b.awaitCount(t, id+" is not included by "+kind, 1, `select count(*) from managed_tx m join tx_version v on v.tx_hash = m.receipt ->> 'txHash'
					where m.tx_id = $1 and m.sub_state = 'INCLUDED' and v.kind = $2`, id, kind)
		}
	}
	included(map[string]string{first: "ORIGINAL", second: "ORIGINAL", back: "BUMP", gone: "ORIGINAL"})
	check(t, b.Chain.Reorg(1, [][]byte{b.raw(t, first, "ORIGINAL"), b.raw(t, second, "BUMP"), b.raw(t, back, "ORIGINAL")}, nil))
	b.Chain.DropPool()
	included(map[string]string{first: "ORIGINAL", second: "BUMP", back: "ORIGINAL"})
	b.Chain.StartMining()
	b.ends(t, b.each(1))
	b.wantReplacedBy(t, "the first all along", first, "ORIGINAL")
	b.wantReplacedBy(t, "the first, then its replacement", second, "BUMP")
	b.wantReplacedBy(t, "its replacement, then the first", back, "ORIGINAL")
	b.wantReplacedBy(t, "the first, then neither", gone, "BUMP")
}

// While a bound stops the next bid, the last version is sent again and the reason stays. The history
// has the reason once, and the gauge for the alert never falls.
func TestAHeldBidSaysWhyOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{
		"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "1s", "FENCEPOST_GASBUMP_BUDGET_PER_DAY": "1",
		"FENCEPOST_TELEMETRY_PROMETHEUS": "true",
	}), Processes: 1})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	b.postUntilAnswered(t, transfer(s, "held"))
	held := func(more int) {
		t.Helper()
		b.awaitCount(t, fmt.Sprintf("never held with %d broadcasts", more), 1, `select count(*) from managed_tx where last_error like 'gas bump: %budget%' and submit_attempts >= $1`, more)
	}
	held(1)
	held(5)
	b.wantCount(t, "the reason came", 1, `select count(*) from (select reason, lag(reason) over (order by at) as before from tx_history) as h
		where reason like 'gas bump: %' and before is distinct from reason`)
	b.gauges(t, map[string]float64{"fencepost_gas_bump_held": 1})
	b.wantCount(t, "versions beyond the budget", 1, `select count(*) from tx_version`)
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	b.gauges(t, map[string]float64{"fencepost_gas_bump_held": 0})
}
