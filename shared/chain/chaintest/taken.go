package chaintest

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Each consumed nonce is found with what its transaction did: alone in its
// block or among others, and whoever else used the same nonce there.
func testTaken(t *testing.T, b *bundle) {
	b.mine(t, 3)
	other := b.other(t)
	txs := []nonce.Signed{
		b.tx(t, 0, nil),
		b.tx(t, 1, func(tx *types.DynamicFeeTx) { tx.Gas, tx.Data = 500_000, bytes.Repeat([]byte{0xda, 0x7a}, 1500) }),
		b.tx(t, 2, func(tx *types.DynamicFeeTx) { tx.To, tx.Value, tx.Data = nil, nil, revert }),
		b.tx(t, 3, func(tx *types.DynamicFeeTx) { tx.Value = new(big.Int).Lsh(big.NewInt(1), 70) }),
		b.tx(t, 4, func(tx *types.DynamicFeeTx) {
			to := common.Address(other.submitter.Address())
			tx.To, tx.Value = &to, big.NewInt(1e18)
		}),
	}
	b.mustSend(t, txs...)
	b.mine(t, 1)
	for n := range uint64(6) {
		b.mustSend(t, other.tx(t, n, func(tx *types.DynamicFeeTx) { tx.GasTipCap = big.NewInt(2e9) }))
	}
	for n, blocks := range []int{70, 1, 1} { // the first among the other's, the last in the head
		txs = append(txs, b.tx(t, uint64(5+n), nil))
		b.mustSend(t, txs[5+n])
		b.mine(t, blocks)
	}
	for n, tx := range txs {
		before := b.proxy.RoundTrips()
		b.wantTaker(t, "mined", uint64(n), tx)
		if got, most := b.proxy.RoundTrips()-before, uint64(1+4); got > most { // one is for the receipt
			t.Errorf("nonce %d: got %d round trips, want at most %d", n, got, most)
		}
	}
}

// other is the bundle of another account of the same chain.
func (b *bundle) other(t *testing.T) *bundle {
	t.Helper()
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	other := *b
	other.Key = key
	other.submitter = nonce.NewSubmitter(b.ChainID, nonce.Address(crypto.PubkeyToAddress(key.PublicKey)))
	return &other
}

// A nonce that is pending, or that nobody has used, is not taken, and only then
// does the answer say so.
func testNotTaken(t *testing.T, b *bundle) {
	b.wantNotTaken(t, "fresh account", 0)
	b.mustSend(t, b.tx(t, 0, nil), b.tx(t, 1, nil))
	b.wantNotTaken(t, "pending", 0)
	b.mine(t, 1)
	b.wantNotTaken(t, "behind the last", 2)
	if err := b.DropPool(); err != nil {
		t.Fatal(err)
	}
	b.mustSend(t, b.tx(t, 2, nil))
	b.wantNotTaken(t, "pending behind mined ones", 2)

	for name, fault := range map[string]Fault{
		"a dropped answer":  {Drop: true},
		"no count":          SpoilMethod("eth_getTransactionCount", NodeError("header not found")),
		"null for a count":  SpoilMethod("eth_getTransactionCount", map[string]any{"result": nil}),
		"no block":          SpoilMethod("eth_getBlockByNumber", NodeError("header not found")),
		"null for a block":  SpoilMethod("eth_getBlockByNumber", map[string]any{"result": nil}),
		"rate limited":      SpoilMethod("eth_getBlockByNumber", NodeError("daily request rate limit exceeded")),
		"text for a number": SpoilMethod("eth_getTransactionCount", map[string]any{"result": "few"}),
	} {
		b.proxy.Set(fault)
		if err := b.wantUntold(t, name, 0); saysForGood(err) {
			t.Errorf("%s: got %v, want an error after which the node is asked again", name, err)
		}
	}
	b.proxy.Set(SpoilMethod("eth_getTransactionCount", NodeError(strings.Repeat("\x00 words", 1000))))
	if err := b.wantUntold(t, "words without end", 0); err != nil && (len(err.Error()) > 600 || strings.Contains(err.Error(), "\x00")) {
		t.Errorf("words without end: got %d bytes, %q, want a few, and no NUL", len(err.Error()), err)
	}
	b.proxy.Set(Fault{})
	b.submitter = nonce.NewSubmitter(b.ChainID+1, b.submitter.Address())
	b.wantUntold(t, "a submitter of another chain", 0)
}

