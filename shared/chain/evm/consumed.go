package evm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// maxProbes bounds the heights of one round trip of a search. With 31 of them five round trips find one
// block in 33 million.
const maxProbes = 31

// errElsewhere reports that the block found is not the wanted one: the chain changed between two round
// trips, or two nodes answered them.
var errElsewhere = errors.New("the chain changed meanwhile, or the nonce was consumed by no transaction of the account")

// FindConsumingTx implements [txmanager.ChainConnector]. It searches for the block in which the account's count
// exceeded n, the newest blocks first, and reads it. That takes 4 round trips for a nonce of the last
// minutes, 8 for one of the last 20 million blocks, each with the connector's time-out. A node answers
// counts for the blocks whose states it keeps, in go-ethereum by default 128; the error says if the
// block is older. A search that a reorg misled is repeated once.
//
// A nonce can be consumed without a transaction of the account: by an EIP-7702 authorization in another
// account's transaction, or by a contract that the account's code creates. That is an error too.
func (c *Connector) FindConsumingTx(ctx context.Context, s txmanager.Submitter, n uint64) (txmanager.ConsumingTx, error) {
	taker, err := c.findConsumer(ctx, s, n)
	if errors.Is(err, errElsewhere) {
		if taker, err = c.findConsumer(ctx, s, n); errors.Is(err, errElsewhere) {
			err = refusal{err, txmanager.ErrConsumerUnavailable}
		}
	}
	if err != nil {
		return txmanager.ConsumingTx{}, fmt.Errorf("find the transaction that consumed nonce %d of %s, by node %s: %w", n, s, c.node, short{err})
	}
	return taker, nil
}

func (c *Connector) findConsumer(ctx context.Context, submitter txmanager.Submitter, n uint64) (txmanager.ConsumingTx, error) {
	if submitter.ChainID() != c.chainID {
		return txmanager.ConsumingTx{}, fmt.Errorf("submitter %q, chain %d: %w", submitter, c.chainID, chain.ErrWrongChain)
	}
	s := &search{c: c, account: submitter.Address(), n: n}
	if err := s.begin(ctx); err != nil {
		return txmanager.ConsumingTx{}, err
	}
	for heights := s.recent(); s.low+1 < s.high; heights = s.spread() {
		if err := s.probe(ctx, heights); err != nil {
			return txmanager.ConsumingTx{}, err
		}
	}
	return s.read(ctx)
}

// short is an error whose text, partly a node's, is bounded so that it can be stored as evidence.
type short struct{ error }

// Error implements error.
func (e short) Error() string { return shorten(e.error.Error()) }

// Unwrap returns the full error.
func (e short) Unwrap() error { return e.error }

// search finds the block where an account's count exceeded n.
type search struct {
	c       *Connector
	account txmanager.Address
	n       uint64

	high   uint64 // at this height the count is above n
	low    uint64 // at this one it is not, or the node does not answer
	silent error  // why the node does not answer at low; nil: it does, or low is 0
}

// begin requests the count before the head. A block that is added in between only makes the head higher
// than necessary.
func (s *search) begin(ctx context.Context) error {
	count, head := ask("eth_getTransactionCount", s.account.String(), "latest"), askBlock("latest")
	if err := s.c.roundTrip(ctx, []*call{count, head}); err != nil {
		return err
	}
	var latest hexutil.Uint64
	var b block
	if err := errors.Join(count.into(&latest), head.into(&b)); err != nil {
		return err
	}
	if uint64(latest) <= s.n {
		return fmt.Errorf("the count is %d at block %d: %w", uint64(latest), uint64(b.Number), txmanager.ErrNotConsumed)
	}
	s.high = uint64(b.Number)
	return nil
}

// probes returns how many heights one round trip requests.
func (s *search) probes() uint64 { return min(maxProbes, uint64(s.c.maxBatch-reserved)) }

// recent returns heights at doubling distances from the top: most searches are for a nonce that was
// just lost, and many nodes keep the states of few blocks.
func (s *search) recent() []uint64 {
	var heights []uint64
	for i := range s.probes() {
		if distance := uint64(1) << i; distance < s.high-s.low {
			heights = append(heights, s.high-distance)
		}
	}
	slices.Reverse(heights)
	return heights
}

