package txmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// ForeignScan is how far the blocks of a chain were read for foreign transactions of
// one submitter, in one episode of PROTECT. It is a hint: what is stored of a transaction
// is proved by its receipt, and the blocks are read again where one was not found.
type ForeignScan struct {
	Incident int
	Begun    bool       // blocks are being read, or were
	Start    uint64     // the block before the first that is read
	Block    uint64     // every block after Start, up to this one, was read
	Final    uint64     // the last final block, when it was last asked for
	Again    *uint64    // how far they were read once more; nil: they are not read again now
	Passes   int        // how often all of them were read
	EndedAt  *time.Time // when all final blocks had been read, the last time; nil: not yet
	MovedAt  time.Time  // when it was stored last

	TerminalBlock *uint64   // the block of the highest nonce that is settled and below those that are looked for; nil: none is
	Registered    time.Time // when the submitter was registered
}

// Bounds of the reading of blocks.
const (
	maxScanBlocks    = 500              // in one invocation
	maxBlocksPerCall = 50               // by one call
	rescanAfter      = time.Hour        // how long after its end all blocks are read again
	maxUnprovenWait  = 10 * time.Minute // how long the reading stays at a transaction that has no receipt
	terminalMargin   = 100              // blocks below the one of a settled nonce from which they are read
	registeredMargin = 10 * time.Minute // by which the clocks of database and chain may differ
	rescanMargin     = 1000             // blocks from which they are read again below the start, doubled each time
)

// Progress is r in words for an operator.
func (r ForeignScan) Progress() string {
	switch {
	case !r.Begun:
		return "blocks are not read yet"
	case r.EndedAt != nil:
		return fmt.Sprintf("all blocks up to the last final one, %d, were read", r.Block)
	}
	return fmt.Sprintf("blocks are being read: up to %d of %d", r.Block, r.Final)
}

// readForeignBlocks looks for the foreign transactions in blocks, where a node has no
// counts that are old enough. It reads forward from the last nonce that is settled, up to
// the last final block, and goes on where the last step stopped. A nonce that no block has
// shown by then is not told.
func (t *leaseSession) readForeignBlocks(ctx context.Context, v ChainObservation, left []uint64) (foreignProgress, error) {
	at, err := t.Store.ForeignScan(ctx, t.state.submitterOf(), t.state.Incident, left[0])
	if err != nil {
		return foreignProgress{}, err
	}
	before := at
	if !at.Begun {
		if at, err = t.beginScan(ctx, at); err != nil {
			return foreignProgress{}, t.noteBlocksNotGiven(left, err)
		}
	}
	s := blockSpan{turn: at.Passes, patient: t.staysAtUnproven(before), head: v.Head.Number, count: *v.FinalCount, left: left}
	if err := t.readSpan(ctx, &s, at.Block); err != nil {
		return foreignProgress{}, t.noteBlocksNotGiven(left, err)
	}
	at.Block, at.Final = s.end, s.final
	reached := at.Block >= at.Final
	missing := s.missing()
	sureOfLast := v.FinalBlock == nil || at.Final >= *v.FinalBlock // of what the count has beyond all that was found
	complete := reached && (at.EndedAt != nil && sureOfLast || !slices.Contains(missing, *v.FinalCount-1))
	if reached && at.EndedAt == nil {
		at.EndedAt = new(t.state.now())
	}
	if reached && s.read == 0 && len(missing) > 0 {
		if err := t.rescanBlocks(ctx, &s, &at); err != nil {
			return foreignProgress{}, err
		}
		missing = s.missing()
	}
	for _, n := range missing {
		t.noteUnknownConsumer(n, complete)
	}
	moved := at.Block > before.Block || !before.Begun || len(s.proven) > 0
	t.scan = at
	t.state.ForeignUnread = !complete || s.held || v.Account.LatestCount > *v.FinalCount
	t.state.ForeignReadable = moved && !reached
	if step := (foreignProgress{found: s.proven, scan: &at}); moved || !isSameScan(before, at) {
		return step, nil
	}
	return foreignProgress{}, nil
}

// noteBlocksNotGiven keeps that no node gives the blocks, where that is why they were not read.
func (t *leaseSession) noteBlocksNotGiven(left []uint64, err error) error {
	if errors.Is(err, ErrConsumerUnavailable) {
		t.state.ForeignUnread = false
		for _, n := range left {
			t.noteUnknownConsumer(n, true)
		}
	}
	return err
}

// staysAtUnproven says that the reading stays at a transaction without a receipt.
func (t *leaseSession) staysAtUnproven(at ForeignScan) bool {
	return !at.Begun || t.state.now().Sub(at.MovedAt) < maxUnprovenWait
}

// isSameScan says that b is to be stored as a was.
func isSameScan(a, b ForeignScan) bool {
	return a.Block == b.Block && a.Passes == b.Passes && (a.EndedAt == nil) == (b.EndedAt == nil) &&
		(a.Again == nil) == (b.Again == nil) && (a.Again == nil || *a.Again == *b.Again)
}

// beginScan finds the block after which the reading begins.
func (t *leaseSession) beginScan(ctx context.Context, at ForeignScan) (ForeignScan, error) {
	at.Incident, at.Begun = t.state.Incident, true
	if at.TerminalBlock != nil {
		at.Start = *at.TerminalBlock - min(*at.TerminalBlock, terminalMargin)
		at.Block = at.Start
		return at, nil
	}
	r, err := t.readBlocks(ctx, BlocksQuery{Submitter: t.state.submitterOf(), OlderThan: at.Registered.Add(-registeredMargin)})
	at.Start, at.Block, at.Final = r.End, r.End, r.Final
	return at, err
}

