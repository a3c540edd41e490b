package chaintest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	singly  = "eth_getTransactionReceipt"
	byBlock = "eth_getBlockReceipts"
)

// window makes n transactions from a nonce on, and the query for all.
func (b *bundle) window(t *testing.T, from, n uint64) ([]txmanager.Signed, txmanager.ChainQuery) {
	t.Helper()
	q := txmanager.ChainQuery{Account: true}
	var txs []txmanager.Signed
	for i := from; i < from+n; i++ {
		tx := b.tx(t, i, nil)
		txs = append(txs, tx)
		q.Receipts, q.Hints = append(q.Receipts, tx.Hash), append(q.Hints, txmanager.Hint{Nonce: i})
	}
	return txs, q
}

// mineExactly adds a block of txs. A transaction that goes through the pool may be a block late:
// go-ethereum's pool returns before it has processed it.
func (b *bundle) mineExactly(t *testing.T, txs []txmanager.Signed) {
	t.Helper()
	b.mine(t, 1)
	b.reorg(t, raws(txs))
}

func raws(txs []txmanager.Signed) [][]byte {
	list := make([][]byte, len(txs))
	for i, tx := range txs {
		list[i] = tx.Raw
	}
	return list
}

// cost is what a query for a window needs at most in round trips, and exactly in requests for receipts.
type cost struct{ trips, singly, byBlock uint64 }

// wantCost is [bundle.wantWindow], and requires the cost.
func (b *bundle) wantCost(t *testing.T, when string, q txmanager.ChainQuery, found int, c cost) txmanager.ChainObservation {
	t.Helper()
	before := cost{singly: b.proxy.Calls(singly), byBlock: b.proxy.Calls(byBlock)}
	v := b.wantWindow(t, when, q, c.trips, found)
	check.Equal(t, when+": receipts asked for by transaction", b.proxy.Calls(singly)-before.singly, c.singly)
	check.Equal(t, when+": receipts asked for by block", b.proxy.Calls(byBlock)-before.byBlock, c.byBlock)
	return v
}

// wantWindow queries with hints, in at most so many round trips. It requires the receipts that the node, without
// a fault, gives for each transaction alone, and found of them.
func (b *bundle) wantWindow(t *testing.T, when string, q txmanager.ChainQuery, trips uint64, found int) txmanager.ChainObservation {
	t.Helper()
	before := b.Family.RoundTrips()
	v := b.query(t, q)
	if got := b.Family.RoundTrips() - before; got > trips {
		t.Errorf("%s: round trips: got %d, want at most %d", when, got, trips)
	}
	q.Submitter, q.Hints = b.submitter, nil
	truth, err := b.Connect(t, b.URL, b.ChainID, patience).Query(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	check.Same(t, when+": receipts of all at once, want those of each by itself", v.Receipts, truth.Receipts, cmp.Comparer(equalJSON))
	got := 0
	for _, a := range v.Receipts {
		if a.Answer == txmanager.AnswerFound {
			got++
		}
		if bytes.Contains(a.Receipt.Document, []byte("logsBloom")) {
			t.Fatalf("%s: document: got %s, want it without logsBloom", when, a.Receipt.Document)
		}
	}
	if got != found || len(v.Receipts) != len(q.Receipts) {
		t.Errorf("%s: receipts: got %d of %d, want %d of %d", when, got, len(v.Receipts), found, len(q.Receipts))
	}
	return v
}

func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	return bytes.Equal(a, b) || (json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && cmp.Equal(x, y))
}

// heldAt returns q with a known block for the first n receipts.
func heldAt(q txmanager.ChainQuery, n int, block uint64) txmanager.ChainQuery {
	q.Hints = slices.Clone(q.Hints)
	for i := range n {
		q.Hints[i].Block = block
	}
	return q
}

