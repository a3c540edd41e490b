package acceptance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// decidedUpon selects what a release decides on and what it writes. It has each table that concurrent
// polls do not write, and of the other tables the columns that polls leave unchanged.
const decidedUpon = `
select coalesce(string_agg(line, E'\n' order by line), '') from (
  select 'tx ' || row (tx_id, state, sub_state, nonce, requested_action, held, queued, last_error)::text from managed_tx
  union all select 'cursor ' || row (submitter, next_nonce)::text from submitter_nonce_cursor
  union all select 'epoch ' || row (submitter, name_epoch)::text from submitter_lease
  union all select 'incident ' || e::text from protect_incident e
  union all select 'version ' || v::text from tx_version v
  union all select 'decision ' || d::text from tx_decision d
  union all select 'history ' || h::text from tx_history h
  union all select 'hold ' || f::text from foreign_hold f
) as t (line)`

// With others matching, a release takes each nonce and request that match one to one. If one
// transaction matches two requests, or two transactions match one request, the release is refused and
// names them. A dry run writes nothing and states what the release then does.
func TestMatchingHoldsInBothDirectionsAndATrialWritesNothing(t *testing.T) {
	t.Parallel()
	windows(t, []int{1, 8}, func(t *testing.T, window int) {
		b := setup(t, stack.Options{Window: window})
		s := b.Submitters()[0]
		one, twin, double, held := common.Address{0xa1}, common.Address{0xb2}, common.Address{0xc3}, common.Address{0xd4}
		b.Chain.StopMining()
		for i := range window { // they take the nonces of the window
			b.post(t, orderTo(s, fmt.Sprintf("held-%d", i), held, 10))
		}
		b.await(t, s, txmanager.Tracking, window)
		for name, to := range map[string]common.Address{"one": one, "twin-a": twin, "twin-b": twin, "double": double} {
			b.post(t, orderTo(s, name, to, 1000))
		}
		b.Chain.DropPool()
		for n, to := range []common.Address{double, double, twin, one} {
			b.payByHand(t, uint64(n), to, 1000)
		}
		b.Chain.StartMining()
		incident := b.inProtect(t, s)
		b.mine(t, 70)

		body := map[string]any{"incident": incident, "mode": "resync", "count": 4, "reason": "paid by hand", "others": "matching"}
		text := b.refusedRelease(t, "what matches more than one", s, body, "nonce 0:", "nonce 1:", "nonce 2:", "double", "twin-a", "twin-b")
		if strings.Contains(text, "nonce 3:") {
			t.Errorf("what matches one to one: got %s, want nothing said of nonce 3", text)
		}

		body["requests"] = map[string]string{"0": "double", "1": txmanager.NoRequest, "2": "twin-a"}
		before := b.decidedUpon(t)
		tried := b.released(t, s, "?dryRun=true", body)
		same(t, "what the trial left", b.decidedUpon(t), before)
		done := b.released(t, s, "", body)
		if !tried.DryRun || done.DryRun {
			t.Errorf("dryRun: got %t for the trial and %t for the release, want true and false", tried.DryRun, done.DryRun)
		}
		tried.DryRun = false
		same(t, "the release, as tried", done, tried)
		var named []string
		for _, one := range done.Named {
			named = append(named, fmt.Sprint(one.Nonce, " ", one.RequestID))
		}
		same(t, "named", named, []string{"0 double", "2 twin-a", "3 one"})

		b.await(t, s, txmanager.Confirmed, 3+1+max(0, window-4)) // the named ones, twin-b, and those whose nonce was not lost
		for to, want := range map[common.Address]int64{one: 1000, twin: 2000, double: 2000, held: 10 * int64(max(0, window-4))} {
			equal(t, fmt.Sprint("wei on the chain of ", to), b.received(t, to), want)
		}
	})
}

func (b bench) decidedUpon(t *testing.T) string {
	t.Helper()
	return value[string](t, b, decidedUpon)
}