// rescanBlocks has the blocks read again, slowly, where some nonce was in none of them:
// the node may have been wrong, or the start too high.
func (t *leaseSession) rescanBlocks(ctx context.Context, s *blockSpan, at *ForeignScan) error {
	if at.Again == nil {
		if t.state.now().Sub(*at.EndedAt) < rescanAfter {
			return nil
		}
		at.Again = new(at.Start - min(at.Start, rescanMargin<<min(at.Passes, 30)))
	}
	if err := t.readSpan(ctx, s, *at.Again); err != nil {
		return err
	}
	if at.Again = new(s.end); s.end >= at.Block {
		at.Again, at.EndedAt = nil, new(t.state.now())
		at.Passes++
	}
	return nil
}

// blockSpan is what blocks were read for, and what they have.
type blockSpan struct {
	turn    int
	patient bool // it stays at what is not proved
	head    uint64
	count   uint64
	left    []uint64

	end, final uint64 // the last block that needs not be read again; the last final one
	read       int    // blocks
	found      map[uint64]ConsumingTx
	proven     []ForeignTransaction
	ours       map[uint64]bool // nonces that versions on record here consumed
	held       bool            // it stays at a transaction that is not proved, or not final for the node that was asked first
}

// missing are the nonces looked for that no block has shown.
func (s *blockSpan) missing() []uint64 {
	return slices.DeleteFunc(slices.Clone(s.left), func(n uint64) bool {
		return s.ours[n] || slices.ContainsFunc(s.proven, func(f ForeignTransaction) bool { return f.Nonce == n })
	})
}

// readSpan reads blocks after one, as many as the invocation may still read, and proves
// what it finds. Its end is below the first transaction that is to be read again.
func (t *leaseSession) readSpan(ctx context.Context, s *blockSpan, after uint64) error {
	s.end, s.found, s.ours = after, make(map[uint64]ConsumingTx), make(map[uint64]bool)
	for first := true; first || !t.isHalfTimeOver() && !t.isPastDeadline(); first = false {
		most := min(maxBlocksPerCall, maxScanBlocks-t.blocksRead)
		r, err := t.readBlocks(ctx, BlocksQuery{Submitter: t.state.submitterOf(), After: s.end, Most: most, Turn: s.turn})
		if err != nil && !errors.Is(err, ErrConsumerUnavailable) && !errors.Is(err, lease.ErrFenced) { // perhaps it was too much for one answer
			r, err = t.readBlocks(ctx, BlocksQuery{Submitter: t.state.submitterOf(), After: s.end, Most: min(most, 1), Turn: s.turn})
		}
		if err == nil && r.Final > s.head+maxScanBlocks {
			err = fmt.Errorf("node %s says that block %d is final, and the head is block %d", r.Node, r.Final, s.head)
		}
		if err != nil && s.end > after && !errors.Is(err, lease.ErrFenced) {
			break
		}
		if err != nil {
			return err
		}
		t.blocksRead += int(r.End - s.end)
		s.read += int(r.End - s.end)
		s.end, s.final = r.End, max(s.final, r.Final)
		s.keepWanted(t, r.Transactions)
		if r.End >= r.Final || t.blocksRead >= maxScanBlocks || len(s.found) >= maxForeignReads {
			break
		}
	}
	return t.proveSpan(ctx, s, after)
}

// keepWanted keeps of the transactions those that are looked for.
func (s *blockSpan) keepWanted(t *leaseSession, takers map[uint64]ConsumingTx) {
	for n, taker := range takers {
		switch _, looked := slices.BinarySearch(s.left, n); {
		case looked && t.state.hasVersion(taker.Hash):
			s.ours[n] = true
		case looked || n >= s.count:
			s.found[n] = taker
		}
	}
}

// proveSpan proves the first of the transactions that were found. The span ends below the
// first block of those that are not proved; it goes on behind the one at which the reading
// has stayed for long.
func (t *leaseSession) proveSpan(ctx context.Context, s *blockSpan, after uint64) error {
	var all []ForeignTransaction
	for n, taker := range s.found {
		all = append(all, ForeignTransaction{Nonce: n, Incident: t.state.Incident, Tx: taker, CallDigest: taker.CallDigest()})
	}
	slices.SortFunc(all, func(a, b ForeignTransaction) int { return cmp.Compare(a.Nonce, b.Nonce) })
	some := slices.IndexFunc(all, func(f ForeignTransaction) bool { return f.Nonce >= s.count })
	if some < 0 {
		some = len(all)
	}
	some = min(some, maxForeignReads)
	proven, err := t.proveForeign(ctx, all[:some], s.count)
	if err != nil {
		return err
	}
	s.proven = proven
	for i, f := range all {
		done := slices.ContainsFunc(proven, func(p ForeignTransaction) bool { return p.Nonce == f.Nonce })
		if done || i < some && !s.patient && f.Tx.BlockNumber == after+1 {
			continue
		}
		s.held = true
		s.end = min(s.end, f.Tx.BlockNumber-1)
	}
	return nil
}

func (t *leaseSession) readBlocks(ctx context.Context, q BlocksQuery) (r BlocksRead, err error) {
	err = t.callOutside(ctx, func(ctx context.Context) error {
		r, err = t.chain.ReadBlocks(ctx, q)
		return err
	})
	return r, err
}
