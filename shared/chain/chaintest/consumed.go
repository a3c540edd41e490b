package chaintest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each consumed nonce is found with its transaction's call: alone in its block or among others, even if other
// accounts used the same nonce there.
func (b contract) Consumed(t *testing.T) {
	b.mine(t, 3)
	other := b.other()
	txs := []txmanager.Signed{
		b.tx(t, 0, nil),
		b.tx(t, 1, func(tx *txmanager.Unsigned) { tx.Gas, tx.Data = 500_000, bytes.Repeat([]byte{0xda, 0x7a}, 1500) }),
		b.tx(t, 2, b.fails),
		b.tx(t, 3, func(tx *txmanager.Unsigned) { tx.Value = new(big.Int).Lsh(big.NewInt(1), 70) }),
		b.tx(t, 4, func(tx *txmanager.Unsigned) {
			tx.To, tx.Value = new(other.submitter.Address()), big.NewInt(1e18)
		}),
	}
	b.include(t, 1, txs...)
	for n := range uint64(6) {
		b.mustSend(t, other.tx(t, n, func(tx *txmanager.Unsigned) { tx.TipCapWei = big.NewInt(2e9) }))
	}
	for n, blocks := range []int{70, 1, 1} { // the first among the other's, the last in the head
		txs = append(txs, b.tx(t, uint64(5+n), nil))
		b.include(t, blocks, txs[5+n])
	}
	for n, tx := range txs {
		before := b.Family.RoundTrips()
		b.wantConsumer(t, "mined", uint64(n), tx)
		if got, limit := b.Family.RoundTrips()-before, uint64(1+4); got > limit { // one round trip is for the receipt
			t.Errorf("nonce %d: got %d round trips, want at most %d", n, got, limit)
		}
	}
}

// A pending or unused nonce is not consumed, and only then does the answer say so.
func (b contract) NotConsumed(t *testing.T) {
	b.wantNotConsumed(t, "fresh account", 0)
	b.mustSend(t, b.tx(t, 0, nil), b.tx(t, 1, nil))
	b.wantNotConsumed(t, "pending", 0)
	b.mine(t, 1)
	b.wantNotConsumed(t, "behind the last", 2)
	check.OK(t)(b.DropPool())
	b.mustSend(t, b.tx(t, 2, nil))
	b.wantNotConsumed(t, "pending behind mined ones", 2)
	if b.proxy == nil {
		return
	}

	for name, fault := range map[string]Fault{
		"a dropped answer":  {Drop: true},
		"no count":          FaultyMethod("eth_getTransactionCount", NodeError("header not found")),
		"null for a count":  FaultyMethod("eth_getTransactionCount", Result(nil)),
		"no block":          FaultyMethod("eth_getBlockByNumber", NodeError("header not found")),
		"null for a block":  FaultyMethod("eth_getBlockByNumber", Result(nil)),
		"rate limited":      FaultyMethod("eth_getBlockByNumber", NodeError("daily request rate limit exceeded")),
		"text for a number": FaultyMethod("eth_getTransactionCount", Result("few")),
	} {
		b.proxy.Set(fault)
		if err := b.wantUntold(t, name, 0); isPermanent(err) {
			t.Errorf("%s: got %v, want an error after which the node is asked again", name, err)
		}
	}
	b.proxy.Set(FaultyMethod("eth_getTransactionCount", NodeError(strings.Repeat("\x00 words", 1000))))
	if err := b.wantUntold(t, "words without end", 0); err != nil && (len(err.Error()) > 600 || strings.Contains(err.Error(), "\x00")) {
		t.Errorf("words without end: got %d bytes, %q, want a few, and no NUL", len(err.Error()), err)
	}
	b.proxy.Set(Fault{})
	b.submitter = b.onChain(b.ChainID + 1)
	b.wantUntold(t, "a submitter of another chain", 0)
}

