package memchain

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// The depths of the blocks with the tags "safe" and "finalized".
const (
	safeDepth  = 10
	finalDepth = 20
)

// bumpPercent is how much more a replacement in the pool must pay at least.
const bumpPercent = 10

// price is the fee that a node advises, for each unit of gas.
const price = 1_000_000_000

// Chain is a chain in memory. It can be used concurrently.
type Chain struct {
	ID uint64

	mu       sync.Mutex
	blocks   []block
	pool     map[txmanager.Hash]transaction
	made     uint64 // blocks, so that no two are equal
	requests atomic.Uint64
}

type transaction struct {
	txmanager.Signed
	from txmanager.Address
	tx   txmanager.Unsigned
}

func (t transaction) cost() *big.Int {
	fee := new(big.Int).Mul(t.tx.FeeCapWei, new(big.Int).SetUint64(t.tx.Gas))
	return fee.Add(fee, t.tx.Value)
}

// fails reports whether a transaction with the data is included and fails.
func fails(data []byte) bool { return string(data) == "fail" }

// block is a block with the state after it.
type block struct {
	txmanager.Header
	txs      []transaction
	counts   map[txmanager.Address]uint64
	balances map[txmanager.Address]*big.Int
}

func (b block) balance(of txmanager.Address) *big.Int {
	if n := b.balances[of]; n != nil {
		return n
	}
	return new(big.Int)
}

// New makes a chain whose accounts have money.
func New(id uint64, accounts ...txmanager.Submitter) *Chain {
	c := &Chain{ID: id, pool: map[txmanager.Hash]transaction{}}
	genesis := block{counts: map[txmanager.Address]uint64{}, balances: map[txmanager.Address]*big.Int{}}
	for _, s := range accounts {
		genesis.balances[s.Address()] = new(big.Int).Exp(big.NewInt(10), big.NewInt(26), nil)
	}
	genesis.Time = uint64(time.Now().Add(-time.Hour).Unix())
	genesis.Hash = c.nextHash()
	c.blocks = []block{genesis}
	return c
}

func (c *Chain) nextHash() txmanager.Hash {
	c.made++
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte("block "), c.made))
}

// Requests returns the number of round trips of all nodes.
func (c *Chain) Requests() uint64 { return c.requests.Load() }

// Mine adds n blocks, the first of them with the pending transactions.
func (c *Chain) Mine(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.add(c.executable())
	}
	return nil
}

// DropPool removes the pending transactions.
func (c *Chain) DropPool() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.pool)
	return nil
}

// Reorg replaces the last blocks by as many others, each with these transactions. The removed transactions
// are pending again.
func (c *Chain) Reorg(blocks ...[][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.blocks) - len(blocks)
	if at < 1 {
		return errors.New("the chain has fewer blocks")
	}
	removed := slices.Clone(c.blocks[at:])
	c.blocks = c.blocks[:at:at]
	for _, raws := range blocks {
		var txs []transaction
		for _, raw := range raws {
			tx, err := decode(raw)
			if err != nil {
				return err
			}
			txs = append(txs, tx)
		}
		c.add(txs)
	}
	for _, b := range removed {
		for _, tx := range b.txs {
			c.pool[tx.Hash] = tx
		}
	}
	c.purge()
	return nil
}

func (c *Chain) head() block { return c.blocks[len(c.blocks)-1] }

// executable are the pending transactions that the next block includes, by nonce.
func (c *Chain) executable() (txs []transaction) {
	pending := slices.SortedFunc(maps.Values(c.pool), func(a, b transaction) int {
		return int(a.tx.Nonce) - int(b.tx.Nonce)
	})
	next := maps.Clone(c.head().counts)
	for _, tx := range pending {
		if tx.tx.Nonce == next[tx.from] {
			next[tx.from]++
			txs = append(txs, tx)
		}
	}
	return txs
}

// add adds a block of those transactions that can be executed.
func (c *Chain) add(txs []transaction) {
	last := c.head()
	b := block{counts: maps.Clone(last.counts), balances: maps.Clone(last.balances)}
	b.Number, b.Parent, b.Hash, b.Time = last.Number+1, last.Hash, c.nextHash(), last.Time+1
	for _, tx := range txs {
		if tx.tx.Nonce != b.counts[tx.from] || b.balance(tx.from).Cmp(tx.cost()) < 0 {
			continue
		}
		b.counts[tx.from]++
		b.balances[tx.from] = new(big.Int).Sub(b.balance(tx.from), tx.cost())
		to := *tx.tx.To
		if fails(tx.tx.Data) {
			to = tx.from
		}
		b.balances[to] = new(big.Int).Add(b.balance(to), tx.tx.Value)
		b.txs = append(b.txs, tx)
	}
	c.blocks = append(c.blocks, b)
	c.purge()
}

// purge removes the pending transactions whose nonces are consumed.
func (c *Chain) purge() {
	maps.DeleteFunc(c.pool, func(_ txmanager.Hash, tx transaction) bool { return tx.tx.Nonce < c.head().counts[tx.from] })
}

// send puts a transaction into the pool.
func (c *Chain) send(raw []byte) (txmanager.SendClass, string) {
	tx, err := decode(raw)
	if err != nil || tx.tx.ChainID != c.ID {
		return txmanager.SendInvalid, "no transaction of this chain"
	}
	for _, other := range c.pool {
		switch {
		case other.Hash == tx.Hash:
			return txmanager.SendAlreadyKnown, "known"
		case other.from != tx.from || other.tx.Nonce != tx.tx.Nonce:
		case new(big.Int).Mul(tx.tx.FeeCapWei, big.NewInt(100)).Cmp(new(big.Int).Mul(other.tx.FeeCapWei, big.NewInt(100+bumpPercent))) < 0:
			return txmanager.SendUnderpriced, "the pool has another transaction with this nonce"
		default:
			defer delete(c.pool, other.Hash)
		}
	}
	switch {
	case tx.tx.Nonce < c.head().counts[tx.from]:
		return txmanager.SendNonceTooLow, "the nonce is consumed"
	case c.head().balance(tx.from).Cmp(tx.cost()) < 0:
		return txmanager.SendInsufficientFunds, "the account has too little money"
	}
	c.pool[tx.Hash] = tx
	return txmanager.SendAccepted, ""
}

// pendingCount is the account's count with its pending transactions that follow one another.
func (c *Chain) pendingCount(of txmanager.Address) uint64 {
	n := c.head().counts[of]
	for slices.ContainsFunc(slices.Collect(maps.Values(c.pool)), func(tx transaction) bool { return tx.from == of && tx.tx.Nonce == n }) {
		n++
	}
	return n
}

// find returns the transaction with the hash, and its block; nil: it is pending.
func (c *Chain) find(hash txmanager.Hash) (tx transaction, in *block, ok bool) {
	for i := range c.blocks {
		for _, tx := range c.blocks[i].txs {
			if tx.Hash == hash {
				return tx, &c.blocks[i], true
			}
		}
	}
	tx, ok = c.pool[hash]
	return tx, nil, ok
}

// below returns the block at a depth below the head, or the first one.
func (c *Chain) below(depth int) block { return c.blocks[max(len(c.blocks)-1-depth, 0)] }