// A node without the states of old blocks tells of what is above them, and its
// own words for what is below: that is not *not taken*.
func testTakenOnAPrunedNode(t *testing.T, b *bundle) {
	const words = "missing trie node 5f3a (path ) state 0x5f3a is not available"
	txs := make([]nonce.Signed, 3)
	for n := range txs {
		txs[n] = b.tx(t, uint64(n), nil)
		b.mustSend(t, txs[n])
		b.mine(t, 1)
	}
	b.mine(t, 40)
	oldest := b.look(t, nonce.Look{Receipts: []nonce.Hash{txs[1].Hash}}).Receipts[txs[1].Hash].Receipt.BlockNumber
	b.proxy.Set(Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		if at, ok := call.countsAt(); !ok || at >= oldest {
			return nil
		}
		return NodeError(words)
	}})
	b.wantTaker(t, "above the oldest state", 2, txs[2])
	b.wantTaker(t, "in the block of the oldest state", 1, txs[1])
	if err := b.wantUntold(t, "below the oldest state", 0); !saysForGood(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("below the oldest state: got %v, want the node's words", err)
	}
	b.wantNotTaken(t, "pruned node", 3)
}

// The same on a node that has really thrown states away; one that keeps them all
// tells of every nonce.
func testTakenBelowWhatTheNodeKeeps(t *testing.T, b *bundle) {
	const kept = 128
	old, young := b.tx(t, 0, nil), b.tx(t, 1, nil)
	b.mustSend(t, old)
	b.mine(t, kept)
	b.wantTaker(t, "still kept", 0, old)
	b.mine(t, 5)
	b.mustSend(t, young)
	b.mine(t, kept/2)
	b.wantTaker(t, "kept", 1, young)
	if b.KeepsStates {
		b.wantTaker(t, "an old block", 0, old)
		return
	}
	if err := b.wantUntold(t, "thrown away", 0); !saysForGood(err) || !strings.Contains(err.Error(), "no counts") {
		t.Errorf("thrown away: got %v, want it to say that the node has no counts", err)
	}
}

// In 20 million blocks the search takes eight round trips at most, and few where
// the nonce was taken lately. The node's answers are moved to such heights.
func testTakenAmongMillions(t *testing.T, b *bundle) {
	const head = 20_000_000
	tx := b.tx(t, 0, nil)
	b.mustSend(t, tx)
	b.mine(t, 1)
	var block map[string]any
	b.proxy.Set(Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
		if call.Method == "eth_getBlockByNumber" && call.Params[1] == true {
			_ = json.Unmarshal(own, &block) // a node's answer
		}
		return nil
	}})
	b.wantTaker(t, "at its own height", 0, tx)
	for height, most := range map[uint64]uint64{1: 8, 2: 8, head / 2: 8, head / 3: 8, head - 7_000: 6, head - 300: 5, head - 20: 4, head: 3} {
		b.proxy.Set(moved(block, height, head))
		before := b.proxy.RoundTrips()
		got, err := b.connector.Taken(t.Context(), b.submitter, 0)
		if err != nil || got.BlockNumber != height || got.Hash != tx.Hash {
			t.Errorf("at height %d of %d: got %+v, %v, want %s", height, head, got, err, tx.Hash)
		}
		if trips := b.proxy.RoundTrips() - before; trips > most {
			t.Errorf("at height %d of %d: got %d round trips, want at most %d", height, head, trips, most)
		}
	}
}

// moved makes a chain of head blocks of which the given one is at height, with
// the account's first transaction.
func moved(block map[string]any, height, head uint64) Fault {
	return Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		at, ok := call.countsAt()
		switch {
		case ok && at < height:
			return map[string]any{"result": "0x0"}
		case call.Method == "eth_getTransactionCount":
			return map[string]any{"result": "0x1"}
		case call.asksFor("latest"):
			return map[string]any{"result": map[string]any{"number": hexutil.EncodeUint64(head), "hash": nobody, "parentHash": nobody, "timestamp": "0x1", "baseFeePerGas": "0x1"}}
		case call.asksFor(hexutil.EncodeUint64(height)):
			result := maps.Clone(block["result"].(map[string]any))
			result["number"] = hexutil.EncodeUint64(height)
			return map[string]any{"result": result}
		}
		return nil
	}}
}

