package evm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/nonce"
)

// maxProbes bounds the heights asked about in one round trip of a search. With
// 31 of them five round trips find one block out of 33 million.
const maxProbes = 31

// errElsewhere reports that the block found is not the one looked for: the
// chain changed between two round trips, or they were answered by two nodes.
var errElsewhere = errors.New("the chain changed meanwhile, or the nonce was consumed by no transaction of the account")

// Taken implements [nonce.ChainConnector]. It searches for the block in which
// the account's count passed n, the youngest blocks first, and reads it: 4 round
// trips for a nonce of the last minutes, 8 for one of the last 20 million
// blocks, each with the connector's time-out. A node tells the count of as many
// blocks as it keeps states of, and go-ethereum by default keeps 128; where the
// answer lies below, the error says so. A search that a reorg misled is made
// once more.
//
// A nonce can be consumed without a transaction of the account: by an
// authorization (EIP-7702) that another account's transaction carries, or by a
// contract that the account's code creates. That is an error too.
func (c *Connector) Taken(ctx context.Context, s nonce.Submitter, n uint64) (nonce.Taker, error) {
	taker, err := c.taken(ctx, s, n)
	if errors.Is(err, errElsewhere) {
		if taker, err = c.taken(ctx, s, n); errors.Is(err, errElsewhere) {
			err = untold{err}
		}
	}
	if err != nil {
		return nonce.Taker{}, fmt.Errorf("look for the transaction that took nonce %d of %s, by node %s: %w", n, s, c.node, short{err})
	}
	return taker, nil
}

func (c *Connector) taken(ctx context.Context, submitter nonce.Submitter, n uint64) (nonce.Taker, error) {
	if submitter.ChainID() != c.chainID {
		return nonce.Taker{}, fmt.Errorf("submitter %q, chain %d: %w", submitter, c.chainID, ErrWrongChain)
	}
	s := &search{c: c, account: submitter.Address().String(), n: n}
	if err := s.begin(ctx); err != nil {
		return nonce.Taker{}, err
	}
	for heights := s.recent(); s.low+1 < s.high; heights = s.spread() {
		if err := s.probe(ctx, heights); err != nil {
			return nonce.Taker{}, err
		}
	}
	return s.read(ctx)
}

// short is an error whose words, some of them a node's, are fit to be kept as
// evidence.
type short struct{ error }

// Error implements error.
func (e short) Error() string { return shorten(e.error.Error()) }

// Unwrap is the error, whole.
func (e short) Unwrap() error { return e.error }

// search narrows down where an account's count passed n.
type search struct {
	c       *Connector
	account string
	n       uint64

	high   uint64 // at this height the count is above n
	low    uint64 // at this one it is not, or the node does not say
	silent error  // why the node does not say at low; nil: it does, or low is 0
}

// begin asks for the count before the head: a block that comes between makes
// the head higher than need be, and no harm.
func (s *search) begin(ctx context.Context) error {
	count, head := ask("eth_getTransactionCount", s.account, "latest"), askBlock("latest")
	if err := s.c.roundTrip(ctx, []*call{count, head}); err != nil {
		return err
	}
	var latest hexutil.Uint64
	var b block
	if err := errors.Join(count.into(&latest), head.into(&b)); err != nil {
		return err
	}
	if uint64(latest) <= s.n {
		return fmt.Errorf("the count is %d at block %d: %w", uint64(latest), uint64(b.Number), nonce.ErrNotTaken)
	}
	s.high = uint64(b.Number)
	return nil
}

// probes is how many heights one round trip asks about.
func (s *search) probes() uint64 { return min(maxProbes, uint64(s.c.maxBatch-reserved)) }

// recent are heights at twice the distance from the top each: who asks wants to
// know of a nonce just lost, and many nodes keep the states of few blocks.
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

// spread are heights that part what is left into equal pieces.
func (s *search) spread() []uint64 {
	var heights []uint64
	step := (s.high-s.low-1)/(s.probes()+1) + 1
	for at := s.low; s.high-at > step; {
		at += step
		heights = append(heights, at)
	}
	return heights
}

