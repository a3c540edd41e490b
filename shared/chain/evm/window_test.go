package evm_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// windowOf signs n transactions of the chain's account, and returns the query for all.
func windowOf(t testing.TB, chain *devchain.Chain, n int) (raws [][]byte, q txmanager.ChainQuery) {
	t.Helper()
	q = txmanager.ChainQuery{Submitter: eip155.NewSubmitter(chain.ChainID(), devchain.DevAccounts(1)[0].Address), Account: true}
	for i := range uint64(n) {
		tx := transfer(t, chain, i, 1e9)
		raws, q.Receipts, q.Hints = append(raws, tx.Raw), append(q.Receipts, tx.Hash), append(q.Hints, txmanager.Hint{Nonce: i})
	}
	return raws, q
}

// found counts the receipts in v, and fails if one is unknown.
func found(t testing.TB, v txmanager.ChainObservation) (n int) {
	t.Helper()
	for h, a := range v.Receipts {
		switch a.Answer {
		case txmanager.AnswerFound:
			n++
		case txmanager.AnswerUnknown:
			t.Errorf("%s: got unknown, want found or not", h)
		}
	}
	return n
}

// A window in small batches, with headers, keeps to their size and finds all, even if blocks are added
// in between.
func TestWindowInSmallBatches(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	raws, q := windowOf(t, chain, 300)
	for i := 0; i < len(raws); i += 100 {
		check.OK(t)(chain.MineExactly(raws[i : i+100]...))
	}
	q.FromBlock, q.ToBlock = 1, 4
	proxy.Set(chaintest.Fault{Batch: func(calls int) {
		if calls > 8 {
			t.Errorf("calls in one batch: got %d, want at most 8", calls)
		}
		check.Err(t, "mine", nil)(chain.Mine(1))
	}})
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), MaxBatch: 8})
	for i := range q.Hints {
		q.Hints[i].Block = 2 + uint64(i/100)
	}
	for range 2 {
		v := check.Value(c.Query(t.Context(), q))(t)
		if got := found(t, v); got != 300 || v.Head.Number <= v.StartHead.Number {
			t.Errorf("got %d receipts at head %d, first %d; want 300, and blocks between", got, v.Head.Number, v.StartHead.Number)
		}
		if got := len(v.Headers); got != 4 || v.Headers[0].Number != 1 {
			t.Errorf("headers: got %d, want 4 from 1 on", got)
		}
	}
	if got := proxy.Calls("eth_getTransactionReceipt"); got > 0 {
		t.Errorf("receipts asked for by transaction: got %d, want 0", got)
	}
}

// If requests for blocks get no answer, each receipt is requested singly, and the next query requests
// no blocks. Without any answer the query fails.
func TestUnansweredBlocksAreRequestedSingly(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	raws, q := windowOf(t, chain, 120)
	check.OK(t)(chain.MineExactly(raws...))
	trips := 0
	connectWithout := func(silent ...int) *evm.Connector { // answers to these round trips
		trips = 0
		return connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), OnRoundTrip: func(context.Context) func(error) {
			trips++
			proxy.Set(chaintest.Fault{Drop: slices.Contains(silent, trips)})
			return func(error) {}
		}})
	}
	c := connectWithout(2)
	for _, want := range []int{3, 3 + 2} {
		v := check.Value(c.Query(t.Context(), q))(t)
		check.Equal(t, "receipts", found(t, v), 120)
		check.Equal(t, "round trips", trips, want)
	}
	check.Equal(t, "receipts asked for by block", proxy.Calls("eth_getBlockReceipts"), 1)
	if v, err := connectWithout(2, 3).Query(t.Context(), q); err == nil {
		t.Errorf("silence about blocks and transactions: got %+v, want an error", v.Head)
	}
}

// Queries for one block, by any number of submitters, read its receipts once. After a reorg no receipt
// of the replaced block is returned.
func TestQueriesShareABlocksReceipts(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	raws, q := windowOf(t, chain, 100)
	check.OK(t)(chain.MineExactly(raws...))
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
	const looks = 10
	var all sync.WaitGroup
	for range looks {
		all.Go(func() {
			v, err := c.Query(t.Context(), q)
			if err != nil || found(t, v) != len(raws) {
				t.Errorf("query: got %d found, %v; want %d", found(t, v), err, len(raws))
			}
		})
	}
	all.Wait()
	if got := proxy.RoundTrips(); got > looks+1 {
		t.Errorf("round trips of %d concurrent queries: got %d, want at most %d", looks, got, looks+1)
	}
	check.Equal(t, "requests for the block's receipts", proxy.Calls("eth_getBlockReceipts"), 1)
	check.OK(t)(chain.Reorg(1, nil))
	v := check.Value(c.Query(t.Context(), q))(t)
	for h, a := range v.Receipts {
		if a.Answer == txmanager.AnswerFound && a.Receipt.BlockHash != v.Head.Hash {
			t.Errorf("%s after the reorg: got it in %s, want it in the head %s or nowhere", h, a.Receipt.BlockHash, v.Head.Hash)
		}
	}
}
