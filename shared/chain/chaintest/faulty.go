package chaintest

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

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