// probe asks for the count at each of the ascending heights. One at which the
// node does not say counts as too low: the state of an old block is what nodes
// throw away.
func (s *search) probe(ctx context.Context, heights []uint64) error {
	calls := make([]*call, len(heights))
	for i, at := range heights {
		calls[i] = ask("eth_getTransactionCount", s.account, hexutil.EncodeUint64(at))
	}
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

// read reads the block where the count passed n.
func (s *search) read(ctx context.Context) (nonce.Taker, error) {
	whole := ask(getBlock, hexutil.EncodeUint64(s.high), true)
	if err := s.c.roundTrip(ctx, []*call{whole}); err != nil {
		return nonce.Taker{}, err
	}
	var b fullBlock
	if err := whole.into(&b); err != nil {
		return nonce.Taker{}, fmt.Errorf("block %d: %w", s.high, notTold(err))
	}
	for _, tx := range b.Transactions {
		if uint64(b.Number) == s.high && strings.EqualFold(tx.From, s.account) && uint64(tx.Nonce) == s.n {
			return tx.taker(b, s.c.node)
		}
	}
	if s.silent != nil {
		return nonce.Taker{}, fmt.Errorf("it was taken at block %d or below, where the node has no counts: %w", s.low, noCounts(s.silent))
	}
	return nonce.Taker{}, fmt.Errorf("block %d: %w", s.high, errElsewhere)
}

// passing are a node's words for a refusal that another try may not meet.
var passing = regexp.MustCompile(`(?i)rate.?limit|limit exceeded|too many|time.?out|timed out|temporar|try again|busy|overload|capacity`)

// notTold adds [nonce.ErrNotTold] to a node's refusal, unless it may answer another time.
func notTold(err error) error {
	if _, refused := errors.AsType[rpc.Error](err); refused && !passing.MatchString(err.Error()) {
		return untold{err}
	}
	return err
}

// noCounts is notTold of a refusal to tell a count; one that holds for good wraps
// [nonce.ErrNoCounts] too.
func noCounts(err error) error {
	if err = notTold(err); errors.Is(err, nonce.ErrNotTold) {
		return countless{err}
	}
	return err
}

// countless is a node's refusal to tell an old count.
type countless struct{ error }

// Unwrap is the refusal and what it means.
func (c countless) Unwrap() []error { return []error{nonce.ErrNoCounts, c.error} }

// untold is a node's refusal that wraps [nonce.ErrNotTold]; the words are the node's.
type untold struct{ error }

// Unwrap is the refusal and what it means.
func (u untold) Unwrap() []error { return []error{nonce.ErrNotTold, u.error} }

// fullBlock is what is read of a block with its transactions.
type fullBlock struct {
	Number       hexutil.Uint64 `json:"number"`
	Hash         nonce.Hash     `json:"hash"`
	Transactions []transaction  `json:"transactions"`
}

type transaction struct {
	Hash  nonce.Hash     `json:"hash"`
	From  string         `json:"from"`
	Nonce hexutil.Uint64 `json:"nonce"`
	To    *string        `json:"to"`
	Value *hexutil.Big   `json:"value"`
	Input *hexutil.Bytes `json:"input"`
}

func (tx transaction) taker(b fullBlock, node string) (nonce.Taker, error) {
	if tx.Value == nil || tx.Input == nil {
		return nonce.Taker{}, fmt.Errorf("transaction %s in block %d: the node gave no value or no input", tx.Hash, uint64(b.Number))
	}
	t := nonce.Taker{Hash: tx.Hash, BlockNumber: uint64(b.Number), BlockHash: b.Hash, Node: node,
		ValueWei: tx.Value.ToInt().String(), Data: *tx.Input}
	if tx.To != nil {
		to, err := nonce.ParseAddress(*tx.To)
		if err != nil {
			return nonce.Taker{}, fmt.Errorf("transaction %s in block %d: to: %w", tx.Hash, uint64(b.Number), err)
		}
		t.To = &to
	}
	return t, nil
}