// A node without the states of old blocks finds nonces above them, and returns its own error for older ones,
// which is not *not consumed*.
func (b overJSONRPC) ConsumedOnAPrunedNode(t *testing.T) {
	const words = "missing trie node 5f3a (path ) state 0x5f3a is not available"
	txs := make([]txmanager.Signed, 3)
	for n := range txs {
		txs[n] = b.tx(t, uint64(n), nil)
		b.include(t, 1, txs[n])
	}
	b.mine(t, 40)
	oldest := b.query(t, txmanager.ChainQuery{Receipts: []txmanager.Hash{txs[1].Hash}}).Receipts[txs[1].Hash].Receipt.BlockNumber
	silent := answering(countsWhere(func(at uint64) bool { return at < oldest }), NodeError(words))
	b.proxy.Set(silent)
	b.wantConsumer(t, "above the oldest state", 2, txs[2])
	b.wantConsumer(t, "in the block of the oldest state", 1, txs[1])
	if err := b.wantUntold(t, "below the oldest state", 0); !isPermanent(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("below the oldest state: got %v, want the node's text", err)
	}
	lowered := changing(wholeBlock, func(block map[string]any) { block["number"] = lower(block["number"]) })
	b.proxy.Set(Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
		if refused := silent.Answer(call, own); refused != nil {
			return refused
		}
		return lowered.Answer(call, own)
	}})
	check.Err(t, "below the oldest state, and another block than the one asked for", txmanager.ErrNoCounts)(b.wantUntold(t, "another block", 0))
	b.proxy.Set(silent)
	b.wantNotConsumed(t, "pruned node", 3)
}

// The same on a node that has really deleted states. A node that keeps them all finds each nonce.
func (b contract) ConsumedBelowTheKeptStates(t *testing.T) {
	const kept = 128
	old, young := b.tx(t, 0, nil), b.tx(t, 1, nil)
	b.include(t, kept, old)
	b.wantConsumer(t, "still kept", 0, old)
	b.mine(t, 5)
	b.include(t, kept/2, young)
	b.wantConsumer(t, "kept", 1, young)
	if b.KeepsStates {
		b.wantConsumer(t, "an old block", 0, old)
		return
	}
	if err := b.wantUntold(t, "deleted", 0); !isPermanent(err) || !strings.Contains(err.Error(), "no counts") {
		t.Errorf("deleted: got %v, want an error that the node has no counts", err)
	}
}

// In 20 million blocks the search takes at most eight round trips, and few if the nonce was consumed
// recently. The node's answers are moved to such heights.
func (b overJSONRPC) ConsumedAmongMillions(t *testing.T) {
	const head = 20_000_000
	tx := b.tx(t, 0, nil)
	b.include(t, 1, tx)
	var block map[string]any
	b.proxy.Set(changing(wholeBlock, func(own map[string]any) { block = own }))
	b.wantConsumer(t, "at its own height", 0, tx)
	for height, limit := range map[uint64]uint64{1: 8, 2: 8, head / 2: 8, head / 3: 8, head - 7_000: 6, head - 300: 5, head - 20: 4, head: 3} {
		b.proxy.Set(moved(block, height, head))
		before := b.Family.RoundTrips()
		got, err := b.connector.FindConsumingTx(t.Context(), b.submitter, 0)
		if err != nil || got.BlockNumber != height || got.Hash != tx.Hash {
			t.Errorf("at height %d of %d: got %+v, %v, want %s", height, head, got, err, tx.Hash)
		}
		if trips := b.Family.RoundTrips() - before; trips > limit {
			t.Errorf("at height %d of %d: got %d round trips, want at most %d", height, head, trips, limit)
		}
	}
}

// moved simulates a chain of head blocks with the given block at height, which has the account's first
// transaction.
func moved(block map[string]any, height, head uint64) Fault {
	return Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		at, ok := call.countsAt()
		switch {
		case ok && at < height:
			return Result("0x0")
		case call.Method == "eth_getTransactionCount":
			return Result("0x1")
		case call.asksFor("latest"):
			return Result(map[string]any{"number": hexutil.EncodeUint64(head), "hash": absentHash, "parentHash": absentHash, "timestamp": "0x1", "baseFeePerGas": "0x1"})
		case call.asksFor(hexutil.EncodeUint64(height)):
			at := maps.Clone(block)
			at["number"] = hexutil.EncodeUint64(height)
			return Result(at)
		}
		return nil
	}}
}

// countsAt returns the height at which the call requests an account's count.
func (c Call) countsAt() (uint64, bool) {
	if c.Method != "eth_getTransactionCount" || len(c.Params) != 2 {
		return 0, false
	}
	text, _ := c.Params[1].(string)
	at, err := hexutil.DecodeUint64(text)
	return at, err == nil
}

