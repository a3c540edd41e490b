package memchain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// node implements [chain.Node].
type node struct {
	Family
	*Chain
	options chain.NodeOptions
}

// Node returns a node of the chain.
func (c *Chain) Node(o chain.NodeOptions) chain.Node {
	o.Node = cmp.Or(o.Node, "memory")
	return node{Family{c}, c, o}
}

// request counts a round trip, and gets its answer from the locked chain. An account must be of the chain.
func request[T any](n node, of txmanager.Submitter, answer func() (T, error)) (none T, err error) {
	n.requests.Add(1)
	if n.options.ChainID != n.ID || of != "" && (of.ChainID() != n.ID || of.Namespace() != Namespace) {
		return none, fmt.Errorf("node %s, %s: %w", n.Name(), of, chain.ErrWrongChain)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return answer()
}

func (n node) Name() string { return n.options.Node }

func (node) VerifyAgain() {}

func (node) Close() {}

func (n node) ParsePayload(stored []byte) (txmanager.Call, error) { return n.StoredCall(stored) }

func (node) CheckCall(c txmanager.Call) error { return checkCall(c) }

func (node) ParseSigned(raw []byte) (txmanager.Address, txmanager.Unsigned, txmanager.Signed, error) {
	t, err := decode(raw)
	return t.from, t.tx, t.Signed, err
}

func (n node) Query(_ context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	return request(n, q.Submitter, func() (txmanager.ChainObservation, error) { return n.observe(q) })
}

func (n node) observe(q txmanager.ChainQuery) (v txmanager.ChainObservation, err error) {
	if len(q.HashesAt) > 100 || !slices.Contains([]string{"", "safe", "finalized"}, q.Finality) {
		return v, fmt.Errorf("%d heights and finality %q: want at most 100, and safe or finalized", len(q.HashesAt), q.Finality)
	}
	head, from := n.head(), q.Submitter.Address()
	v = txmanager.ChainObservation{
		Node: n.Name(), Head: head.Header, StartHead: &head.Header,
		Receipts: map[txmanager.Hash]txmanager.ReceiptAnswer{}, Known: map[txmanager.Hash]txmanager.Answer{}, HashesAt: map[uint64]txmanager.Hash{},
	}
	if q.Account {
		v.Account = txmanager.Account{
			LatestCount: head.counts[from], PendingCount: n.pendingCount(from), BalanceWei: head.balance(from),
			BaseFeeWei: new(big.Int), GasPriceWei: big.NewInt(price),
		}
	}
	for _, h := range q.Receipts {
		v.Receipts[h] = n.receipt(h)
	}
	for _, h := range q.Known {
		v.Known[h] = txmanager.AnswerNotFound
		if _, _, ok := n.find(h); ok {
			v.Known[h] = txmanager.AnswerFound
		}
	}
	for at := q.FromBlock; q.ToBlock > 0 && at <= min(q.ToBlock, head.Number); at++ {
		v.Headers = append(v.Headers, n.blocks[at].Header)
	}
	for _, at := range q.HashesAt {
		if at <= head.Number {
			v.HashesAt[at] = n.blocks[at].Hash
		}
	}
	for _, c := range q.Estimates {
		v.Estimates = append(v.Estimates, n.estimate(from, c))
	}
	if q.SelfTransfer {
		v.SelfTransfer = n.estimate(from, txmanager.Call{Value: new(big.Int)})
	}
	n.answerFinality(q, &v)
	return v, nil
}

func (n node) answerFinality(q txmanager.ChainQuery, v *txmanager.ChainObservation) {
	final := n.below(finalDepth)
	if depth := n.options.FinalDepth; depth != nil {
		final = n.below(int(*depth))
	}
	if q.FinalCount {
		v.FinalCount, v.FinalBlock = new(final.counts[q.Submitter.Address()]), &final.Number
	}
	switch q.Finality {
	case "safe":
		v.Tagged = new(n.below(safeDepth).Header)
	case "finalized":
		v.Tagged = new(n.below(finalDepth).Header)
	}
}

func (n node) receipt(h txmanager.Hash) txmanager.ReceiptAnswer {
	tx, in, ok := n.find(h)
	if !ok || in == nil {
		return txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
	}
	document, _ := json.Marshal(map[string]any{"from": tx.from, "to": tx.tx.To, "gasUsed": fmt.Sprint(tx.tx.Gas), "failed": fails(tx.tx.Data)}) // texts
	return txmanager.ReceiptAnswer{Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{
		TxHash: h, BlockNumber: in.Number, BlockHash: in.Hash, Succeeded: !fails(tx.tx.Data), Document: document}}
}

func (n node) estimate(from txmanager.Address, c txmanager.Call) txmanager.Estimate {
	switch {
	case fails(c.Data):
		return txmanager.Estimate{Outcome: txmanager.Refused, Reason: "the call fails"}
	case c.Value != nil && n.head().balance(from).Cmp(c.Value) < 0:
		return txmanager.Estimate{Reason: "the account has too little money", Unfunded: true}
	}
	return txmanager.Estimate{Outcome: txmanager.Done, Gas: 1}
}

func (n node) Send(_ context.Context, raws [][]byte) []txmanager.SendResult {
	results, err := request(n, "", func() (results []txmanager.SendResult, _ error) {
		for _, raw := range raws {
			class, text := n.send(raw)
			results = append(results, txmanager.SendResult{Node: n.Name(), Class: class, Text: text})
		}
		return results, nil
	})
	if err != nil {
		return slices.Repeat([]txmanager.SendResult{{Node: n.Name(), Text: err.Error()}}, len(raws))
	}
	return results
}

func (n node) FindConsumingTx(ctx context.Context, s txmanager.Submitter, nonce uint64) (txmanager.ConsumingTx, error) {
	return request(n, s, func() (txmanager.ConsumingTx, error) {
		consumer, ok := n.sentIn(s.Address(), n.blocks)[nonce]
		if !ok {
			return consumer, fmt.Errorf("nonce %d of %s: %w", nonce, s, txmanager.ErrNotConsumed)
		}
		return consumer, nil
	})
}

// sentIn returns the account's transactions in the blocks, by nonce.
func (n node) sentIn(from txmanager.Address, blocks []block) map[uint64]txmanager.ConsumingTx {
	found := map[uint64]txmanager.ConsumingTx{}
	for _, b := range blocks {
		for _, tx := range b.txs {
			if tx.from == from {
				found[tx.tx.Nonce] = n.consumer(tx, &b)
			}
		}
	}
	return found
}

func (n node) consumer(tx transaction, in *block) txmanager.ConsumingTx {
	t := txmanager.ConsumingTx{Hash: tx.Hash, Node: n.Name(), To: tx.tx.To, ValueWei: tx.tx.Value.String(), Data: append([]byte{}, tx.tx.Data...)}
	if in != nil {
		t.BlockNumber, t.BlockHash = in.Number, in.Hash
	}
	return t
}

func (n node) ReadBlocks(_ context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	return request(n, q.Submitter, func() (txmanager.BlocksRead, error) { return n.readBlocks(q) })
}

func (n node) readBlocks(q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	r := txmanager.BlocksRead{Node: n.Name(), Final: n.below(finalDepth).Number}
	if !q.OlderThan.IsZero() {
		for r.End < r.Final && int64(n.blocks[r.End+1].Time) < q.OlderThan.Unix() {
			r.End++
		}
		return r, nil
	}
	if q.After > r.Final {
		return r, fmt.Errorf("block %d is not final, only %d", q.After, r.Final)
	}
	r.End = min(q.After+uint64(q.MaxBlocks), r.Final)
	r.Transactions = n.sentIn(q.Submitter.Address(), n.blocks[q.After+1:r.End+1])
	return r, nil
}

func (n node) Transaction(_ context.Context, hash txmanager.Hash) (txmanager.SignedTransaction, error) {
	return request(n, "", func() (none txmanager.SignedTransaction, err error) {
		tx, _, ok := n.find(hash)
		if !ok {
			return none, fmt.Errorf("%s: %w", hash, txmanager.ErrNoTransaction)
		}
		return txmanager.SignedTransaction{From: tx.from, Nonce: tx.tx.Nonce, Tx: n.consumer(tx, nil)}, nil
	})
}

func (n node) Balances(_ context.Context, of []txmanager.Submitter) ([]*big.Int, error) {
	return request(n, "", func() (all []*big.Int, err error) {
		for _, s := range of {
			all = append(all, n.head().balance(s.Address()))
		}
		return all, nil
	})
}

func (node) Payments(context.Context, chain.PaymentsQuery) (chain.Payments, error) {
	return chain.Payments{}, errNoContracts
}

func (node) PaymentsStart(context.Context, chain.PaymentsQuery, time.Time) (chain.PaymentsStart, error) {
	return chain.PaymentsStart{}, errNoContracts
}
