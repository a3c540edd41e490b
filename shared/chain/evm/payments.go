package evm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// blocksAtOnce and probesAtOnce bound one round trip.
const (
	blocksAtOnce = 10
	probesAtOnce = 60
)

// Payments reads the payments of an account in final blocks.
//
// Token payments come from eth_getLogs, which every node has. Payments in the chain's own coin are
// found by the account's transaction count: if it is equal at both ends of a range, the account has
// sent nothing in it. A node without the states of old blocks does not answer old counts, so there each
// block is read whole.
func (c *Connector) Payments(ctx context.Context, q chain.PaymentsQuery) (chain.Payments, error) {
	p, err := c.payments(ctx, q)
	if err != nil {
		return chain.Payments{}, fmt.Errorf("read payments of %s after block %d by node %s: %w", q.Payer, q.After, c.node, short{err})
	}
	return p, nil
}

func (c *Connector) payments(ctx context.Context, q chain.PaymentsQuery) (chain.Payments, error) {
	p, err := c.beginPayments(ctx, q)
	if err != nil || p.WentBack || p.End == q.After {
		return p, err
	}
	end, count, logs := askHeight(p.End), c.askCount(q.Payer, p.End), askTransfers(q, p.End)
	calls := []*call{end, count}
	if logs != nil {
		calls = append(calls, logs)
	}
	if err := c.roundTrip(ctx, calls); err != nil {
		return p, err
	}
	var last block
	if err := end.into(&last); err != nil {
		return p, fmt.Errorf("block %d: %w", p.End, err)
	}
	p.EndHash, p.Sent = last.Hash, q.Sent
	found, err := transfersIn(logs, q)
	if err != nil {
		return p, err
	}
	if err := c.sentPayments(ctx, q, &p, count, found); err != nil {
		return p, err
	}
	maps.DeleteFunc(found, func(_ paymentPlace, one chain.Payment) bool { return one.BlockNumber > p.End })
	p.Found = slices.SortedFunc(maps.Values(found), func(a, b chain.Payment) int {
		return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), strings.Compare(a.TxHash.String(), b.TxHash.String()), cmp.Compare(a.LogIndex, b.LogIndex))
	})
	return p, nil
}

// beginPayments finds the last final block, and compares the last block that was read with the chain.
func (c *Connector) beginPayments(ctx context.Context, q chain.PaymentsQuery) (p chain.Payments, err error) {
	tag := "latest"
	if q.ByTag {
		tag = "finalized"
	}
	top, anchor := askBlock(tag), askHeight(q.After)
	if err := c.roundTrip(ctx, []*call{top, anchor}); err != nil {
		return p, err
	}
	var final, after block
	if err := top.into(&final); err != nil {
		return p, err
	}
	p = chain.Payments{Node: c.node, Final: uint64(final.Number), End: q.After, Sent: q.Sent}
	if !q.ByTag {
		p.Final -= min(p.Final, max(q.Depth, 1)-1)
	}
	if anchor.null() || uint64(final.Number) < q.After { // this node lags and knows nothing of that block
		return p, fmt.Errorf("it has no block %d, which was final: its last is %d", q.After, uint64(final.Number))
	}
	if err := anchor.into(&after); err != nil {
		return p, fmt.Errorf("block %d: %w", q.After, err)
	}
	p.EndHash = after.Hash
	if q.AfterHash != (txmanager.Hash{}) && after.Hash != q.AfterHash {
		p.WentBack = true
		return p, nil
	}
	p.End = max(q.After, min(q.UpTo, p.Final))
	return p, nil
}

func (c *Connector) askCount(of txmanager.Address, at uint64) *call {
	return ask("eth_getTransactionCount", of.String(), hexutil.EncodeUint64(at))
}

// askTransfers requests the Transfer events of the account; nil if there are no tokens. The tokens are
// named, since any contract can emit an event with any account in it.
func askTransfers(q chain.PaymentsQuery, end uint64) *call {
	if len(q.Tokens) == 0 {
		return nil
	}
	return ask("eth_getLogs", map[string]any{
		"fromBlock": hexutil.EncodeUint64(q.After + 1), "toBlock": hexutil.EncodeUint64(end), "address": q.Tokens,
		"topics": []any{transferEvent, common.HexToHash(string(q.Payer))},
	})
}

// paymentPlace identifies one payment on the chain.
type paymentPlace struct {
	tx  txmanager.Hash
	log int
}

// transfersIn reads the events of a node's answer.
func transfersIn(logs *call, q chain.PaymentsQuery) (map[paymentPlace]chain.Payment, error) {
	found := map[paymentPlace]chain.Payment{}
	if logs == nil {
		return found, nil
	}
	var all []blockLog
	if err := logs.into(&all); err != nil {
		return nil, err
	}
	for _, l := range all {
		if t, ok := l.transfer(); ok && leaves(t, q) {
			found[paymentPlace{l.TxHash, t.LogIndex}] = paymentBy(t, l.TxHash, uint64(l.BlockNumber), l.BlockHash)
		}
	}
	return found, nil
}