// A reorg during the search misleads it once. The search is repeated and returns the new chain's transaction.
func (b overJSONRPC) ConsumedDuringReorg(t *testing.T) {
	b.mine(t, 8)
	first, second := b.version(t, 1, 0), b.version(t, 2, 25)
	b.include(t, 3, first)
	for name, consumer := range map[string]txmanager.Signed{"moved": first, "replaced": second} {
		reorged := false
		b.proxy.Set(Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
			if _, ok := call.countsAt(); ok && !reorged {
				reorged = true
				b.reorg(t, nil, nil, [][]byte{consumer.Raw})
			}
			return nil
		}})
		b.wantConsumer(t, name, 0, consumer)
		check.Equal(t, name+": a reorg during the search", reorged, true)
		b.proxy.Set(Fault{})
		b.reorg(t, [][]byte{first.Raw}, nil, nil)
	}
}

// A block without the account's transaction, or a count of another node's chain, ends the search after one
// more attempt without a result.
func (b overJSONRPC) WrongConsumptionIsRejected(t *testing.T) {
	b.mine(t, 8)
	b.include(t, 3, b.tx(t, 0, nil), b.tx(t, 1, nil))
	for name, distort := range map[string]func(block map[string]any){
		"no transactions": func(block map[string]any) { block["transactions"] = []any{} },
		"another block":   func(block map[string]any) { block["number"] = lower(block["number"]) },
		"another account": func(block map[string]any) { eachTx(block, "from", b.to().String()) },
		"another nonce":   func(block map[string]any) { eachTx(block, "nonce", "0x7") },
		"no value":        func(block map[string]any) { eachTx(block, "value", nil) },
		"no input":        func(block map[string]any) { eachTx(block, "input", nil) },
		"to nowhere":      func(block map[string]any) { eachTx(block, "to", "0x12") },
	} {
		asked := 0
		b.proxy.Set(changing(func(call Call) bool {
			if !wholeBlock(call) {
				return false
			}
			asked++ // also for a block that is not there
			return true
		}, distort))
		b.wantUntold(t, name, 0)
		if asked == 0 || asked > 2 {
			t.Errorf("%s: got %d blocks asked for, want one, and at most one more", name, asked)
		}
	}
	b.proxy.Set(FaultyMethod("eth_getTransactionCount", Result("0x1")))
	b.wantUntold(t, "a count of 1 at every height", 0)
}

func eachTx(block map[string]any, field string, value any) {
	for _, tx := range block["transactions"].([]any) {
		tx.(map[string]any)[field] = value
	}
}

// A nonce that an EIP-7702 authorization consumed has no transaction of the account: the result is unknown.
// From then on the account has code.
func (b overJSONRPC) ConsumedByAnAuthorization(t *testing.T) {
	other := b.other()
	b.include(t, 1, b.tx(t, 0, func(tx *txmanager.Unsigned) { tx.To, tx.Value = new(other.submitter.Address()), big.NewInt(1e18) }))
	other.include(t, 40, other.delegation(t, b.bundle, 1))
	last := b.tx(t, 2, nil)
	b.include(t, 1, last)
	if a := b.query(t, txmanager.ChainQuery{Account: true}).Account; !a.HasCode || a.LatestCount != 3 {
		t.Errorf("account: got code %t and count %d, want code and 3", a.HasCode, a.LatestCount)
	}
	if err := b.wantUntold(t, "by an authorization", 1); !isPermanent(err) {
		t.Errorf("by an authorization: got %v, want ErrNotTold", err)
	}
	b.wantConsumer(t, "behind it", 2, last)
}

// delegation is the account's first transaction. It carries an authorization of another account with nonce n.
func (b *bundle) delegation(t *testing.T, of *bundle, n uint64) txmanager.Signed {
	t.Helper()
	auth := types.SetCodeAuthorization{Address: common.Address{0xfe}, Nonce: n}
	auth.ChainID.SetUint64(b.ChainID)
	auth = check.Value(types.SignSetCode(of.Key, auth))(t)
	return Sign(t, b.Key, b.ChainID, &types.SetCodeTx{GasTipCap: auth.ChainID.Clone().SetUint64(1e9), GasFeeCap: auth.ChainID.Clone().SetUint64(10e9),
		Gas: 200_000, To: common.Address{0xfd}, AuthList: []types.SetCodeAuthorization{auth}})
}

