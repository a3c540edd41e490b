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
//
// It is asked in rounds, most in one. Where many receipts are wanted the first
// round asks for everything else, and what it answers says which receipts are
// asked for in further rounds: so they still come after the counts. Each round
// ends with a head and the proof that the head before it is in its chain. So each
// head is in the next one's chain, up to the last, the view's; and the receipts
// of a block are taken over only if the block is in the chain of the head before
// them.
type look struct {
	q         nonce.Look
	first     *call // the head before everything else
	account   *account
	receipts  *receipts
	known     []*call
	headers   []*call
	watched   []*call // the blocks at q.Watch
	tagged    *call
	estimates []*call
	self      *call
	final     *call // the count at the finalized block
	finalized *call // that block; nil where it is known by its height
	height    *uint64

	since  nonce.Header   // first's
	linked []nonce.Header // what headers tell, up to the head at the end of their round
	head   *block         // the head that is known, the last of a round; nil: none yet
	again  *call          // the block at head's height, after everything else
	last   *call          // the head after everything else
}

// Look implements [nonce.ChainConnector]. It fails as a whole if there was no
// answer, if the head or an asked-for part of the account is missing, or if the
// chain changed while it was read. A look of more than Options.MaxBatch calls
// or of several megabytes takes several round trips, and so may one at more than
// 32 receipts; that they belong to one chain is proved by the last of them.
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
	asked := func() {}
	defer func() { asked() }() // whatever became of it
	for calls := l.calls(); len(calls) > 0; calls = l.receipts.further(*l.head, c.blocks.offered()) {
		err := c.round(ctx, l, calls)
		switch {
		case err != nil && l.receipts.byBlocks() && ctx.Err() == nil && !errors.Is(err, ErrChanged):
			c.blocks.refused() // perhaps the blocks are too much for one answer
			l.receipts.byBlock = false
		case err != nil:
			return nonce.View{}, err
		case l.receipts.take(*l.head):
			c.blocks.refused()
		}
		asked()
		asked = c.shareHead(ctx, l)
	}
	if at, ok := finalHeight(l.head.header(), c.depth); q.FinalCount && ok {
		l.final, l.height = ask("eth_getTransactionCount", q.Submitter.Address().String(), hexutil.EncodeUint64(at)), &at
		if err := c.round(ctx, l, []*call{l.final}); err != nil {
			return nonce.View{}, err
		}
	}
	return l.view(c.node, c.fees)
}

// finalHeight is the block at which an account's count is taken for final, on a chain
// that is declared to have no tag "finalized": depth blocks below the head. ok is false
// where the chain has the tag, which says so itself, and where it has too few blocks.
func finalHeight(head nonce.Header, depth *uint64) (height uint64, ok bool) {
	if depth == nil || head.Number < *depth {
		return 0, false
	}
	return head.Number - *depth, true
}

// shareHead takes over what other looks have brought of the head's receipts and
// of its parent's, and waits for one that is asking for the head's just now. done
// is to be called once this look has asked for them itself.
func (c *Connector) shareHead(ctx context.Context, l *look) (done func()) {
	done = func() {}
	l.receipts.reuse(&c.recent, *l.head)
	if !l.receipts.wantsHead(*l.head) || !c.blocks.offered() {
		return done
	}
	if mine := c.recent.claim(ctx, l.head.Hash); mine != nil {
		return mine
	}
	l.receipts.reuse(&c.recent, *l.head)
	return done
}

// round asks calls, and then what proves that nothing changed.
func (c *Connector) round(ctx context.Context, l *look, calls []*call) error {
	batches := c.split(calls)
	for i, batch := range batches {
		if i == len(batches)-1 {
			var err error
			if batch, err = l.closing(batch, i > 0); err != nil {
				return err
			}
		}
		if err := c.roundTrip(ctx, batch); err != nil {
			return err
		}
	}
	return l.advance()
}

