package protect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// oldChain is a panel whose first node gives consuming transactions by counts where it has them,
// and by blocks.
type oldChain struct {
	*txtest.Panel
	transactions map[uint64]txmanager.ConsumingTx
	kept         uint64 // the first block of which it has counts
	final        uint64
	older        uint64 // the last block that is older than the submitter
	refuse       error  // to give blocks
	counts       int    // how often it was queried by counts
	blocks       []txmanager.BlocksQuery
	before       func() // called before it answers; nil: no call
}

func (c *oldChain) FindConsumingTx(_ context.Context, _ txmanager.Submitter, n uint64) (txmanager.ConsumingTx, error) {
	c.asks()
	c.counts++
	consuming, ok := c.transactions[n]
	switch {
	case c.kept > 0 && consuming.BlockNumber < c.kept:
		return txmanager.ConsumingTx{}, fmt.Errorf("%w: %w", txmanager.ErrNoCounts, txmanager.ErrConsumerUnavailable)
	case !ok:
		return txmanager.ConsumingTx{}, txmanager.ErrConsumerUnavailable
	}
	return consuming, nil
}

func (c *oldChain) ReadBlocks(_ context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	c.asks()
	c.blocks = append(c.blocks, q)
	r := txmanager.BlocksRead{Node: "n0", Final: c.final, End: c.older, Transactions: map[uint64]txmanager.ConsumingTx{}}
	if c.refuse != nil || !q.OlderThan.IsZero() {
		return r, c.refuse
	}
	r.End = min(c.final, q.After+uint64(q.MaxBlocks))
	for n, consuming := range c.transactions {
		if consuming.BlockNumber > q.After && consuming.BlockNumber <= r.End {
			r.Transactions[n] = consuming
		}
	}
	return r, nil
}

func (c *oldChain) asks() {
	if c.before != nil {
		c.before()
	}
}

// readBehind lists the After values of the block queries from the given call on.
func (c *oldChain) readBehind(call int) (all []uint64) {
	for _, q := range c.blocks[call:] {
		if q.OlderThan.IsZero() {
			all = append(all, q.After)
		}
	}
	return all
}

// newOldChain has foreign transactions at the blocks, for nonces from 0 on, each with its receipt
// at all three nodes. Its head is at block 2000.
func newOldChain(blocksOf ...uint64) (c *oldChain, w txmanager.SubmitterState) {
	w = inProtect(txtest.StateOf(1, 0))
	c = &oldChain{Panel: &txtest.Panel{ChainConnector: txtest.Reader(nil), Needed: 2}, transactions: map[uint64]txmanager.ConsumingTx{}, final: 2000}
	v := txtest.ViewOf(w, txtest.Block('a', 2000))
	v.FinalCount = new(uint64(len(blocksOf)))
	v.Account.LatestCount = uint64(len(blocksOf))
	for n, number := range blocksOf {
		h := txtest.VersionHash(uint64(n), 0xf0)
		c.transactions[uint64(n)] = txmanager.ConsumingTx{Hash: h, BlockNumber: number, BlockHash: txtest.Block('a', number).Hash, Node: "n0", ValueWei: fmt.Sprint(n)}
		v.Receipts[h] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{TxHash: h, BlockNumber: number, BlockHash: txtest.Block('a', number).Hash, Succeeded: true}}
	}
	v.HashesAt = map[uint64]txmanager.Hash{}
	for n := range uint64(2001) {
		v.HashesAt[n] = txtest.Block('a', n).Hash
	}
	c.Views = txtest.OfNodes(v, v, v)
	return c, w
}

// wanted is a request that may have consumed any nonce without a known transaction.
var wanted = []txmanager.OpenRequest{{RequestID: "wanted", Payload: []byte("pay")}}

// every has n transactions in one block.
func every(block uint64, n int) []uint64 { return slices.Repeat([]uint64{block}, n) }

// step makes one invocation read.
func step(t *testing.T, c *oldChain, w txmanager.SubmitterState, book *evidenceStore) *incident {
	t.Helper()
	tn := incidentOf(c, w, book)
	check.OK(t)(tn.readForeign(t.Context()))
	return tn
}

func (b *evidenceStore) nonces() (all []uint64) {
	for _, f := range b.stored {
		all = append(all, f.Nonce)
	}
	slices.Sort(all)
	return all
}

// upTo lists the numbers below n.
func upTo(n int) (all []uint64) {
	for i := range uint64(n) {
		all = append(all, i)
	}
	return all
}