// eventLog holds the fields that are read of an event in a receipt.
type eventLog struct {
	Address  common.Address
	Topics   []common.Hash
	Data     hexutil.Bytes
	Removed  bool
	LogIndex hexutil.Uint64
}

// blockLog is an event outside its receipt.
type blockLog struct {
	eventLog
	TxHash      txmanager.Hash `json:"transactionHash"`
	BlockNumber hexutil.Uint64
	BlockHash   txmanager.Hash
}

func (l eventLog) transfer() (chain.TokenTransfer, bool) {
	if l.Removed || len(l.Topics) != 3 || l.Topics[0] != transferEvent || len(l.Data) != 32 || !isAddress(l.Topics[1]) || !isAddress(l.Topics[2]) {
		return chain.TokenTransfer{}, false
	}
	return chain.TokenTransfer{
		Token: eip155.Address(l.Address), From: eip155.Address([20]byte(l.Topics[1][12:])), To: eip155.Address([20]byte(l.Topics[2][12:])),
		Amount: new(big.Int).SetBytes(l.Data), LogIndex: int(l.LogIndex),
	}, true
}

// leaves reports whether the event takes money from the account. Anyone can make a token emit an event
// with amount 0.
func leaves(t chain.TokenTransfer, q chain.PaymentsQuery) bool {
	return t.From == q.Payer && t.To != q.Payer && t.Amount.Sign() > 0
}

func paymentBy(t chain.TokenTransfer, tx txmanager.Hash, number uint64, hash txmanager.Hash) chain.Payment {
	return chain.Payment{TxHash: tx, LogIndex: t.LogIndex, BlockNumber: number, BlockHash: hash, Token: &t.Token, To: &t.To, Amount: t.Amount}
}

// sentPayments adds the payments of the account's own transactions. It may lower p.End.
func (c *Connector) sentPayments(ctx context.Context, q chain.PaymentsQuery, p *chain.Payments, count *call, found map[paymentPlace]chain.Payment) error {
	var sent hexutil.Uint64
	var blocks []uint64
	counted := count.into(&sent) == nil
	switch {
	case !counted:
		blocks = blocksAfter(q.After, p.End)
	case uint64(sent) == q.Sent:
		return nil
	default:
		var err error
		if blocks, err = c.sendingBlocks(ctx, q.Payer, sentSpan{q.After, p.End, q.Sent, uint64(sent)}); err != nil {
			return err
		}
	}
	if limit := q.MaxBlocks; limit > 0 && len(blocks) > limit {
		p.End, blocks, counted = blocks[limit]-1, blocks[:limit], false
		end := askHeight(p.End)
		if err := c.roundTrip(ctx, []*call{end}); err != nil {
			return err
		}
		var last block
		if err := end.into(&last); err != nil {
			return fmt.Errorf("block %d: %w", p.End, err)
		}
		p.EndHash = last.Hash
	}
	p.FullReads = len(blocks)
	txs, err := c.sentIn(ctx, q.Payer, blocks)
	if err != nil {
		return err
	}
	for _, tx := range txs {
		p.Sent = max(p.Sent, uint64(tx.Nonce)+1)
	}
	if counted {
		p.Sent = max(p.Sent, uint64(sent))
	}
	return c.addSent(ctx, q, txs, found)
}

// sentSpan is a range of blocks, low excluded, with the account's counts at its ends. The count at low
// may be too low.
type sentSpan struct{ low, high, atLow, atHigh uint64 }

// blocksAfter returns the heights after low, up to high.
func blocksAfter(low, high uint64) (blocks []uint64) {
	for n := low + 1; n <= high; n++ {
		blocks = append(blocks, n)
	}
	return blocks
}

// sendingBlocks returns the blocks that have transactions of the account, in order. It halves the ranges in
// which the count has grown, down to single blocks. If a node does not answer a count, the blocks below are
// read whole.
func (c *Connector) sendingBlocks(ctx context.Context, of txmanager.Address, spans ...sentSpan) (blocks []uint64, err error) {
	for len(spans) > 0 {
		var open, halves []sentSpan
		for _, one := range spans {
			switch {
			case one.atHigh <= one.atLow:
			case one.high == one.low+1:
				blocks = append(blocks, one.high)
			default:
				open = append(open, one)
			}
		}
		some := open[:min(len(open), probesAtOnce)]
		calls := askEach(some, func(one sentSpan) *call { return c.askCount(of, one.middle()) })
		if err := c.roundTrips(ctx, calls); err != nil {
			return nil, err
		}
		for i, one := range some {
			middle, at := one.middle(), hexutil.Uint64(one.atLow)
			if calls[i].into(&at) != nil {
				blocks = append(blocks, blocksAfter(one.low, middle)...)
			}
			halves = append(halves, sentSpan{one.low, middle, one.atLow, uint64(at)}, sentSpan{middle, one.high, uint64(at), one.atHigh})
		}
		spans = append(halves, open[len(some):]...)
	}
	slices.Sort(blocks)
	return slices.Compact(blocks), nil
}