// countsAt is the height at which the call asks for an account's count.
func (c Call) countsAt() (uint64, bool) {
	if c.Method != "eth_getTransactionCount" || len(c.Params) != 2 {
		return 0, false
	}
	text, _ := c.Params[1].(string)
	at, err := hexutil.DecodeUint64(text)
	return at, err == nil
}

// After a reorg the nonce is taken by whatever the new chain has: the same
// transaction elsewhere, another one, or none.
func testTakenAfterReorg(t *testing.T, b *bundle) {
	b.mine(t, 2)
	first, second := b.version(t, 1, 0), b.version(t, 2, 25)
	b.mustSend(t, first)
	b.mine(t, 4)
	b.wantTaker(t, "mined", 0, first)
	b.reorg(t, nil, nil, [][]byte{first.Raw}, nil)
	b.wantTaker(t, "moved", 0, first)
	b.reorg(t, nil, [][]byte{second.Raw}, nil)
	b.wantTaker(t, "replaced", 0, second)
	b.reorg(t, nil, nil, nil, nil)
	b.wantNotTaken(t, "removed", 0)
}

// A reorg while the search is under way leads it astray once; it is made again
// and tells of the new chain.
func testTakenDuringReorg(t *testing.T, b *bundle) {
	b.mine(t, 8)
	first, second := b.version(t, 1, 0), b.version(t, 2, 25)
	b.mustSend(t, first)
	b.mine(t, 3)
	for name, taker := range map[string]nonce.Signed{"moved": first, "replaced": second} {
		reorged := false
		b.proxy.Set(Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
			if _, ok := call.countsAt(); ok && !reorged {
				reorged = true
				b.reorg(t, nil, nil, [][]byte{taker.Raw})
			}
			return nil
		}})
		b.wantTaker(t, name, 0, taker)
		if !reorged {
			t.Errorf("%s: got no reorg during the search, want one", name)
		}
		b.proxy.Set(Fault{})
		b.reorg(t, [][]byte{first.Raw}, nil, nil)
	}
}

// A block without the account's transaction, and a count that belongs to another
// node's chain, end the search after one more attempt; nothing is made of them.
func testTakenIsNotBelieved(t *testing.T, b *bundle) {
	b.mine(t, 8)
	b.mustSend(t, b.tx(t, 0, nil), b.tx(t, 1, nil))
	b.mine(t, 3)
	for name, spoil := range map[string]func(block map[string]any){
		"no transactions": func(block map[string]any) { block["transactions"] = []any{} },
		"another block":   func(block map[string]any) { block["number"] = lower(block["number"]) },
		"another account": func(block map[string]any) { eachTx(block, "from", b.other(t).submitter.Address().String()) },
		"another nonce":   func(block map[string]any) { eachTx(block, "nonce", "0x7") },
		"no value":        func(block map[string]any) { eachTx(block, "value", nil) },
		"no input":        func(block map[string]any) { eachTx(block, "input", nil) },
		"to nowhere":      func(block map[string]any) { eachTx(block, "to", "0x12") },
	} {
		asked := 0
		b.proxy.Set(Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
			if call.Method != "eth_getBlockByNumber" || call.Params[1] != true {
				return nil
			}
			asked++
			var response struct{ Result map[string]any }
			_ = json.Unmarshal(own, &response) // a node's answer
			spoil(response.Result)
			return map[string]any{"result": response.Result}
		}})
		b.wantUntold(t, name, 0)
		if asked == 0 || asked > 2 {
			t.Errorf("%s: got %d blocks asked for, want one, and at most one more", name, asked)
		}
	}
	b.proxy.Set(SpoilMethod("eth_getTransactionCount", map[string]any{"result": "0x1"}))
	b.wantUntold(t, "a count of 1 at every height", 0)
}

func eachTx(block map[string]any, field string, value any) {
	for _, tx := range block["transactions"].([]any) {
		tx.(map[string]any)[field] = value
	}
}

