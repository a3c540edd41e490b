package acceptance

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// calm checks that the node's faults caused neither PROTECT nor a STUCK transaction.
func (b bench) calm(t *testing.T) {
	t.Helper()
	b.wantCount(t, "PROTECT incidents", 0, `select count(*) from protect_incident`)
	b.wantCount(t, "changes to STUCK or PROTECT, or by a reorg", 0, `select count(*) from tx_history where state in ('STUCK', 'PROTECT') or reason like '%reorg%'`)
}

// struck waits until the node's fault has happened n more times.
func (b bench) struck(t *testing.T, fault string, n int) {
	t.Helper()
	before := b.RPC.Counts()[fault]
	b.until(t, fmt.Sprintf("%q never struck %d times more", fault, n), func() bool { return b.RPC.Counts()[fault] >= before+n })
}

// A node sometimes does not answer, disconnects, lags, forgets or is not ready. The manager relies on
// its answers only where they are proof, and everything ends.
func TestNodeInTrouble(t *testing.T) {
	t.Parallel()
	faults := map[string]rpcproxy.Faults{
		rpcproxy.DropSendAnswer: {DropSendAnswer: 1},
		rpcproxy.Drop:           {Drop: 0.3},
		rpcproxy.Hang:           {Hang: 0.15},
		rpcproxy.Unavailable:    {Unavailable: 0.3},
		rpcproxy.LoseSend:       {LoseSend: 0.4},
		rpcproxy.NotIndexed:     {NotIndexed: 0.3},
		rpcproxy.ForgetReceipt:  {ForgetReceipt: 0.3},
		rpcproxy.Lag:            {Lag: 3, LagShare: 0.5},
	}
	o := stack.Options{RPCProxy: true, Seed: 1, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_CONFIRMATIONS_REQUIRED": "2", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "1000",
	})}
	parallel(t, "one", func(t *testing.T) {
		o := o
		o.Window = 4
		inTurn(t, o, slices.Sorted(maps.Keys(faults)), func(t *testing.T, b bench, name string) {
			before := b.RPC.Counts()[name]
			b.inTrouble(t, faults[name], 6)
			if b.RPC.Counts()[name] == before {
				t.Errorf("strikes: got %v, want some of %q", b.RPC.Counts(), name)
			}
		})
	})
	parallel(t, "all at once, window 1", func(t *testing.T) {
		o := o
		o.Window = 1
		b := setup(t, o)
		b.inTrouble(t, rpcproxy.Faults{
			DropSendAnswer: 0.2, Drop: 0.05, Unavailable: 0.05, LoseSend: 0.1, NotIndexed: 0.1, ForgetReceipt: 0.1, Lag: 2, LagShare: 0.2,
		}, 4)
		if len(b.RPC.Counts()) < 3 {
			t.Errorf("strikes: got %v, want some of most kinds", b.RPC.Counts())
		}
	})
}

// inTrouble carries n intents of each submitter to their end in spite of the faults, and ends the faults.
func (b bench) inTrouble(t *testing.T, f rpcproxy.Faults, n int) {
	t.Helper()
	b.RPC.SetFaults(f)
	defer b.RPC.SetFaults(rpcproxy.Faults{})
	b.ends(t, b.postAll(t, n))
	b.inOrder(t)
	b.calm(t)
}

// Our transaction is mined, no node reports it, and it is sent again. The node answers that its nonce
// is too low, which counts as success, since the node knows our bytes. A question that the node cannot
// answer meanwhile makes nothing final.
func TestNonceTooLowWithOursMined(t *testing.T) {
	t.Parallel()
	for name, mute := range map[string]rpcproxy.Faults{
		"no receipt is found":    {ForgetReceipt: 1},
		"the index is not ready": {NotIndexed: 1},
	} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{RPCProxy: true, Settings: quick})
			s := b.Submitters()[0]
			b.Chain.StopMining()
			b.RPC.SetFaults(rpcproxy.Faults{DropSendAnswer: 1})
			b.postUntilAnswered(t, transfer(s, "r"))
			b.struck(t, rpcproxy.DropSendAnswer, 1)
			b.RPC.SetFaults(mute)
			b.mine(t, 1)
			sends := b.RPC.Calls("eth_sendRawTransaction")
			b.Chain.StartMining()
			b.until(t, "it was never sent again", func() bool { return b.RPC.Calls("eth_sendRawTransaction") > sends })
			b.await(t, s, txmanager.Tracking, 1)
			b.wantCount(t, "transactions with a receipt that nobody gave", 0, `select count(*) from managed_tx where receipt is not null or confirmed_at is not null`)
			b.RPC.SetFaults(rpcproxy.Faults{})
			b.ends(t, map[txmanager.Submitter]int{s: 1})
			b.calm(t)
		})
	}
}