func (s sentSpan) middle() uint64 { return s.low + (s.high-s.low)/2 }

// sentIn reads whole blocks and returns the account's transactions.
func (c *Connector) sentIn(ctx context.Context, of txmanager.Address, blocks []uint64) (txs []transaction, err error) {
	for some := range slices.Chunk(blocks, blocksAtOnce) {
		calls := askEach(some, func(n uint64) *call { return ask(getBlock, hexutil.EncodeUint64(n), true) })
		if err := c.roundTrip(ctx, calls); err != nil {
			return nil, err
		}
		for i, n := range some {
			var b struct {
				block
				Transactions []transaction
			}
			if err := calls[i].into(&b); err != nil {
				return nil, fmt.Errorf("block %d: %w", n, err)
			}
			if uint64(b.Number) != n {
				return nil, fmt.Errorf("block %d: got number %d: %w", n, uint64(b.Number), errElsewhere)
			}
			for _, tx := range b.Transactions {
				if strings.EqualFold(tx.From, of.String()) {
					tx.blockNumber, tx.blockHash = n, b.Hash
					txs = append(txs, tx)
				}
			}
		}
	}
	return txs, nil
}

// addSent adds the transactions' payments by their receipts: their value, and the events of the called
// contract and of the requested tokens.
func (c *Connector) addSent(ctx context.Context, q chain.PaymentsQuery, txs []transaction, found map[paymentPlace]chain.Payment) error {
	for some := range slices.Chunk(txs, c.maxBatch-reserved) { // only one batch's answer is held at a time
		calls := askEach(some, func(tx transaction) *call { return askReceipt(tx.Hash) })
		if err := c.roundTrip(ctx, calls); err != nil {
			return err
		}
		for i, tx := range some {
			if err := addPaid(q, tx, calls[i], found); err != nil {
				return fmt.Errorf("transaction %s: %w", tx.Hash, err)
			}
		}
	}
	return nil
}

func addPaid(q chain.PaymentsQuery, tx transaction, receipt *call, found map[paymentPlace]chain.Payment) error {
	var of struct {
		TransactionHash txmanager.Hash
		BlockHash       txmanager.Hash
	}
	if err := receipt.into(&of); err != nil {
		return err
	}
	if of.TransactionHash != tx.Hash || of.BlockHash != tx.blockHash {
		return errors.New("its receipt is of another transaction or another block")
	}
	read, err := Family{}.ReadProof(receipt.raw)
	if err != nil || !read.Succeeded {
		return err
	}
	t, err := tx.consumer("")
	if err != nil {
		return err
	}
	if value := tx.Value.ToInt(); value.Sign() > 0 && (t.To == nil || *t.To != q.Payer) {
		found[paymentPlace{tx.Hash, chain.NativeCoin}] = chain.Payment{TxHash: tx.Hash, LogIndex: chain.NativeCoin, BlockNumber: tx.blockNumber, BlockHash: tx.blockHash, To: t.To, Amount: value}
	}
	for _, e := range read.Transfers {
		if called := t.To != nil && *t.To == e.Token; leaves(e, q) && (called || slices.Contains(q.Tokens, e.Token)) {
			found[paymentPlace{tx.Hash, e.LogIndex}] = paymentBy(e, tx.Hash, tx.blockNumber, tx.blockHash)
		}
	}
	return nil
}

// PaymentsStart returns the last final block that is older than a time, or the first block of the
// chain. It reads only headers, which every node keeps.
func (c *Connector) PaymentsStart(ctx context.Context, q chain.PaymentsQuery, before time.Time) (s chain.PaymentsStart, err error) {
	q.After, q.AfterHash, q.UpTo = 0, txmanager.Hash{}, 0
	var low uint64
	p, err := c.beginPayments(ctx, q)
	if err == nil {
		low, err = c.lastBefore(ctx, p.Final, before)
	}
	if err != nil {
		return s, fmt.Errorf("find the first block to read, by node %s: %w", c.node, short{err})
	}
	asked, count := askHeight(low), c.askCount(q.Payer, low)
	var b block
	if err := c.roundTrip(ctx, []*call{asked, count}); err != nil {
		return s, err
	}
	if err := asked.into(&b); err != nil {
		return s, fmt.Errorf("block %d by node %s: %w", low, c.node, short{err})
	}
	s = chain.PaymentsStart{Block: low, Hash: b.Hash}
	if sent := new(hexutil.Uint64); count.into(sent) == nil {
		s.Sent = uint64(*sent)
	}
	return s, nil
}