// spread returns heights that divide the remaining range into equal parts.
func (s *search) spread() []uint64 {
	var heights []uint64
	step := (s.high-s.low-1)/(s.probes()+1) + 1
	for at := s.low; s.high-at > step; {
		at += step
		heights = append(heights, at)
	}
	return heights
}

// probe requests the count at each of the ascending heights. A height without an answer counts as too
// low: nodes delete the states of old blocks.
func (s *search) probe(ctx context.Context, heights []uint64) error {
	calls := askEach(heights, func(at uint64) *call { return s.c.askCount(s.account, at) })
	if err := s.c.roundTrip(ctx, calls); err != nil {
		return err
	}
	for i, at := range heights {
		var count hexutil.Uint64
		err := calls[i].into(&count)
		if err == nil && uint64(count) > s.n {
			s.high = at
			return nil
		}
		s.low, s.silent = at, err
	}
	return nil
}

// read reads the block where the count exceeded n.
func (s *search) read(ctx context.Context) (txmanager.ConsumingTx, error) {
	txs, err := s.c.sentIn(ctx, s.account, []uint64{s.high})
	if err != nil && !errors.Is(err, errElsewhere) { // a block of another number shows as little as one without the transaction
		return txmanager.ConsumingTx{}, cannotTell(err)
	}
	for _, tx := range txs {
		if uint64(tx.Nonce) == s.n {
			return tx.consumer(s.c.node)
		}
	}
	if s.silent != nil {
		return txmanager.ConsumingTx{}, fmt.Errorf("it was consumed at block %d or below, where the node has no counts: %w", s.low, noCounts(s.silent))
	}
	return txmanager.ConsumingTx{}, fmt.Errorf("block %d: %w", s.high, errElsewhere)
}

// passing matches a node's text for a temporary refusal.
var passing = regexp.MustCompile(`(?i)rate.?limit|limit exceeded|too many|time.?out|timed out|temporar|try again|busy|overload|capacity`)

// cannotTell adds [txmanager.ErrConsumerUnavailable] to a node's refusal, unless the refusal is temporary.
func cannotTell(err error) error {
	if _, refused := errors.AsType[rpc.Error](err); refused && !passing.MatchString(err.Error()) {
		return refusal{err, txmanager.ErrConsumerUnavailable}
	}
	return err
}

// noCounts is cannotTell for a refused count. A permanent one wraps [txmanager.ErrNoCounts] too.
func noCounts(err error) error {
	if err = cannotTell(err); errors.Is(err, txmanager.ErrConsumerUnavailable) {
		return refusal{err, txmanager.ErrNoCounts}
	}
	return err
}

// refusal is a node's refusal, with its text and its meaning.
type refusal struct {
	error
	meaning error
}

// Unwrap returns the meaning and the refusal.
func (r refusal) Unwrap() []error { return []error{r.meaning, r.error} }

// transaction holds the fields that are read of a transaction in a block, and the block.
type transaction struct {
	Hash  txmanager.Hash `json:"hash"`
	From  string         `json:"from"`
	Nonce hexutil.Uint64 `json:"nonce"`
	To    *string        `json:"to"`
	Value *hexutil.Big   `json:"value"`
	Input *hexutil.Bytes `json:"input"`

	blockNumber uint64
	blockHash   txmanager.Hash
}

func (tx transaction) consumer(node string) (txmanager.ConsumingTx, error) {
	if tx.Value == nil || tx.Input == nil {
		return txmanager.ConsumingTx{}, fmt.Errorf("transaction %s in block %d: the node gave no value or no input", tx.Hash, tx.blockNumber)
	}
	t := txmanager.ConsumingTx{Hash: tx.Hash, BlockNumber: tx.blockNumber, BlockHash: tx.blockHash, Node: node,
		ValueWei: tx.Value.ToInt().String(), Data: *tx.Input}
	if tx.To != nil {
		to, err := eip155.ParseAddress(*tx.To)
		if err != nil {
			return txmanager.ConsumingTx{}, fmt.Errorf("transaction %s in block %d: to: %w", tx.Hash, tx.blockNumber, err)
		}
		t.To = &to
	}
	return t, nil
}
