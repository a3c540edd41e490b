package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Limits of one query: more headers would not fit one answer.
const (
	maxHeaders = 10_000
	maxWatch   = 100
)

// chainQuery is a running chain query. If a block is added between two of its calls, each answer must err
// towards *no change*. So the order is: counts before receipts (a changed count finds the receipts that
// changed it), and everything before the head (no receipt is above it).
//
// Most queries take one round trip. If many receipts are wanted, the first round trip requests
// everything else, and its answers decide which receipts the further ones request; so these still
// follow the counts. Each round trip ends with a head and the proof that the head before it is in its
// chain. So each head is in the chain of the next one, up to the last, the observation's. The receipts
// of a block count only if the block is in the chain of the head before them.
type chainQuery struct {
	q         txmanager.ChainQuery
	first     *call // the head before all other calls
	account   *account
	receipts  *receipts
	known     []*call
	headers   []*call
	watched   []*call // the blocks at the heights of q.Watch
	tagged    *call
	estimates []*call
	self      *call
	final     *call // the count at the finalized block
	finalized *call // that block; nil if its height is known
	height    *uint64

	since  txmanager.Header   // first's
	linked []txmanager.Header // from the requested headers, up to the head at the end of their round trip
	head   *block             // the last known head; nil: none yet
	again  *call              // the block at head's height, after all other calls
	last   *call              // the head after all other calls
}

// Query implements [txmanager.ChainConnector]. It fails as a whole if there is no answer, if the head or a
// requested part of the account is missing, or if the chain changed meanwhile. A query of more than
// Options.MaxBatch calls, or of several megabytes, takes several round trips; so may one for more than
// 32 receipts. The last round trip proves that all are of one chain.
func (c *Connector) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	view, err := c.runQuery(ctx, q)
	if err != nil {
		return txmanager.ChainObservation{}, fmt.Errorf("look at %s by node %s: %w", q.Submitter, c.node, err)
	}
	return view, nil
}

func (c *Connector) runQuery(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	l, err := c.newQuery(q)
	if err != nil {
		return txmanager.ChainObservation{}, err
	}
	asked := func() {}
	defer func() { asked() }() // after success and failure
	for calls := l.calls(); len(calls) > 0; calls = l.receipts.further(*l.head, c.blocks.offered()) {
		err := c.fetch(ctx, l, calls)
		switch {
		case err != nil && l.receipts.byBlocks() && ctx.Err() == nil && !errors.Is(err, chain.ErrChanged):
			c.blocks.refused() // perhaps a block's receipts are too much for one answer
			l.receipts.byBlock = false
		case err != nil:
			return txmanager.ChainObservation{}, err
		case l.receipts.take(*l.head):
			c.blocks.refused()
		}
		asked()
		asked = c.shareHead(ctx, l)
	}
	if at, ok := finalHeight(l.head.header(), c.depth); q.FinalCount && ok {
		l.final, l.height = ask("eth_getTransactionCount", q.Submitter.Address().String(), hexutil.EncodeUint64(at)), &at
		if err := c.fetch(ctx, l, []*call{l.final}); err != nil {
			return txmanager.ChainObservation{}, err
		}
	}
	return l.observation(c.node, c.fees)
}

// finalHeight returns the block at which an account's count is final, on a chain that is declared
// to have no tag "finalized". It is depth blocks below the head. ok is false if the chain has the
// tag, or has too few blocks.
func finalHeight(head txmanager.Header, depth *uint64) (height uint64, ok bool) {
	if depth == nil || head.Number < *depth {
		return 0, false
	}
	return head.Number - *depth, true
}

// shareHead uses the receipts of the head and its parent that other queries have fetched. It waits for
// a query that is fetching the head's now. done must be called once this query has fetched them itself.
func (c *Connector) shareHead(ctx context.Context, l *chainQuery) (done func()) {
	done = func() {}
	l.receipts.reuse(*l.head)
	if !l.receipts.wantsHead(*l.head) || !c.blocks.offered() {
		return done
	}
	if mine := c.recent.claim(ctx, l.head.Hash); mine != nil {
		return mine
	}
	l.receipts.reuse(*l.head)
	return done
}

// fetch makes calls, and those that prove that the chain did not change.
func (c *Connector) fetch(ctx context.Context, l *chainQuery, calls []*call) error {
	batches := c.split(calls)
	for i, batch := range batches {
		if i == len(batches)-1 {
			var err error
			if batch, err = l.closing(batch, i > 0); err != nil {
				return err
			}
		}
		if err := c.share(ctx, c.queries, batch); err != nil {
			return err
		}
	}
	return l.advance()
}

// checkQuery refuses a query for another chain, and one that asks for too much.
func (c *Connector) checkQuery(q txmanager.ChainQuery) error {
	from, to := q.FromBlock, q.ToBlock
	switch {
	case (q.Account || len(q.Estimates) > 0 || q.Submitter != "") && q.Submitter.ChainID() != c.chainID:
		return fmt.Errorf("submitter %q, chain %d: %w", q.Submitter, c.chainID, chain.ErrWrongChain)
	case to > 0 && from <= to && to-from >= maxHeaders:
		return fmt.Errorf("headers %d to %d: want at most %d", from, to, maxHeaders)
	case len(q.HashesAt) > maxWatch:
		return fmt.Errorf("%d heights to watch: want at most %d", len(q.HashesAt), maxWatch)
	case !slices.Contains([]string{"", "safe", "finalized"}, q.Finality):
		return fmt.Errorf(`finality %q: want "", "safe" or "finalized"`, q.Finality)
	}
	return nil
}