// One invocation reads fifty of many foreign transactions, and stores them with their receipts. It
// reports that there are more, and the next invocations continue until all are stored.
func TestForeignTransactionsAreReadInSteps(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(every(1990, 120)...)
	book := &evidenceStore{}
	for i, want := range []int{50, 100, 120, 120} {
		c.counts = 0
		tn := step(t, c, w, book)
		check.Equal(t, fmt.Sprintf("step %d: stored", i), len(book.stored), want)
		if more := want < 120; tn.State.ForeignUnread != more || tn.State.ForeignReadable || c.counts > 50 {
			t.Errorf("step %d: got more to read %v, at once %v, after %d questions; want %v, later, after 50 at most", i, tn.State.ForeignUnread, tn.State.ForeignReadable, c.counts, more)
		}
	}
	check.Same(t, "stored", book.nonces(), upTo(120))
	for _, f := range book.stored {
		if want := c.transactions[f.Nonce]; f.Tx.Hash != want.Hash || f.CallDigest != want.CallDigest() || !f.Succeeded || f.Incident != 1 {
			t.Errorf("nonce %d: got %+v, want what the chain has", f.Nonce, f)
		}
	}
	check.Equal(t, "questions for blocks, since the node has counts", len(c.blocks), 0)
}

// A transaction that too few nodes show is not stored, and is read again, whether it was found by
// counts or in a block. Reading blocks does not pass it.
func TestForeignTransactionsNeedAQuorum(t *testing.T) {
	t.Parallel()
	for _, kept := range []uint64{0, 1999} {
		c, w := newOldChain(1200, 1210)
		c.kept, c.older = kept, 1150
		honest := c.Views[1:]
		liar := func(v txmanager.ChainObservation) txmanager.ChainObservation {
			v.Receipts = maps.Clone(v.Receipts)
			a := v.Receipts[c.transactions[1].Hash]
			a.Receipt.BlockHash = txmanager.Hash{1}
			v.Receipts[c.transactions[1].Hash] = a
			return v
		}
		c.Views = []txmanager.ChainObservation{c.Views[0], liar(honest[0]), liar(honest[1])}
		book := &evidenceStore{}
		for range 3 {
			tn := step(t, c, w, book)
			if len(book.stored) > 0 || !tn.State.ForeignUnread || book.read.Begun {
				t.Fatalf("counts from block %d, two nodes against one: got %d stored, more to read %v, blocks read %+v; want nothing stored, and more to read", kept, len(book.stored), tn.State.ForeignUnread, book.read)
			}
		}
		c.Views = append(c.Views[:1], honest...)
		for range 3 {
			step(t, c, w, book)
		}
		check.Same(t, fmt.Sprintf("counts from block %d, all agree: stored", kept), book.nonces(), upTo(2))
	}
}

// An invocation that loses the lease while it reads stores nothing, not even what it had found
// before.
func TestForeignTransactionsOfALostLease(t *testing.T) {
	t.Parallel()
	for _, kept := range []uint64{0, 1999} {
		synctest.Test(t, func(t *testing.T) {
			c, w := newOldChain(100, 200, 300, 400)
			c.kept = kept
			w.Lease = lease.New(string(txtest.Alice), "node-1/a", 7, time.Now(), 10*time.Second)
			c.before = func() { time.Sleep(2 * time.Second) }
			book := &evidenceStore{}
			err := incidentOf(c, w, book).readForeign(t.Context())
			if !errors.Is(err, lease.ErrFenced) || len(book.stored) > 0 || book.read.Begun {
				t.Errorf("counts from block %d: got %v, %d stored, blocks read %+v; want it fenced, and nothing stored", kept, err, len(book.stored), book.read)
			}
			if asked := c.counts + len(c.blocks); asked < 2 {
				t.Errorf("counts from block %d: got the lease lost after %d questions, want it lost in the midst", kept, asked)
			}
		})
	}
}