// A nonce that an authorization consumed (EIP-7702) was taken by no transaction
// of the account: that is told as unknown. From then on the account has code.
func testTakenByAnAuthorization(t *testing.T, b *bundle) {
	other := b.other(t)
	to := common.Address(other.submitter.Address())
	b.mustSend(t, b.tx(t, 0, func(tx *types.DynamicFeeTx) { tx.To, tx.Value = &to, big.NewInt(1e18) }))
	b.mine(t, 1)
	other.mustSend(t, other.delegation(t, b, 1))
	b.mine(t, 40)
	last := b.tx(t, 2, nil)
	b.mustSend(t, last)
	b.mine(t, 1)
	if a := b.look(t, nonce.Look{Account: true}).Account; !a.HasCode || a.LatestCount != 3 {
		t.Errorf("account: got code %t and count %d, want code and 3", a.HasCode, a.LatestCount)
	}
	if err := b.wantUntold(t, "by an authorization", 1); !saysForGood(err) {
		t.Errorf("by an authorization: got %v, want ErrNotTold", err)
	}
	b.wantTaker(t, "behind it", 2, last)
}

// delegation is the account's first transaction; it carries an authorization of
// another account with nonce n.
func (b *bundle) delegation(t *testing.T, of *bundle, n uint64) nonce.Signed {
	t.Helper()
	auth := types.SetCodeAuthorization{Address: common.Address{0xfe}, Nonce: n}
	auth.ChainID.SetUint64(b.ChainID)
	auth, err := types.SignSetCode(of.Key, auth)
	if err != nil {
		t.Fatal(err)
	}
	inner := &types.SetCodeTx{ChainID: &auth.ChainID, GasTipCap: auth.ChainID.Clone().SetUint64(1e9),
		GasFeeCap: auth.ChainID.Clone().SetUint64(10e9), Gas: 200_000, To: common.Address{0xfd},
		Value: auth.ChainID.Clone().Clear(), AuthList: []types.SetCodeAuthorization{auth}}
	signed, err := types.SignNewTx(b.Key, b.signer, inner)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return nonce.Signed{Hash: nonce.Hash(signed.Hash()), Raw: raw}
}

// wantTaker wants tx found as what took nonce n, in the block of its receipt.
func (b *bundle) wantTaker(t *testing.T, when string, n uint64, tx nonce.Signed) {
	t.Helper()
	got, err := b.connector.Taken(t.Context(), b.submitter, n)
	if err != nil {
		t.Errorf("%s: nonce %d: %v", when, n, err)
		return
	}
	var sent types.Transaction
	if err := sent.UnmarshalBinary(tx.Raw); err != nil {
		t.Fatal(err)
	}
	v := b.look(t, nonce.Look{Receipts: []nonce.Hash{tx.Hash}})
	receipt := v.Receipts[tx.Hash].Receipt
	want := nonce.Taker{Hash: tx.Hash, BlockNumber: receipt.BlockNumber, BlockHash: receipt.BlockHash, Node: v.Node,
		To: (*nonce.Address)(sent.To()), ValueWei: sent.Value().String(), Data: append([]byte{}, sent.Data()...)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: taker of nonce %d (-want +got):\n%s", when, n, diff)
	}
}

func (b *bundle) wantNotTaken(t *testing.T, when string, n uint64) {
	t.Helper()
	if got, err := b.connector.Taken(t.Context(), b.submitter, n); !errors.Is(err, nonce.ErrNotTaken) {
		t.Errorf("%s: nonce %d: got %+v, %v, want ErrNotTaken", when, n, got, err)
	}
}

// wantUntold wants an error that says nothing about the chain.
func (b *bundle) wantUntold(t *testing.T, when string, n uint64) error {
	t.Helper()
	got, err := b.connector.Taken(t.Context(), b.submitter, n)
	if err == nil || errors.Is(err, nonce.ErrNotTaken) {
		t.Errorf("%s: nonce %d: got %+v, %v, want another error than ErrNotTaken", when, n, got, err)
	}
	return err
}

// saysForGood says that the node which answers cannot tell. Of several nodes those that
// are away may.
func saysForGood(err error) bool {
	return errors.Is(err, nonce.ErrNotTold) || err != nil && strings.Contains(err.Error(), "nodes may tell later")
}