// While a node's index is never ready, or it forgets every receipt, nothing becomes final. The first
// good answer lets all transactions continue.
func TestWithoutReceiptsNothingIsFinal(t *testing.T) {
	t.Parallel()
	for fault, f := range map[string]rpcproxy.Faults{
		rpcproxy.NotIndexed: {NotIndexed: 1}, rpcproxy.ForgetReceipt: {ForgetReceipt: 1},
	} {
		parallel(t, fault, func(t *testing.T) {
			b := setup(t, stack.Options{RPCProxy: true, Settings: quick})
			b.RPC.SetFaults(f)
			want := b.postAll(t, 2)
			b.struck(t, fault, 6)
			b.wantCount(t, "transactions that ended, or followed one that did", 0, `select count(*) from managed_tx where state in ('CONFIRMED', 'FAILED') or nonce > 0`)
			b.RPC.SetFaults(rpcproxy.Faults{})
			b.ends(t, want)
			b.calm(t)
		})
	}
}

// A lagging node follows a healthy one. It removes neither the receipt nor a confirming block, and
// nothing becomes final by it.
func TestLaggingNodeTakesNothingBack(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{RPCProxy: true, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_CONFIRMATIONS_REQUIRED": "4", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	})})
	s := b.Submitters()[0]
	b.inFlight(t, transfer(s, "r"))
	b.mine(t, 3)
	b.confirmedBy(t, 3)
	const shown = `select count(*) from managed_tx where sub_state = 'INCLUDED' and receipt is not null and jsonb_array_length(confirmations) = 3`
	for _, lag := range []uint64{1, 2, 3} {
		b.RPC.SetFaults(rpcproxy.Faults{Lag: lag, LagShare: 1})
		b.struck(t, rpcproxy.Lag, 3)
		if b.count(shown) != 1 {
			t.Errorf("%d blocks behind: the receipt or a confirming block was taken back", lag)
		}
	}
	b.mine(t, 2) // final, but above the lagging node's head
	b.struck(t, rpcproxy.Lag, 3)
	b.wantCount(t, "it is CONFIRMED by a node that does not have the last confirming block", 0, `select count(*) from managed_tx where state = 'CONFIRMED'`)
	b.RPC.SetFaults(rpcproxy.Faults{})
	b.await(t, s, txmanager.Confirmed, 1)
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	b.calm(t)
}

// confirmedBy waits until the only transaction has a list of n blocks, beginning with its own.
func (b bench) confirmedBy(t *testing.T, n int) {
	t.Helper()
	b.awaitCount(t, fmt.Sprintf("the list of confirming blocks never had %d", n), n, `select coalesce(min(jsonb_array_length(confirmations)), 0) from managed_tx`)
}

// The pool loses a whole window of transactions. All of them are sent again in order.
func TestPoolIsLost(t *testing.T) {
	t.Parallel()
	const n = 5
	b := setup(t, stack.Options{Window: n, Settings: quick})
	b.Chain.StopMining()
	want := b.postAll(t, n+1)
	for _, s := range b.Submitters() {
		b.await(t, s, txmanager.Tracking, n)
	}
	b.Chain.DropPool()
	b.mine(t, 1)
	for _, s := range b.Submitters() {
		if got := b.mined(t, s); len(got) > 0 {
			t.Fatalf("mined out of a pool that lost all: got %v", got)
		}
	}
	b.Chain.StartMining()
	b.ends(t, want)
	b.inOrder(t)
	b.calm(t)
}