// If the node lacks such old counts, the blocks are read forward, each once, at most 500 in an
// invocation. The scan begins at the last block older than the submitter. The next invocation
// follows at once while there is more. A release waits meanwhile and reports the progress; it
// never reports an unknown consuming transaction.
func TestBlocksAreReadWhereCountsAreGone(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(30, 30, 700, 701, 1850)
	c.kept, c.older = 1872, 20
	book := &evidenceStore{}
	last := uint64(20)
	for i, want := range []struct {
		stored int
		block  uint64
	}{{2, 520}, {4, 1020}, {4, 1520}, {5, 2000}} {
		asked := len(c.blocks)
		tn := step(t, c, w, book)
		check.Equal(t, fmt.Sprintf("step %d: stored", i), len(book.stored), want.stored)
		check.Equal(t, fmt.Sprintf("step %d: up to block", i), book.read.Block, want.block)
		if more := want.block < 2000; tn.State.ForeignUnread != more || tn.State.ForeignReadable != more {
			t.Errorf("step %d: got more to read %v, at once %v; want %v", i, tn.State.ForeignUnread, tn.State.ForeignReadable, more)
		}
		if d := tn.Rules.PlanNextWork(tn.State); tn.State.ForeignReadable && d.At.After(txtest.Now) {
			t.Errorf("step %d: got the next at %s, want it at once", i, d.At)
		}
		for _, after := range c.readBehind(asked) {
			check.Equal(t, fmt.Sprintf("step %d: blocks after read", i), after, last)
			last = min(after+50, 2000)
		}
		if i == 1 {
			stored := slices.Clone(book.stored)
			_, _, err := incidentOf(c, w, book).planResync(t.Context(), &txmanager.ReleaseRequest{Count: 5}, txmanager.LostNonces{})
			if !errors.Is(err, txmanager.ErrStillReading) || !strings.Contains(err.Error(), "up to 1520 of 2000") {
				t.Errorf("a release meanwhile: got %v, want it to wait, and to say how far the reading is", err)
			}
			book.stored, book.read.Block = stored, want.block
		}
	}
	check.Same(t, "stored", book.nonces(), upTo(5))
	if q := c.blocks[0]; !q.OlderThan.Equal(book.read.Registered.Add(-registeredMargin)) {
		t.Errorf("the start: got %+v, want the last block older than the registration", q)
	}
}

// The scan begins below the block of the last terminal nonce.
func TestBlocksAreReadFromTheLastTerminalNonce(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(1000)
	c.kept = 1990
	for settled, want := range map[uint64]uint64{1000: 900, 50: 0} {
		c.blocks = nil
		step(t, c, w, &evidenceStore{read: txmanager.ForeignScan{TerminalBlock: &settled}})
		check.Equal(t, fmt.Sprintf("settled at block %d: blocks after read first", settled), c.blocks[0].After, want)
	}
}

// readAll reads the blocks once, and returns the last invocation's session.
func readAll(t *testing.T, c *oldChain, w txmanager.SubmitterState, book *evidenceStore) *incident {
	t.Helper()
	for range 10 {
		if tn := step(t, c, w, book); !tn.State.ForeignUnread {
			return tn
		}
	}
	t.Fatalf("after ten steps: got %+v, want all blocks read", book.read)
	return nil
}

// A nonce that no block shows, such as one that an authorization consumed, is unknown once all
// blocks were read: an operator must name it. Later nonces are still found. The blocks are read
// again after an hour, from further below and by another node; then it may be found.
func TestBlocksAreReadOnceMore(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(600, 1300, 1500)
	c.kept, c.older = 1990, 550
	hidden := c.transactions[1]
	delete(c.transactions, 1)
	book := &evidenceStore{open: wanted}
	readAll(t, c, w, book)
	if got := book.nonces(); !slices.Equal(got, []uint64{0, 2}) {
		t.Fatalf("stored: got %v, want all but nonce 1", got)
	}
	var open txmanager.UnnamedNonceError
	if _, _, err := incidentOf(c, w, book).planResync(t.Context(), &txmanager.ReleaseRequest{Count: 3}, txmanager.LostNonces{}); !errors.As(err, &open) || open.Nonce != 1 {
		t.Errorf("a release: got %v, want nonce 1 to be named", err)
	}
	c.final = 2100
	asked := len(c.blocks)
	later := w
	later.Now = txtest.Now.Add(59 * time.Minute)
	readAll(t, c, later, book)
	if got := c.readBehind(asked); !slices.Equal(got, []uint64{2000, 2050}) || book.read.Again != nil {
		t.Errorf("before the hour is over: got blocks after %v read, want those that came since alone", got)
	}

	c.transactions[1] = hidden
	later.Now = txtest.Now.Add(time.Hour + time.Second)
	asked = len(c.blocks)
	tn := step(t, c, later, book)
	if got := c.readBehind(asked); got[1] != 0 || tn.State.ForeignUnread || tn.State.ForeignReadable || book.read.Again == nil {
		t.Errorf("after the hour: got blocks after %v read, more to read %v; want them from the first block on, with no hurry", got, tn.State.ForeignUnread)
	}
	if _, _, err := incidentOf(c, later, &evidenceStore{stored: book.stored, read: book.read, open: wanted}).planResync(t.Context(), &txmanager.ReleaseRequest{Count: 3}, txmanager.LostNonces{}); !errors.As(err, &open) {
		t.Errorf("a release meanwhile: got %v, want nonce 1 to be named", err)
	}
	for range 4 {
		step(t, c, later, book)
	}
	check.Same(t, "after the second reading", book.nonces(), upTo(3))

	// The third time the blocks are read by another node, from further below.
	c, w = newOldChain(600, 1300)
	delete(c.transactions, 1)
	c.kept = 1990
	begun := txmanager.ForeignScan{Begun: true, Start: 1900, Block: 2000, Final: 2000, Passes: 1, EndedAt: txtest.Ago(2 * time.Hour)}
	step(t, c, w, &evidenceStore{read: begun})
	if q := c.blocks[1]; q.After != 0 || q.Turn != 1 {
		t.Errorf("read again: got %+v, want the blocks after 0, by the next node", q)
	}
}

