package chaintest

import (
	"errors"
	"fmt"
	"math/big"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A hundred queries of a hundred submitters at once have the answers that each has alone. Over JSON-RPC they
// share HTTP requests, except the 25 with gas estimates of contract calls.
func (b contract) QueriesAtOnce(t *testing.T) {
	const submitters, maxTrips = 100, 25 + 15 // on a busy machine the 75 that share come in several groups
	queries, txs := make([]txmanager.ChainQuery, submitters), make([]txmanager.Signed, submitters)
	head := b.query(t, txmanager.ChainQuery{}).Head.Number + 1
	for i := range queries {
		s := b.Family.NewAccount().Submitter
		txs[i] = b.tx(t, uint64(i), func(tx *txmanager.Unsigned) { tx.To, tx.Value = new(s.Address()), big.NewInt(int64(1+i)) })
		queries[i] = txmanager.ChainQuery{Submitter: s, Account: true, Receipts: []txmanager.Hash{txs[i].Hash, absentHash}, Known: []txmanager.Hash{txs[i].Hash}}
		switch i % 4 {
		case 1:
			queries[i].Estimates = []txmanager.Call{{To: b.to(), Value: new(big.Int)}, b.Family.Failing}
		case 2:
			queries[i].FromBlock, queries[i].ToBlock, queries[i].Finality = head-1, head, "finalized"
		case 3:
			queries[i].HashesAt, queries[i].FinalCount = []uint64{head - 1, head}, true
		}
	}
	b.mineExactly(t, txs)

	alone := make([]txmanager.ChainObservation, submitters)
	for i, q := range queries {
		alone[i] = b.observe(t, q)
	}
	before := b.Family.RoundTrips()
	together := make([]txmanager.ChainObservation, submitters)
	var all sync.WaitGroup
	for i, q := range queries {
		all.Go(func() { together[i] = b.observe(t, q) })
	}
	all.Wait()
	if got := b.Family.RoundTrips() - before; b.proxy != nil && got > maxTrips {
		t.Errorf("round trips of %d queries at once: got %d, want at most %d", submitters, got, maxTrips)
	}
	for i := range queries {
		check.Same(t, fmt.Sprintf("query %d at once with others", i), together[i], alone[i], check.BigInts)
		if a := together[i]; a.Account.BalanceWei == nil || b.Key != nil && a.Account.BalanceWei.Int64() != int64(1+i) || a.Receipts[txs[i].Hash].Answer != txmanager.AnswerFound {
			t.Errorf("query %d: got %+v, want its own balance and receipt", i, a)
		}
	}
}

// Queries at once while blocks are added: each answer is between the query's first and last head.
func (b contract) QueriesDuringNewBlocks(t *testing.T) {
	const submitters = 50
	b.mine(t, 1)
	before := b.query(t, txmanager.ChainQuery{}).Head.Number
	var all sync.WaitGroup
	for i := range submitters {
		s := b.Family.NewAccount().Submitter
		all.Go(func() {
			for range 3 {
				at := b.observe(t, txmanager.ChainQuery{}).Head.Number // a block that is there
				v := b.observe(t, txmanager.ChainQuery{Submitter: s, Account: true, FromBlock: at, ToBlock: at + 10})
				if start, n := v.StartHead.Number, len(v.Headers); start < at || v.Head.Number < start || n == 0 || v.Headers[n-1].Number < start || v.Headers[n-1].Number > v.Head.Number {
					t.Errorf("query %d after block %d: got heads %d and %d and %d headers; want ascending heads from that block on, and the headers between", i, at, start, v.Head.Number, n)
				}
			}
		})
	}
	for range 5 {
		b.mine(t, 1)
	}
	all.Wait()
	check.Equal(t, "head", b.query(t, txmanager.ChainQuery{}).Head.Number, before+5)
}

// observe queries by q's own submitter. It removes the other nodes, which no comparison sees.
func (b *bundle) observe(t *testing.T, q txmanager.ChainQuery) txmanager.ChainObservation {
	v, err := b.connector.Query(t.Context(), q)
	for errors.Is(err, chain.ErrChanged) { // on a busy machine several blocks come within one round trip, which proves no link
		v, err = b.connector.Query(t.Context(), q)
	}
	if err != nil {
		t.Errorf("query of %s: %v", q.Submitter, err)
		return txmanager.ChainObservation{StartHead: new(txmanager.Header)}
	}
	v.OtherNodes = nil
	return v
}
