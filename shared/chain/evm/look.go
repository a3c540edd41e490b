package evm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Bounds of one look: more headers would not fit one answer.
const (
	maxHeaders = 10_000
	maxWatch   = 100
)

// look is a question under way. The order in which its calls are asked makes
// each answer, taken with those before it, err on the side of *no news* when a
// block comes between two of them: counts before receipts (a count that has
// moved finds the receipts that moved it), everything before the head (no
// receipt is above it).
type look struct {
	q         nonce.Look
	first     *call // the head before everything else
	account   *account
	receipts  []*call
	known     []*call
	headers   []*call
	watched   []*call // the blocks at q.Watch
	tagged    *call
	estimates []*call
	self      *call
	final     *call // the count at the finalized block
	again     *call // the block at first's height, after everything else
	last      *call // the head after everything else: the view's
}

// Look implements [nonce.ChainConnector]. It fails as a whole if there was no
// answer, if the head or an asked-for part of the account is missing, or if the
// chain changed while it was read. A look of more than Options.MaxBatch calls
// or of several megabytes takes several round trips; that they belong to one
// chain is then proved by the last.
func (c *Connector) Look(ctx context.Context, q nonce.Look) (nonce.View, error) {
	view, err := c.look(ctx, q)
	if err != nil {
		return nonce.View{}, fmt.Errorf("look at %s by node %s: %w", q.Submitter, c.node, err)
	}
	return view, nil
}

func (c *Connector) look(ctx context.Context, q nonce.Look) (nonce.View, error) {
	l, err := c.newLook(q)
	if err != nil {
		return nonce.View{}, err
	}
	batches := c.split(l.calls())
	for i, batch := range batches {
		if i == len(batches)-1 {
			if batch, err = l.closing(batch, i > 0); err != nil {
				return nonce.View{}, err
			}
		}
		if err := c.roundTrip(ctx, batch); err != nil {
			return nonce.View{}, err
		}
	}
	return l.view(c.node)
}

func (c *Connector) newLook(q nonce.Look) (*look, error) {
	if (q.Account || len(q.Estimates) > 0 || q.Submitter != "") && q.Submitter.ChainID() != c.chainID {
		return nil, fmt.Errorf("submitter %q, chain %d: %w", q.Submitter, c.chainID, ErrWrongChain)
	}
	l := &look{q: q, first: askBlock("latest"), last: askBlock("latest")}
	if q.Account {
		l.account = askAccount(q.Submitter.Address())
	}
	for _, h := range q.Receipts {
		l.receipts = append(l.receipts, ask("eth_getTransactionReceipt", h.String()))
	}
	for _, h := range q.Known {
		l.known = append(l.known, ask("eth_getTransactionByHash", h.String()))
	}
	if err := l.askHeaders(); err != nil {
		return nil, err
	}
	if err := l.askWatched(); err != nil {
		return nil, err
	}
	switch q.Finality {
	case "":
	case "safe", "finalized":
		l.tagged = askBlock(q.Finality)
	default:
		return nil, fmt.Errorf(`finality %q: want "", "safe" or "finalized"`, q.Finality)
	}
	for _, call := range q.Estimates {
		l.estimates = append(l.estimates, askEstimate(q.Submitter.Address(), call))
	}
	if q.FinalCount {
		l.final = ask("eth_getTransactionCount", q.Submitter.Address().String(), "finalized")
	}
	if self := q.Submitter.Address(); q.Self {
		l.self = askEstimate(self, nonce.Call{To: &self})
	}
	return l, nil
}

func (l *look) askHeaders() error {
	from, to := l.q.FromBlock, l.q.ToBlock
	if to == 0 || from > to {
		return nil
	}
	if to-from >= maxHeaders {
		return fmt.Errorf("headers %d to %d: want at most %d", from, to, maxHeaders)
	}
	for n := from; n <= to; n++ {
		l.headers = append(l.headers, askBlock(hexutil.EncodeUint64(n)))
	}
	return nil
}

func (l *look) askWatched() error {
	if len(l.q.Watch) > maxWatch {
		return fmt.Errorf("%d heights to watch: want at most %d", len(l.q.Watch), maxWatch)
	}
	for _, n := range l.q.Watch {
		l.watched = append(l.watched, askBlock(hexutil.EncodeUint64(n)))
	}
	return nil
}

// calls are all but the closing ones, in the order in which they are asked.
func (l *look) calls() []*call {
	calls := []*call{l.first}
	if l.account != nil {
		calls = append(calls, l.account.calls()...)
	}
	calls = slices.Concat(calls, l.receipts, l.known, l.headers, l.watched)
	if l.tagged != nil {
		calls = append(calls, l.tagged)
	}
	calls = append(calls, l.estimates...)
	for _, one := range []*call{l.self, l.final} {
		if one != nil {
			calls = append(calls, one)
		}
	}
	return calls
}

// closing adds what proves that nothing changed. If the first head is already
// known, it is asked for by its height too: many blocks may have come since.
func (l *look) closing(batch []*call, firstKnown bool) ([]*call, error) {
	batch = slices.Clip(batch)
	if firstKnown {
		var first block
		if err := l.first.into(&first); err != nil {
			return nil, fmt.Errorf("head: %w", err)
		}
		l.again = askBlock(hexutil.EncodeUint64(uint64(first.Number)))
		batch = append(batch, l.again)
	}
	return append(batch, l.last), nil
}

// view turns the answers into what they mean.
func (l *look) view(node string) (nonce.View, error) {
	v := nonce.View{Node: node}
	var first, last block
	if err := errors.Join(l.first.into(&first), l.last.into(&last)); err != nil {
		return v, fmt.Errorf("head: %w", err)
	}
	v.Head, v.Since = last.header(), new(first.header())
	v.Headers = linkedHeaders(l.headers, l.q.FromBlock, v.Head)
	if !l.sameChain(first.header(), v.Head, v.Headers) {
		return v, fmt.Errorf("the chain changed meanwhile: head %d %s, then %d %s",
			uint64(first.Number), first.Hash, uint64(last.Number), last.Hash)
	}
	if l.account != nil {
		var err error
		if v.Account, err = l.account.answer(last); err != nil {
			return v, fmt.Errorf("account: %w", err)
		}
	}
	v.Receipts = receiptAnswers(l.q.Receipts, l.receipts)
	v.Known = knownAnswers(l.q.Known, l.known)
	v.Watched = watchedHashes(l.q.Watch, l.watched, first.header(), v)
	v.Tagged = taggedHeader(l.tagged, v)
	for _, a := range l.estimates {
		v.Estimates = append(v.Estimates, estimateAnswer(a))
	}
	if count := new(hexutil.Uint64); l.final != nil && l.final.into(count) == nil {
		v.FinalCount = (*uint64)(count)
	}
	if l.self != nil {
		v.SelfTransfer = estimateAnswer(l.self)
	}
	return v, nil
}

// sameChain says whether the first head is proved to be in the last head's
// chain: it is the same block, its parent, among the linked headers, or still
// the block of its height.
func (l *look) sameChain(first, last nonce.Header, linked []nonce.Header) bool {
	if first.Hash == last.Hash || (first.Hash == last.Parent && first.Number+1 == last.Number) {
		return true
	}
	if first.Number > last.Number {
		return false
	}
	if slices.ContainsFunc(linked, func(h nonce.Header) bool { return h.Hash == first.Hash }) {
		return true
	}
	var again block
	return l.again != nil && l.again.into(&again) == nil && again.Hash == first.Hash
}