// The scan waits at a transaction whose nonce is not final yet. It waits ten minutes at one
// without a receipt.
func TestBlocksAreNotReadPastWhatIsNotProved(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(1000, 1010, 1020)
	c.kept = 1990
	for i := range c.Views {
		c.Views[i].FinalCount = new(uint64(2))
	}
	book := &evidenceStore{read: txmanager.ForeignScan{TerminalBlock: new(uint64(1000))}}
	if tn := step(t, c, w, book); book.read.Block != 1019 || len(book.stored) != 2 || !tn.State.ForeignUnread {
		t.Errorf("the third is not final: got %d stored, up to block %d, more to read %v; want two, and block 1019", len(book.stored), book.read.Block, tn.State.ForeignUnread)
	}
	for i := range c.Views {
		c.Views[i].FinalCount = new(uint64(3))
	}
	readAll(t, c, w, book)
	check.Equal(t, "all are final: stored", len(book.stored), 3)

	c, w = newOldChain(1000, 1010)
	c.kept = 1990
	for _, v := range c.Views {
		v.Receipts[c.transactions[0].Hash] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
	}
	book = &evidenceStore{read: txmanager.ForeignScan{TerminalBlock: new(uint64(1000))}}
	for range 3 {
		if tn := step(t, c, w, book); book.read.Block != 999 || !tn.State.ForeignUnread {
			t.Errorf("no receipt of the first: got blocks read up to %d, more to read %v; want 999, and more", book.read.Block, tn.State.ForeignUnread)
		}
	}
	if got := book.nonces(); !slices.Contains(got, 1) {
		t.Errorf("no receipt of the first: got %v stored, want the second", got)
	}
	w.Now = txtest.Now.Add(maxUnprovenWait)
	readAll(t, c, w, book)
	check.Equal(t, "ten minutes later: blocks read up to", book.read.Block, 2000)
}

// Nodes that no longer have the blocks cannot answer; one that fails is queried again.
func TestBlocksThatAreNotGiven(t *testing.T) {
	t.Parallel()
	var open txmanager.UnnamedNonceError
	for name, c := range map[string]struct {
		err   error
		named bool
	}{
		"history expired": {fmt.Errorf("%w: pruned history", txmanager.ErrConsumerUnavailable), true},
		"out of reach":    {errors.New("dial tcp: connection refused"), false},
	} {
		chain, w := newOldChain(1000)
		chain.kept, chain.refuse = 1990, c.err
		tn := step(t, chain, w, &evidenceStore{})
		check.Equal(t, name+": the next step at once", tn.State.ForeignReadable, false)
		_, _, err := incidentOf(chain, w, &evidenceStore{open: wanted}).planResync(t.Context(), &txmanager.ReleaseRequest{Count: 1}, txmanager.LostNonces{})
		if errors.As(err, &open) != c.named || errors.Is(err, txmanager.ErrStillReading) == c.named {
			t.Errorf("%s: got %v, want the nonce to be named %v", name, err, c.named)
		}
	}
	chain, w := newOldChain(1000) // a node that invents blocks
	chain.kept, chain.final = 1990, 1_000_000
	book := &evidenceStore{read: txmanager.ForeignScan{TerminalBlock: new(uint64(1000))}}
	if step(t, chain, w, book); book.read.Begun {
		t.Errorf("blocks far above the head: got %+v, want none of them read", book.read)
	}
}

