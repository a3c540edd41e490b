package acceptance

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// waits waits until the only queued intent has a wait reason with this prefix. It requires that the
// intent has no nonce and that nothing was signed.
func (b bench) waits(t *testing.T, reason string) {
	t.Helper()
	b.awaitCount(t, fmt.Sprintf("nothing waits for %q", reason), 1, `select count(*) from managed_tx where queued and last_error like $1 || '%'`, reason)
	if n := b.count(`select count(*) from managed_tx where nonce is not null`) + b.count(`select count(*) from tx_version`) +
		b.count(`select sum(next_nonce)::int from submitter_nonce_cursor`); n != 0 {
		t.Errorf("%q: got %d nonces and versions, want none", reason, n)
	}
}

// gauges runs the sweep and requires these gauges.
func (b bench) gauges(t *testing.T, want map[string]float64) {
	t.Helper()
	check(t, b.RunSweep(b.ctx))
	shown, _ := b.page(t)
	for series, n := range want {
		if got, ok := shown[series]; !ok || got != n {
			t.Errorf("%s: got %v (shown: %v), want %v", series, got, ok, n)
		}
	}
}

// An account that cannot pay uses no nonce. The intent waits in the queue with the reason, and gauges
// show it. Once the account is funded, the intent continues without help.
func TestInsufficientBalanceWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1, Settings: map[string]string{"FENCEPOST_TELEMETRY_BALANCES": "1", "FENCEPOST_TELEMETRY_PROMETHEUS": "true"}})
	s := b.Submitters()[0]
	all := new(big.Int).Mul(big.NewInt(1_000_000), big.NewInt(params.Ether))
	intent := transfer(s, "all of it")
	intent["payload"].(map[string]any)["value"] = all.String()
	b.post(t, intent)
	b.waits(t, "balance: ")
	shown := `fencepost_submitter_balance_gwei{submitter="` + string(s) + `"}`
	first := min(b.Submitters()[0], b.Submitters()[1])
	const blocked = `fencepost_queue_blocked_heads{cause="BALANCE",overdue="false"}`
	want := map[string]float64{"fencepost_balance_waiting_submitters": 1, "fencepost_fee_waiting_submitters": 0, "fencepost_gas_bump_held": 0, blocked: 1, `fencepost_queue_blocked_heads{cause="BALANCE",overdue="true"}`: 0}
	if first == s {
		want[shown] = 1e15
	}
	b.gauges(t, want)
	b.logged(t, `"waitCause":"BALANCE"`)
	b.byHand(t, newCrowd(t, b).by, b.Payment(0, common.Address(eip155.MustBytes(s.Address())), params.Ether, 1))
	b.await(t, s, txmanager.Confirmed, 1)
	b.gauges(t, map[string]float64{"fencepost_balance_waiting_submitters": 0, blocked: 0})
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

// A node that refuses balance queries costs only their gauges and a log line. The sweep has done its
// work and does not fail.
func TestBalancesRefusedCostNoSweep(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1, Settings: map[string]string{"FENCEPOST_TELEMETRY_BALANCES": "1"}})
	refusing := chaintest.NewProxy(t, b.Chain.URL())
	refusing.Set(chaintest.Fault{Answer: func(call chaintest.Call, _ json.RawMessage) map[string]any {
		if call.Method == "eth_getBalance" {
			return chaintest.NodeError("the method is not available")
		}
		return nil
	}})
	must(b.StartProcess(b.ctx, map[string]string{"FENCEPOST_RPC_URLS": refusing.URL}))(t)
	b.until(t, "never told", func() bool { // either process can serve it
		check(t, b.RunSweep(b.ctx))
		return b.Log.Has("balances not shown")
	})
}

// While blocks cost more than fees.maxFeePerGas, nothing is sent. The intent waits in the queue with
// the reason and without a nonce. When fees fall it continues and never offers more.
func TestCeilingOfFees(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: map[string]string{"FENCEPOST_FEES_MAX_FEE_PER_GAS": "300000000", "FENCEPOST_TELEMETRY_PROMETHEUS": "true"}})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	newCrowd(t, b).raise(t, big.NewInt(600_000_000))
	b.post(t, transfer(s, "later"))
	b.waits(t, "fee: the base fee is above fees.maxFeePerGas")
	check(t, b.RunSweep(b.ctx))
	b.Chain.StartMining() // blocks without congestion lower the base fee
	b.await(t, s, txmanager.Confirmed, 1)
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	b.wantCount(t, "versions at or below the ceiling", 1, `select count(*) from tx_document where name = 'version:1' and (body ->> 'maxFeePerGas')::numeric <= 300000000`)
}

// With fee history on, the tip is the percentile of the last blocks' tips. With it off, the tip is the
// node's advice.
func TestTipsByHistory(t *testing.T) {
	t.Parallel()
	tip := func(settings map[string]string) int {
		b := setup(t, stack.Options{Settings: withSettings(quick, settings)})
		s := b.Submitters()[0]
		b.Chain.StopMining()
		c := newCrowd(t, b)
		for range 6 {
			c.pay(t, 1e9, 1e9, 9e9)
		}
		b.post(t, transfer(s, "tipped"))
		b.await(t, s, txmanager.Tracking, 1)
		b.Chain.StartMining()
		b.ends(t, map[txmanager.Submitter]int{s: 1})
		return b.count(`select (body ->> 'maxPriorityFeePerGas')::bigint from tx_document where name = 'version:1'`)
	}
	history := map[string]string{"FENCEPOST_FEES_HISTORY_ENABLED": "true", "FENCEPOST_FEES_HISTORY_BLOCKS": "5", "FENCEPOST_FEES_HISTORY_PERCENTILE": "90"}
	equal(t, "a tip with it on", tip(history), 9e9)
	if got := tip(nil); got == 9e9 || got <= 0 {
		t.Errorf("off: got a tip of %d, want the node's advice, which is another", got)
	}
}