func (c *Connector) newQuery(q txmanager.ChainQuery) (*chainQuery, error) {
	if err := c.checkQuery(q); err != nil {
		return nil, err
	}
	self := q.Submitter.Address()
	l := &chainQuery{
		q: q, first: askBlock("latest"), receipts: newReceipts(q, c.recent),
		known:     askEach(q.Known, func(h txmanager.Hash) *call { return ask("eth_getTransactionByHash", h.String()) }),
		watched:   askEach(q.HashesAt, askHeight),
		estimates: askEach(q.Estimates, func(of txmanager.Call) *call { return askEstimate(self, of) }),
	}
	if q.Account {
		l.account = askAccount(self, c.fees)
		l.receipts.count = l.account.latest
	}
	for n := q.FromBlock; q.ToBlock > 0 && n <= q.ToBlock; n++ {
		l.headers = append(l.headers, askHeight(n))
	}
	if q.Finality != "" {
		l.tagged = askBlock(q.Finality)
	}
	if q.FinalCount && c.depth == nil {
		l.final, l.finalized = ask("eth_getTransactionCount", self.String(), "finalized"), askBlock("finalized")
	}
	if q.SelfTransfer {
		l.self = askEstimate(self, txmanager.Call{To: &self})
	}
	return l, nil
}

// calls returns the calls of the first round trip, in order.
func (l *chainQuery) calls() []*call {
	calls := slices.Concat([]*call{l.first}, l.account.calls(), l.receipts.begin(), l.known, l.headers, l.watched,
		[]*call{l.tagged}, l.estimates, []*call{l.self, l.final, l.finalized})
	return slices.DeleteFunc(calls, func(a *call) bool { return a == nil })
}

// closing adds the calls that prove that the chain did not change. If the head is already known, it
// adds the block at its height too: many blocks may have been added since.
func (l *chainQuery) closing(batch []*call, later bool) ([]*call, error) {
	l.again, l.last = nil, askBlock("latest")
	batch = slices.Clip(batch)
	if later || l.head != nil {
		if err := l.begun(); err != nil {
			return nil, err
		}
		l.again = askHeight(uint64(l.head.Number))
		l.again.proof = true
		batch = append(batch, l.again)
	}
	return append(batch, l.last), nil
}

// begun reads the head before all other calls.
func (l *chainQuery) begun() error {
	if l.head != nil {
		return nil
	}
	var first block
	if err := l.first.into(&first); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	l.since, l.head = first.header(), &first
	return nil
}

// advance moves to the head after all other calls, if the previous one is in its chain.
func (l *chainQuery) advance() error {
	if err := l.begun(); err != nil {
		return err
	}
	var last block
	if err := l.last.into(&last); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if len(l.headers) > 0 { // they are of this round trip: later heads are above them
		l.linked, l.headers = linkedHeaders(l.headers, l.q.FromBlock, last.header()), nil
	}
	if !l.sameChain(l.head.header(), last.header()) {
		return fmt.Errorf("%w: head %d %s, then %d %s", chain.ErrChanged,
			uint64(l.head.Number), l.head.Hash, uint64(last.Number), last.Hash)
	}
	l.head = &last
	return nil
}

// view converts the answers to an observation.
func (l *chainQuery) observation(node string, f Fees) (txmanager.ChainObservation, error) {
	v := txmanager.ChainObservation{Node: node, Head: l.head.header(), StartHead: &l.since, BaseFeeWei: (*big.Int)(l.head.BaseFee), Headers: l.linked}
	if l.account != nil {
		var err error
		if v.Account, err = l.account.answer(*l.head, f); err != nil {
			return v, fmt.Errorf("account: %w", err)
		}
	}
	v.Receipts = l.receipts.upTo(v.Head)
	v.Known = knownAnswers(l.q.Known, l.known)
	v.HashesAt = watchedHashes(l.q.HashesAt, l.watched, l.since, v)
	v.Tagged = taggedHeader(l.tagged, v)
	for _, a := range l.estimates {
		v.Estimates = append(v.Estimates, estimateAnswer(a))
	}
	if count := new(hexutil.Uint64); l.final != nil && l.final.into(count) == nil {
		v.FinalCount, v.FinalBlock = (*uint64)(count), l.height
		if b := new(block); l.finalized != nil && l.finalized.into(b) == nil {
			v.FinalBlock = new(uint64(b.Number))
		}
	}
	if l.self != nil {
		v.SelfTransfer = estimateAnswer(l.self)
	}
	return v, nil
}

// sameChain reports whether the earlier head is proved to be in the last head's chain. It is the same
// block, its parent, among the linked headers, or still the block at its height.
func (l *chainQuery) sameChain(before, last txmanager.Header) bool {
	if before.Hash == last.Hash || (before.Hash == last.Parent && before.Number+1 == last.Number) {
		return true
	}
	if before.Number > last.Number {
		return false
	}
	if l.again == nil { // the headers were in the same answer
		return slices.ContainsFunc(l.linked, func(h txmanager.Header) bool { return h.Hash == before.Hash })
	}
	var again block
	return l.again.into(&again) == nil && again.Hash == before.Hash
}