// wantConsumer requires tx as the transaction that consumed nonce n, in the block of its receipt.
func (b *bundle) wantConsumer(t *testing.T, when string, n uint64, tx txmanager.Signed) {
	t.Helper()
	got, err := b.connector.FindConsumingTx(t.Context(), b.submitter, n)
	if err != nil {
		t.Errorf("%s: nonce %d: %v", when, n, err)
		return
	}
	want := check.Value(b.callOf(tx))(t)
	v := b.query(t, txmanager.ChainQuery{Receipts: []txmanager.Hash{tx.Hash}})
	receipt := v.Receipts[tx.Hash].Receipt
	want.Hash, want.BlockNumber, want.BlockHash, want.Node = tx.Hash, receipt.BlockNumber, receipt.BlockHash, v.Node
	check.Same(t, fmt.Sprintf("%s: transaction of nonce %d", when, n), got, want)
}

// callOf returns the call of signed bytes. On an EVM chain go-ethereum reads it, not the connector under test.
func (b *bundle) callOf(tx txmanager.Signed) (call txmanager.ConsumingTx, err error) {
	if b.Key == nil {
		_, sent, _, err := b.connector.ParseSigned(tx.Raw)
		return txmanager.ConsumingTx{To: sent.To, ValueWei: sent.Value.String(), Data: append([]byte{}, sent.Data...)}, err
	}
	var sent types.Transaction
	if err := sent.UnmarshalBinary(tx.Raw); err != nil {
		return call, err
	}
	if sent.To() != nil {
		call.To = new(txmanager.Address(strings.ToLower(sent.To().Hex())))
	}
	call.ValueWei, call.Data = sent.Value().String(), append([]byte{}, sent.Data()...)
	return call, nil
}

// Each address that the connector returns is in the family's canonical form.
func (b contract) CanonicalAddresses(t *testing.T) {
	tx := b.tx(t, 0, nil)
	b.include(t, 100, tx)
	payload, _, err := b.Family.ParsePayload(fmt.Appendf(nil, `{"to": %q, "value": "1"}`, *b.to()))
	check.OK(t)(err)
	call, errPayload := b.connector.ParsePayload(payload)
	from, parsed, _, errSigned := b.connector.ParseSigned(tx.Raw)
	consuming, errConsuming := b.connector.FindConsumingTx(t.Context(), b.submitter, 0)
	blocks, errBlocks := b.connector.ReadBlocks(t.Context(), txmanager.BlocksQuery{Submitter: b.submitter, MaxBlocks: 50})
	known, errKnown := b.connector.Transaction(t.Context(), tx.Hash)
	check.OK(t)(errors.Join(errPayload, errSigned, errConsuming, errBlocks, errKnown))
	for where, a := range map[string]*txmanager.Address{
		"ParsePayload": call.To, "ParseSigned, from": &from, "ParseSigned, to": parsed.To, "FindConsumingTx": consuming.To,
		"ReadBlocks": blocks.Transactions[0].To, "Transaction, from": &known.From, "Transaction, to": known.Tx.To,
	} {
		if a == nil {
			t.Errorf("%s: got no address, want one", where)
		} else if canonical, err := b.Family.ParseAddress(a.String()); err != nil || canonical != *a {
			t.Errorf("%s: got address %q, want its canonical form %q (%v)", where, *a, canonical, err)
		}
	}
}

func (b *bundle) wantNotConsumed(t *testing.T, when string, n uint64) {
	t.Helper()
	if got, err := b.connector.FindConsumingTx(t.Context(), b.submitter, n); !errors.Is(err, txmanager.ErrNotConsumed) {
		t.Errorf("%s: nonce %d: got %+v, %v, want ErrNotTaken", when, n, got, err)
	}
}

// wantUntold requires an error that says nothing about the chain.
func (b *bundle) wantUntold(t *testing.T, when string, n uint64) error {
	t.Helper()
	got, err := b.connector.FindConsumingTx(t.Context(), b.submitter, n)
	if err == nil || errors.Is(err, txmanager.ErrNotConsumed) {
		t.Errorf("%s: nonce %d: got %+v, %v, want another error than ErrNotTaken", when, n, got, err)
	}
	return err
}

// isPermanent reports whether the node that answered permanently cannot tell. Of several nodes the
// unavailable ones may still know.
func isPermanent(err error) bool {
	return errors.Is(err, txmanager.ErrConsumerUnavailable) || err != nil && strings.Contains(err.Error(), "nodes may answer later")
}