// All receipts of a window in one block, with transactions of others, arrive in two round trips by one call.
// Unmined ones are not requested.
func (b overJSONRPC) WindowInOneBlock(t *testing.T) {
	other := b.other()
	b.include(t, 1, b.tx(t, 0, func(tx *txmanager.Unsigned) { tx.To, tx.Value = new(other.submitter.Address()), big.NewInt(1e18) }))
	txs, q := b.window(t, 1, 200)
	var mixed []txmanager.Signed
	for i, tx := range txs[:150] {
		mixed = append(mixed, tx)
		if i%3 == 0 {
			mixed = append(mixed, other.tx(t, uint64(i/3), nil))
		}
	}
	b.mineExactly(t, mixed)
	b.mustSend(t, txs[150:]...)
	v := b.wantCost(t, "in the head", q, 150, cost{trips: 2, byBlock: 1})
	for _, tx := range txs[:150] {
		if r := v.Receipts[tx.Hash].Receipt; r.BlockHash != v.Head.Hash || r.BlockNumber != v.Head.Number || !r.Succeeded {
			t.Fatalf("receipt: got %+v, want a success in the head %+v", r, v.Head)
		}
	}
	mined := v.Head.Number
	check.OK(t)(b.DropPool())
	b.mine(t, 1)
	b.connectAnew(t)
	b.wantCost(t, "in the head's parent", q, 150, cost{trips: 3, byBlock: 3})
	b.mine(t, 4)
	b.connectAnew(t)
	b.wantCost(t, "held, far below the head", heldAt(q, 150, mined), 150, cost{trips: 2, byBlock: 1})
	b.connectAnew(t)
	b.wantCost(t, "not held, far below the head", q, 150, cost{trips: 4, singly: 150, byBlock: 3})
}

// A window over many blocks is found in far fewer round trips than blocks, whether each block has many of its
// transactions or few.
func (b overJSONRPC) WindowInManyBlocks(t *testing.T) {
	txs, q := b.window(t, 0, 20*5)
	for i := 0; i < len(txs); i += 5 {
		b.mineExactly(t, txs[i:i+5])
	}
	b.wantCost(t, "5 in each of 20 blocks", q, 100, cost{trips: 4, singly: 85, byBlock: 3})

	txs, more := b.window(t, 100, 6*70)
	for i := 0; i < len(txs); i += 70 {
		b.mineExactly(t, txs[i:i+70])
	}
	b.wantCost(t, "70 in each of 6 blocks", more, 420, cost{trips: 4, byBlock: 7})
	head := b.query(t, txmanager.ChainQuery{}).Head.Number
	for i := range more.Hints {
		more.Hints[i].Block = head - 5 + uint64(i/70)
	}
	b.connectAnew(t)
	b.wantCost(t, "held, 70 in each of 6 blocks", more, 420, cost{trips: 3, byBlock: 6})
	q.Receipts, q.Hints = append(q.Receipts, more.Receipts...), append(q.Hints, more.Hints...)
	b.connectAnew(t)
	b.wantWindow(t, "both", q, 5, 520)
}

// The account's count shows the pending transactions in the first round trip. Few mined ones are
// requested singly.
func (b overJSONRPC) WindowPending(t *testing.T) {
	b.mine(t, 1)
	txs, q := b.window(t, 0, 90)
	b.mustSend(t, txs...)
	b.wantCost(t, "pending", q, 0, cost{trips: 1})
	b.reorg(t, raws(txs[:7]))
	b.wantCost(t, "7 of 90 mined", q, 7, cost{trips: 2, singly: 7})

	small := txmanager.ChainQuery{Account: true, Receipts: q.Receipts[:32], Hints: q.Hints[:32]}
	b.wantCost(t, "32 wanted", small, 7, cost{trips: 1, singly: 32})
	q.Account = false
	b.wantCost(t, "without the account", q, 7, cost{trips: 1, singly: 90})
}

// Of two versions of each nonce the mined one is found in the block, and the other is not requested. For an
// unconsumed nonce both are requested.
func (b overJSONRPC) WindowReplaced(t *testing.T) {
	var mined []txmanager.Signed
	q := txmanager.ChainQuery{Account: true}
	for n := range uint64(100) {
		for i := range uint64(2) {
			tx := b.tx(t, n, func(tx *txmanager.Unsigned) { tx.Value = new(big.Int).SetUint64(1 + i) })
			q.Receipts, q.Hints = append(q.Receipts, tx.Hash), append(q.Hints, txmanager.Hint{Nonce: n})
			if i == n%2 && n != 50 {
				mined = append(mined, tx)
			}
		}
		if n == 50 {
			mined = append(mined, b.tx(t, n, func(tx *txmanager.Unsigned) { tx.Value = big.NewInt(7) }))
		}
	}
	b.mineExactly(t, mined)
	b.wantCost(t, "two versions", q, 99, cost{trips: 3, singly: 2, byBlock: 1})
}