// If another transaction than a release's evidence is read, the invocation logs an error and
// continues: open transactions are still polled. A release is refused.
func TestAChangedForeignTransactionIsReported(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(1990)
	var text strings.Builder
	tn := incidentOf(c, w, &evidenceStore{refuses: txmanager.ErrForeignChanged})
	tn.Log = slog.New(slog.NewTextHandler(&text, nil))
	if err := tn.readForeign(t.Context()); err != nil || !strings.Contains(text.String(), "level=ERROR") || !strings.Contains(text.String(), "reorg below finality") {
		t.Errorf("got %v, and the log %s; want it to go on, and an ERROR", err, text.String())
	}
	check.Err(t, "a release", txmanager.ErrNoQuorum)(tn.planResync(t.Context(), &txmanager.ReleaseRequest{Count: 1}, txmanager.LostNonces{}))
}

// Blocks are read from a node whose last final block is below the one of the account's count. The
// nonces between are not reported as unknown. The release waits, and finds them once the node has
// caught up.
func TestLaggingNodesBlocksDecideNothingAboutTheLastNonces(t *testing.T) {
	t.Parallel()
	c, w := newOldChain(600, 1300, 1995)
	c.kept, c.older, c.final = 1999, 1200, 1990
	for i := range c.Views {
		c.Views[i].FinalBlock = new(uint64(2000))
	}
	delete(c.transactions, 0) // this one stays unknown
	book := &evidenceStore{}
	for range 3 {
		step(t, c, w, book)
	}
	_, _, err := incidentOf(c, w, book).planResync(t.Context(), &txmanager.ReleaseRequest{Count: 3}, txmanager.LostNonces{})
	check.Err(t, "a release meanwhile", txmanager.ErrStillReading)(err)
	c.final = 2000
	if _, _, err = incidentOf(c, w, book).planResync(t.Context(), &txmanager.ReleaseRequest{Count: 3}, txmanager.LostNonces{}); err != nil || !slices.Contains(book.nonces(), 2) {
		t.Errorf("the node has caught up: got %v with %v stored, want nonce 2 on record", err, book.nonces())
	}
}

// However many lost nonces the node cannot answer, a release decides about all of them as unknown.
// It does not report forever that they are being read. A node without old counts and blocks is
// queried about few of them.
func TestReleaseDecidesAboutManyUnknownNonces(t *testing.T) {
	t.Parallel()
	const lost = 3*maxForeignReads + 1
	for name, c := range map[string]struct {
		oldest uint64
		err    error
		most   int // queries
	}{
		"it tells of none":                     {lost, txmanager.ErrConsumerUnavailable, lost},
		"it tells of some":                     {lost - 60, txmanager.ErrConsumerUnavailable, lost},
		"it has neither old counts nor blocks": {lost, fmt.Errorf("%w: %w", txmanager.ErrNoCounts, txmanager.ErrConsumerUnavailable), 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inProtect(txtest.StateOf(1, 0))
			v := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.Block('a', 95))
			v.FinalCount, v.Account.LatestCount = new(uint64(lost)), lost
			for n := range uint64(lost) {
				v = txtest.Finding(v, receiptOf(txmanager.Hash{0xf0, byte(n)}, true))
			}
			asked := 0
			p := &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: []txmanager.ChainObservation{v}, Needed: 1}
			p.Consuming = func(n uint64) (txmanager.ConsumingTx, error) {
				if asked++; n < c.oldest {
					return txmanager.ConsumingTx{}, fmt.Errorf("nonce %d: %w", n, c.err)
				}
				return foreignAt(n, txmanager.Hash{0xf0, byte(n)}, eip155.Address([20]byte{1}), "1").Tx, nil
			}
			book := &evidenceStore{}
			tn := incidentOf(p, w, book)
			tn.Timing.IterationsEndAfter = time.Hour
			_, out, err := tn.planResync(t.Context(), &txmanager.ReleaseRequest{Count: lost}, txmanager.LostNonces{})
			if err != nil || len(out.Displaced) != lost || len(book.stored) != int(lost-c.oldest) {
				t.Errorf("nothing here wants any of them: got %v with %d lost and %d read, want %d and %d", err, len(out.Displaced), len(book.stored), lost, lost-c.oldest)
			}
			if asked > c.most {
				t.Errorf("got %d questions, want at most %d", asked, c.most)
			}
			book.open = []txmanager.OpenRequest{{RequestID: "waits"}}
			var open txmanager.UnnamedNonceError
			tn.unknownConsumers = nil
			_, _, err = tn.planResync(t.Context(), &txmanager.ReleaseRequest{Count: lost}, txmanager.LostNonces{})
			if !errors.As(err, &open) || 1+len(open.More) < int(c.oldest) {
				t.Errorf("a request waits: got %v, want each nonce that is not known", err)
			}
		})
	}
}
