package acceptance

import (
	"slices"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A window above 1 weakens no promise. A process dies with many transactions open, and they end in the
// order of the queue, without a gap. No second block comes before that, so that confirmations are due.
func TestWindowSurvivesDeaths(t *testing.T) {
	t.Parallel()
	points := []string{"advance.signed", "advance.stored", "advance.sent", "confirm.looked"}
	windows(t, []int{5, 50}, func(t *testing.T, window int) {
		o := stack.Options{Window: window, Settings: map[string]string{"FENCEPOST_CONFIRMATIONS_REQUIRED": "8"}}
		killedInTurn(t, o, points, func(t *testing.T, b bench, folder, point string) {
			b.Chain.StopMining()
			want := b.postAll(t, window+window/2)
			if point == "confirm.looked" {
				b.await(t, b.Submitters()[0], txmanager.Tracking, window)
				b.mine(t, 1)
			}
			b.killed(t, folder, point)
			b.Chain.StartMining()
			b.ends(t, want)
			b.inOrder(t)
			b.wantNoOldToken(t)
		})
	})
}

// A reorg removes a full window from its block. Some transactions come back, those above them vanish,
// and all end in order.
func TestWindowSurvivesReorg(t *testing.T) {
	t.Parallel()
	windows(t, []int{5, 50}, func(t *testing.T, window int) {
		b := setup(t, stack.Options{Submitters: 1, Window: window, Settings: withSettings(quick, map[string]string{
			"FENCEPOST_CONFIRMATIONS_REQUIRED": "4", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
		})})
		s := b.Submitters()[0]
		b.Chain.StopMining()
		want := b.postAll(t, window+2)
		b.await(t, s, txmanager.Tracking, window)
		b.mine(t, 2)
		b.confirmedBy(t, 2)
		blocks := b.blocks(t)
		check(t, b.Chain.Reorg(2, b.raws(t, window/2), nil, nil))
		b.Chain.DropPool()
		b.elsewhere(t, blocks)
		b.Chain.StartMining()
		b.ends(t, want)
		b.inOrder(t)
		b.noBlockOf(t, blocks)
	})
}

// raws returns the bytes of the n lowest nonces.
func (b bench) raws(t *testing.T, n int) (raws [][]byte) {
	t.Helper()
	ids := value[[]string](t, b, `select array_agg(tx_id::text order by nonce) from managed_tx where nonce < $1`, n)
	for _, id := range ids {
		raws = append(raws, b.raw(t, id, "ORIGINAL"))
	}
	return raws
}

// offered records the transactions sent to a node for one account since the last reset.
type offered struct {
	mu     sync.Mutex
	nonces []uint64
}

func (o *offered) add(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nonces = append(o.nonces, n)
}

// reset returns the offered nonces, and clears it.
func (o *offered) reset() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.nonces = nil }()
	return o.nonces
}

// refuseFirst makes the node refuse nonce 0 of s, and records the nonces sent to it for s.
func (b bench) refuseFirst(s txmanager.Submitter, words string) *offered {
	seen := new(offered)
	b.RPC.SetFaults(rpcproxy.Faults{Refuse: func(tx *types.Transaction) string {
		from, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx)
		if err != nil || eip155.Address(from) != s.Address() {
			return ""
		}
		seen.add(tx.Nonce())
		if tx.Nonce() == 0 {
			return words
		}
		return ""
	}})
	return seen
}

// A transaction that no node accepts keeps its nonce. Its submitter gets no higher allocation and
// sends nothing before it; another submitter continues. When it is accepted, all continue in order.
func TestUnsendableNonceHoldsBackItsOwnSubmitterAlone(t *testing.T) {
	t.Parallel()
	const window = 20
	b := setup(t, stack.Options{RPCProxy: true, Window: window, Settings: withSettings(quick, map[string]string{"FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "1000"})})
	held, free := b.Submitters()[0], b.Submitters()[1]
	seen := b.refuseFirst(held, "txpool is full")
	b.postUntilAnswered(t, transfer(held, "r-0"))
	b.struck(t, rpcproxy.Refuse, 1)
	want := b.postAll(t, window+1)
	b.await(t, free, txmanager.Confirmed, window+1)
	b.struck(t, rpcproxy.Refuse, 2)
	if all := seen.reset(); slices.Max(all) != 0 {
		t.Errorf("offered of the held submitter: got nonces %v, want nonce 0 alone", all)
	}
	b.wantBound(t, held, 1)
	b.RPC.SetFaults(rpcproxy.Faults{})
	b.ends(t, want)
	b.inOrder(t)
	b.calm(t)
}

// A whole window is sent at once, and the node accepts all but the lowest, which it refuses
// permanently. The submitter sends and allocates nothing more until an operator has the lowest sent
// again.
func TestRefusedForGoodHoldsBackTheWindow(t *testing.T) {
	t.Parallel()
	const window = 20
	b := setup(t, stack.Options{RPCProxy: true, Window: window, Settings: quick})
	held, free := b.Submitters()[0], b.Submitters()[1]
	seen := b.refuseFirst(held, "intrinsic gas too low")
	b.Tasks.SetFaults(dropEverything) // so that one advance finds all of them
	want := b.postAll(t, window+1)
	b.Tasks.SetFaults(noFaults)
	b.overdue(t, 2*(window+1))
	check(t, b.RunSweep(b.ctx))
	b.await(t, held, txmanager.Stuck, 1)
	if all := seen.reset(); len(all) < window {
		t.Fatalf("offered of the held submitter at first: got nonces %v, want a window of %d", all, window)
	}
	b.await(t, free, txmanager.Confirmed, window+1)
	if err := b.Chain.WaitBlock(b.ctx, b.Chain.Head()+10); err != nil { // two and a half times resubmit.interval
		t.Fatal(err)
	}
	if later := seen.reset(); len(later) > 0 {
		t.Errorf("offered of the held submitter from then on: got nonces %v, want none", later)
	}
	b.wantBound(t, held, window)
	b.RPC.SetFaults(rpcproxy.Faults{})
	b.decide(t, value[string](t, b, `select tx_id from managed_tx where state = 'STUCK'`), "rebroadcast")
	b.ends(t, want)
	b.inOrder(t)
}

// wantBound checks how many nonces the submitter has allocated.
func (b bench) wantBound(t *testing.T, s txmanager.Submitter, n int) {
	t.Helper()
	b.wantCount(t, "nonces bound", n, `select count(*) from managed_tx where submitter = $1 and nonce is not null`, s)
}