// After a reorg a window is found in its new blocks. A removed transaction is not found.
func (b contract) WindowAfterReorg(t *testing.T) {
	b.mine(t, 8)
	txs, q := b.window(t, 0, 120)
	b.mineExactly(t, txs)
	before := b.wantWindow(t, "before", q, 2, 120).Head
	b.mine(t, 2)
	held := heldAt(q, 120, before.Number)
	b.wantWindow(t, "before, held", held, 2, 120)

	b.reorg(t, nil, raws(txs[:100]), nil)
	v := b.wantWindow(t, "moved up", held, 4, 100)
	check.Equal(t, "moved up: block", v.Receipts[txs[0].Hash].Receipt.BlockNumber, before.Number+1)
	b.reorg(t, raws(txs[:90]), nil, nil)
	v = b.wantWindow(t, "the same height", held, 2, 90)
	if got := v.Receipts[txs[0].Hash].Receipt; got.BlockNumber != before.Number || got.BlockHash == before.Hash {
		t.Errorf("the same height: got %+v, want another block at %d", got, before.Number)
	}
	b.reorg(t, nil, nil, nil)
	b.wantWindow(t, "removed", held, 1, 0)
	b.wantWindow(t, "removed, held above the head", heldAt(q, 120, v.Head.Number+9), 1, 0)
	b.reorg(t, nil, nil, raws(txs[:80]))
	b.wantWindow(t, "held above the head", heldAt(q, 120, v.Head.Number+9), 2, 80)
}

// A node without block receipts is asked for each receipt singly, and is not asked for a block's receipts
// again soon.
func (b overJSONRPC) WindowWithoutBlockReceipts(t *testing.T) {
	txs, q := b.window(t, 0, 120)
	b.mineExactly(t, txs)
	for name, response := range map[string]map[string]any{
		"no such method": {"error": map[string]any{"code": -32601, "message": "the method eth_getBlockReceipts does not exist/is not available"}},
		"a refusal":      NodeError("response too large"),
		"no list":        {"result": "0x"},
	} {
		b.connectAnew(t)
		b.proxy.Set(FaultyMethod(byBlock, response))
		b.wantCost(t, name, q, 120, cost{trips: 3, singly: 120, byBlock: 1})
		b.wantCost(t, name+", again", q, 120, cost{trips: 2, singly: 120})
	}
}

// receiptList is a node's answer to a request for a block's receipts.
type receiptList []map[string]any

// with returns a distortion that sets a field of the receipts from one on; -1 is the last.
func with(from int, field string, value any) func(receiptList) any {
	return func(l receiptList) any {
		for _, r := range l[(from+len(l))%len(l):] {
			r[field] = value
		}
		return l
	}
}

// distortions are wrong answers of a node about a block's receipts.
var distortions = map[string]func(receiptList) any{
	"none":                      func(receiptList) any { return nil },
	"an empty list":             func(receiptList) any { return receiptList{} },
	"a list of nothing":         func(receiptList) any { return []any{nil} },
	"numbers":                   func(receiptList) any { return []int{1, 2} },
	"lists":                     func(l receiptList) any { return []receiptList{l} },
	"the first":                 func(l receiptList) any { return l[0] },
	"half":                      func(l receiptList) any { return l[:len(l)/2] },
	"a side block":              with(0, "blockHash", absentHash),
	"another height":            with(0, "blockNumber", "0x1"),
	"no height":                 with(0, "blockNumber", nil),
	"no block":                  with(0, "blockHash", nil),
	"no result":                 with(0, "status", nil),
	"others":                    with(0, "transactionHash", absentHash),
	"nobody's":                  with(0, "transactionHash", "0x"),
	"one of a side block":       with(-1, "blockHash", absentHash),
	"one of another height":     with(-1, "blockNumber", "0x1"),
	"one without a result":      with(-1, "status", nil),
	"one without a transaction": with(-1, "transactionHash", nil),
	"failures in a side block": func(l receiptList) any {
		with(0, "status", "0x0")(l)
		return with(0, "blockHash", absentHash)(l)
	},
}

