package chaintest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each transaction of the account in final blocks is found, in steps of any size, with its call. Transactions
// of other accounts, and those above the last final block, are not.
func (b contract) Blocks(t *testing.T) {
	other := b.other()
	var txs []txmanager.Signed
	for n, blocks := range []int{0, 1, 7, 1, 90} { // the first two in one block
		txs = append(txs, b.tx(t, uint64(n), nil))
		b.include(t, blocks, txs[n])
	}
	young := b.tx(t, 5, nil)
	b.include(t, 1, young)
	final := b.final(t)
	for _, limit := range []int{1, 7, 1000} {
		got, end := b.read(t, 0, limit)
		check.Equal(t, fmt.Sprintf("steps of %d: read up to block", limit), end, final)
		want := map[uint64]txmanager.ConsumingTx{}
		for n := range txs {
			want[uint64(n)] = b.consumer(t, uint64(n))
		}
		check.Same(t, fmt.Sprintf("steps of %d", limit), got, want)
	}
	other.wantNoBlocks(t, "of an account that has sent nothing", 0)
	b.wantNoBlocks(t, "behind the last final block", final)
	if r, err := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter}); err != nil || r.End != 0 || r.Final != final {
		t.Errorf("no block asked for: got %+v, %v, want the last final block, %d", r, err, final)
	}
	if r, err := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, After: final + 1, MaxBlocks: 5}); err == nil || errors.Is(err, txmanager.ErrConsumerUnavailable) {
		t.Errorf("after a block that is not final there: got %+v, %v, want an error after which another node is asked", r, err)
	}
}

// A node that has deleted old states, or says so for all counts, reports for a nonce that it has no counts so
// old. It still returns the blocks.
func (b overJSONRPC) BlocksOnAPrunedNode(t *testing.T) {
	old := b.tx(t, 0, nil)
	b.include(t, 1, old)
	want := b.consumer(t, 0)
	b.mine(t, 200)
	if b.KeepsStates {
		b.proxy.Set(answering(countsWhere(func(uint64) bool { return true }), NodeError("missing trie node 5f3a")))
	}
	check.Err(t, "deleted", txmanager.ErrNoCounts)(b.wantUntold(t, "deleted", 0))
	got, _ := b.read(t, 0, 60)
	check.Same(t, "in the blocks of a pruned node", got, map[uint64]txmanager.ConsumingTx{0: want})
}

// The start of the reading is found by the blocks' own times.
func (b contract) BlocksFromATime(t *testing.T) {
	b.mine(t, 120)
	final := b.final(t)
	headers := b.query(t, txmanager.ChainQuery{FromBlock: 1, ToBlock: final}).Headers
	from := func(at time.Time) uint64 {
		t.Helper()
		r, err := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, OlderThan: at})
		if err != nil || len(r.Transactions) > 0 {
			t.Errorf("older than %s: got %+v, %v", at, r, err)
		}
		return r.End
	}
	for _, n := range []int{1, 10, len(headers) - 1} {
		at := time.Unix(int64(headers[n].Time), 0)
		last := uint64(0)
		for _, h := range headers {
			if h.Time < headers[n].Time {
				last = h.Number
			}
		}
		check.Equal(t, fmt.Sprintf("older than block %d: block", headers[n].Number), from(at), last)
	}
	check.Equal(t, "before the chain: block", from(time.Unix(1, 0)), 0)
	check.Equal(t, "later than every block: block", from(time.Now().Add(1000*time.Hour)), final)
}

// An answer that is not a block, or not a transaction, is no answer. Earlier answers are returned.
func (b overJSONRPC) FaultyBlocks(t *testing.T) {
	b.include(t, 120, b.tx(t, 0, nil))
	for name, c := range map[string]struct {
		fault   Fault
		forGood bool
	}{
		"a dropped answer":  {Fault{Drop: true}, false},
		"no final block":    {FaultyMethod(getBlock, Result(nil)), false},
		"null for a block":  {answering(wholeBlock, Result(nil)), false},
		"rate limited":      {answering(wholeBlock, NodeError("rate limit exceeded")), false},
		"history expired":   {answering(wholeBlock, NodeError("pruned history unavailable")), true},
		"another block":     {changing(wholeBlock, func(block map[string]any) { block["number"] = "0xffff" }), false},
		"no value":          {changing(wholeBlock, func(block map[string]any) { eachTx(block, "value", nil) }), false},
		"text for a number": {changing(wholeBlock, func(block map[string]any) { block["number"] = "few" }), false},
	} {
		b.proxy.Set(c.fault)
		r, err := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, MaxBlocks: 50})
		if err == nil || isPermanent(err) != c.forGood || errors.Is(err, txmanager.ErrNoCounts) {
			t.Errorf("%s: got %+v, %v, want an error, for good %v", name, r, err, c.forGood)
		}
	}
	b.checkBlocksUpTo25(t)
	b.proxy.Set(Fault{})
	b.submitter = b.onChain(b.ChainID + 1)
	if r, err := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, MaxBlocks: 5}); err == nil {
		t.Errorf("a submitter of another chain: got %+v, want an error", r)
	}
}

// checkBlocksUpTo25 checks that a node which is busy after block 25 still gives the blocks before it.
func (b *bundle) checkBlocksUpTo25(t *testing.T) {
	t.Helper()
	b.proxy.Set(answering(func(call Call) bool {
		if !wholeBlock(call) {
			return false
		}
		n, err := hexutil.DecodeUint64(call.Params[0].(string))
		return err == nil && n > 25
	}, NodeError("busy")))
	r, err := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, MaxBlocks: 50})
	if err != nil || r.End == 0 || r.End > 25 || r.Transactions[0].Hash == (txmanager.Hash{}) {
		t.Errorf("blocks up to 25 alone: got %+v, %v, want some of them, with the transaction", r, err)
	}
}

// read reads all final blocks after one, in steps.
func (b *bundle) read(t *testing.T, after uint64, limit int) (all map[uint64]txmanager.ConsumingTx, end uint64) {
	t.Helper()
	all, end = map[uint64]txmanager.ConsumingTx{}, after
	for {
		r := check.Value(b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, After: end, MaxBlocks: limit, Turn: int(end)}))(t)
		if r.End > end+uint64(limit) || r.End == end && end < r.Final {
			t.Fatalf("after block %d: got read up to %d, want some blocks, and %d at most", end, r.End, limit)
		}
		for n, consumer := range r.Transactions {
			all[n] = consumer
		}
		if end = r.End; end >= r.Final {
			return all, end
		}
	}
}

func (b *bundle) wantNoBlocks(t *testing.T, what string, after uint64) {
	t.Helper()
	if got, _ := b.read(t, after, 1000); len(got) > 0 {
		t.Errorf("%s: got %+v, want none", what, got)
	}
}

// final returns the number of the last final block.
func (b *bundle) final(t *testing.T) uint64 {
	t.Helper()
	v := b.query(t, txmanager.ChainQuery{Finality: "finalized"})
	if v.Tagged == nil || v.Tagged.Number == 0 {
		t.Fatalf("finalized: got %+v, want a block", v.Tagged)
	}
	return v.Tagged.Number
}

// consumer returns the transaction that consumed nonce n, found by counts.
func (b *bundle) consumer(t *testing.T, n uint64) txmanager.ConsumingTx {
	t.Helper()
	return check.Value(b.connector.FindConsumingTx(t.Context(), b.submitter, n))(t)
}