// ErrChanged reports a look whose parts are of two chains: a reorg came meanwhile.
// It says nothing against the node.
var ErrChanged = errors.New("the chain changed meanwhile")

func (c *Connector) newLook(q nonce.Look) (*look, error) {
	if (q.Account || len(q.Estimates) > 0 || q.Submitter != "") && q.Submitter.ChainID() != c.chainID {
		return nil, fmt.Errorf("submitter %q, chain %d: %w", q.Submitter, c.chainID, ErrWrongChain)
	}
	l := &look{q: q, first: askBlock("latest"), receipts: newReceipts(q, &c.recent)}
	if q.Account {
		l.account = askAccount(q.Submitter.Address(), c.fees)
		l.receipts.count = l.account.latest
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
	if q.FinalCount && c.depth == nil {
		l.final, l.finalized = ask("eth_getTransactionCount", q.Submitter.Address().String(), "finalized"), askBlock("finalized")
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

// calls are those of the first round, in the order in which they are asked.
func (l *look) calls() []*call {
	calls := []*call{l.first}
	if l.account != nil {
		calls = append(calls, l.account.calls()...)
	}
	calls = slices.Concat(calls, l.receipts.begin(), l.known, l.headers, l.watched)
	if l.tagged != nil {
		calls = append(calls, l.tagged)
	}
	calls = append(calls, l.estimates...)
	for _, one := range []*call{l.self, l.final, l.finalized} {
		if one != nil {
			calls = append(calls, one)
		}
	}
	return calls
}

// closing adds what proves that nothing changed. If the head is already known,
// it is asked for by its height too: many blocks may have come since.
func (l *look) closing(batch []*call, later bool) ([]*call, error) {
	l.again, l.last = nil, askBlock("latest")
	batch = slices.Clip(batch)
	if later || l.head != nil {
		if err := l.begun(); err != nil {
			return nil, err
		}
		l.again = askBlock(hexutil.EncodeUint64(uint64(l.head.Number)))
		batch = append(batch, l.again)
	}
	return append(batch, l.last), nil
}

// begun reads the head before everything else.
func (l *look) begun() error {
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

// advance goes on to the head after everything else, if the one before is in its
// chain.
func (l *look) advance() error {
	if err := l.begun(); err != nil {
		return err
	}
	var last block
	if err := l.last.into(&last); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if len(l.headers) > 0 { // they are of this round: later heads are above them
		l.linked, l.headers = linkedHeaders(l.headers, l.q.FromBlock, last.header()), nil
	}
	if !l.sameChain(l.head.header(), last.header()) {
		return fmt.Errorf("%w: head %d %s, then %d %s", ErrChanged,
			uint64(l.head.Number), l.head.Hash, uint64(last.Number), last.Hash)
	}
	l.head = &last
	return nil
}

// view turns the answers into what they mean.
func (l *look) view(node string, f Fees) (nonce.View, error) {
	v := nonce.View{Node: node, Head: l.head.header(), Since: &l.since, Headers: l.linked}
	if l.account != nil {
		var err error
		if v.Account, err = l.account.answer(*l.head, f); err != nil {
			return v, fmt.Errorf("account: %w", err)
		}
	}
	v.Receipts = l.receipts.upTo(v.Head)
	v.Known = knownAnswers(l.q.Known, l.known)
	v.Watched = watchedHashes(l.q.Watch, l.watched, l.since, v)
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

// sameChain says whether the head known before is proved to be in the last
// head's chain: it is the same block, its parent, among the linked headers, or
// still the block of its height.
func (l *look) sameChain(before, last nonce.Header) bool {
	if before.Hash == last.Hash || (before.Hash == last.Parent && before.Number+1 == last.Number) {
		return true
	}
	if before.Number > last.Number {
		return false
	}
	if l.again == nil { // the headers came in the same answer
		return slices.ContainsFunc(l.linked, func(h nonce.Header) bool { return h.Hash == before.Hash })
	}
	var again block
	return l.again.into(&again) == nil && again.Hash == before.Hash
}