// A wrong answer about a block's receipts makes no wrong receipt and hides none: not one of another block, of
// no block, or incomplete.
func (b overJSONRPC) FaultyBlockReceipts(t *testing.T) {
	b.mine(t, 3)
	txs, q := b.window(t, 0, 120)
	b.mineExactly(t, txs)
	held := heldAt(q, 120, b.query(t, txmanager.ChainQuery{}).Head.Number)
	for _, below := range []int{0, 1, 4} {
		for name, distort := range distortions {
			b.connectAnew(t)
			b.proxy.Set(Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
				var answer struct{ Result receiptList }
				if call.Method != byBlock || json.Unmarshal(own, &answer) != nil || len(answer.Result) == 0 {
					return nil
				}
				return Result(distort(answer.Result))
			}})
			b.wantWindow(t, fmt.Sprintf("%s, %d below the head", name, below), held, 5, 120)
		}
		b.mine(t, 1+2*below) // 0, then 1, then 4 below
	}
}

// Blocks that are added between round trips are part of the observation. If the chain is replaced in between,
// the query fails.
func (b overJSONRPC) WindowDuringNewBlocks(t *testing.T) {
	b.mine(t, 8)
	txs, q := b.window(t, 0, 120)
	b.mineExactly(t, txs[:100])
	at := b.query(t, txmanager.ChainQuery{}).Head.Number
	trips := 0
	every := func(do func(trip int) error) Fault {
		trips = 0
		return Fault{Batch: func(int) {
			trips++
			if err := do(trips); err != nil {
				t.Error(err)
			}
		}}
	}
	q.FromBlock, q.ToBlock = at-3, at+20
	for name, q := range map[string]txmanager.ChainQuery{"in the head": q, "held": heldAt(q, 100, at)} {
		b.proxy.Set(every(func(int) error { return b.Mine(2) }))
		v := b.wantWindow(t, name, q, 4, 100)
		check.Equal(t, name+": head", v.Head.Number, v.StartHead.Number+2*uint64(trips-1))
		if n := len(v.Headers); n == 0 || v.Headers[0].Number != at-3 || v.Headers[n-1] != *v.StartHead {
			t.Errorf("%s: headers: got %+v, want those up to %+v", name, v.Headers, v.StartHead)
		}
	}
	b.proxy.Set(every(func(trip int) error {
		if trip == 1 {
			return b.Reorg(nil, nil)
		}
		return nil
	}))
	b.wantNoObservation(t, "a head that was replaced after the first round trip", heldAt(q, 100, at))
}

// A lagging count, head or block hides nothing for good: the receipt is not found, or found singly.
func (b overJSONRPC) WindowOnALaggingNode(t *testing.T) {
	b.mine(t, 4)
	txs, q := b.window(t, 0, 120)
	replay := b.record(func() { b.query(t, q) })
	b.mineExactly(t, txs)

	b.proxy.Set(replay(func(c Call) bool { return c.Method == "eth_getTransactionCount" }))
	for h, a := range b.query(t, q).Receipts {
		if a.Answer != txmanager.AnswerNotFound {
			t.Fatalf("%s by a lagging count: got %+v, want not found", h, a)
		}
	}
	b.proxy.Set(FaultyMethod(byBlock, Result(nil)))
	b.wantWindow(t, "a block that lags", q, 3, 120)
	b.proxy.Set(replay(nil))
	check.Equal(t, "all of it lags", b.query(t, q).Receipts[txs[0].Hash].Answer, txmanager.AnswerNotFound)
}

// A receipt above the observation's head, or of another block at its height, is unknown, whether requested
// singly or with its block.
func (b overJSONRPC) ReceiptOutsideTheObservation(t *testing.T) {
	txs, q := b.window(t, 0, 120)
	b.mineExactly(t, txs)
	small := txmanager.ChainQuery{Receipts: q.Receipts[:1]}
	for name, change := range map[string]map[string]any{
		"above the head": {"blockNumber": "0xffff"},
		"another head":   {"blockHash": absentHash},
	} {
		b.proxy.Set(changing(func(call Call) bool { return call.Method == singly || call.Method == byBlock },
			func(receipt map[string]any) { maps.Copy(receipt, change) }))
		for _, q := range []txmanager.ChainQuery{small, q} {
			for h, a := range b.query(t, q).Receipts {
				if a.Answer != txmanager.AnswerUnknown {
					t.Fatalf("%s, one of %d: got %+v for %s, want unknown", name, len(q.Receipts), a, h)
				}
			}
		}
	}
}
