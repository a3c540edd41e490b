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

// ForeignScan is how far blocks were read for foreign transactions of one submitter, in one
// PROTECT incident. It is only a hint: a receipt proves each stored transaction, and blocks are
// read again where one was not found.
type ForeignScan struct {
	Incident int
	Begun    bool       // reading blocks has begun
	Start    uint64     // the block before the first one read
	Block    uint64     // every block after Start, up to this one, was read
	Final    uint64     // the last final block, when it was last asked for
	Again    *uint64    // how far the blocks were read again; nil: no second reading now
	Passes   int        // how often all of them were read
	EndedAt  *time.Time // when the last final block was reached, the last time; nil: not yet
	MovedAt  time.Time  // when it was last stored

	TerminalBlock *uint64   // the block of the highest terminal nonce below the missing ones; nil: none
	Registered    time.Time // when the submitter was registered
}

// Limits of reading blocks.
const (
	maxScanBlocks    = 500              // blocks in one invocation
	maxBlocksPerCall = 50               // blocks in one call
	rescanAfter      = time.Hour        // the wait after the end before all blocks are read again
	maxUnprovenWait  = 10 * time.Minute // how long the scan waits at a transaction without a receipt
	terminalMargin   = 100              // the scan begins this many blocks below the terminal nonce's block
	registeredMargin = 10 * time.Minute // allowance between the clocks of database and chain
	rescanMargin     = 1000             // each further scan begins this many blocks below the start, doubled each time
)

// Progress describes r for an operator.
func (r ForeignScan) Progress() string {
	switch {
	case !r.Begun:
		return "blocks are not read yet"
	case r.EndedAt != nil:
		return fmt.Sprintf("all blocks up to the last final one, %d, were read", r.Block)
	}
	return fmt.Sprintf("blocks are being read: up to %d of %d", r.Block, r.Final)
}

// readForeignBlocks finds foreign transactions in blocks, where a node lacks such old counts. It
// reads from the block of the last terminal nonce up to the last final block, and continues where
// the previous step stopped. A nonce that no block has shown by then has an unknown consuming
// transaction.
func (t *incident) readForeignBlocks(ctx context.Context, v ChainObservation, left []uint64) (foreignProgress, error) {
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
	sureOfLast := v.FinalBlock == nil || at.Final >= *v.FinalBlock // about the count's last nonce, if no block shows it
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

// noteBlocksNotGiven records that the nonces in left stay unknown, if err is
// [ErrConsumerUnavailable]. It returns err.
func (t *incident) noteBlocksNotGiven(left []uint64, err error) error {
	if errors.Is(err, ErrConsumerUnavailable) {
		t.state.ForeignUnread = false
		for _, n := range left {
			t.noteUnknownConsumer(n, true)
		}
	}
	return err
}

// staysAtUnproven reports whether the scan waits at a transaction without a receipt.
func (t *incident) staysAtUnproven(at ForeignScan) bool {
	return !at.Begun || t.state.now().Sub(at.MovedAt) < maxUnprovenWait
}

// isSameScan reports whether b needs no write after a.
func isSameScan(a, b ForeignScan) bool {
	return a.Block == b.Block && a.Passes == b.Passes && (a.EndedAt == nil) == (b.EndedAt == nil) &&
		(a.Again == nil) == (b.Again == nil) && (a.Again == nil || *a.Again == *b.Again)
}

// beginScan finds the block after which the scan begins.
func (t *incident) beginScan(ctx context.Context, at ForeignScan) (ForeignScan, error) {
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

// rescanBlocks reads the blocks again, slowly, where a nonce was in none of them. The node may
// have been wrong, or the start too high.
func (t *incident) rescanBlocks(ctx context.Context, s *blockSpan, at *ForeignScan) error {
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

// blockSpan is the input and the result of reading a range of blocks.
type blockSpan struct {
	turn    int
	patient bool // it waits at a transaction that is not proved
	head    uint64
	count   uint64
	left    []uint64

	end, final uint64 // the last block that need not be read again; the last final one
	read       int    // number of blocks
	found      map[uint64]ConsumingTx
	proven     []ForeignTransaction
	ours       map[uint64]bool // nonces that stored versions consumed
	held       bool            // it waits at a transaction that is not proved, or not final for the first node queried
}

// missing are the requested nonces that no block has shown.
func (s *blockSpan) missing() []uint64 {
	return slices.DeleteFunc(slices.Clone(s.left), func(n uint64) bool {
		return s.ours[n] || slices.ContainsFunc(s.proven, func(f ForeignTransaction) bool { return f.Nonce == n })
	})
}

// readSpan reads blocks after one, as many as the invocation still may, and proves the
// transactions that it finds. s.end is below the first transaction that must be read again.
func (t *incident) readSpan(ctx context.Context, s *blockSpan, after uint64) error {
	s.end, s.found, s.ours = after, make(map[uint64]ConsumingTx), make(map[uint64]bool)
	for first := true; first || !t.isHalfTimeOver() && !t.isPastDeadline(); first = false {
		most := min(maxBlocksPerCall, maxScanBlocks-t.blocksRead)
		r, err := t.readBlocks(ctx, BlocksQuery{Submitter: t.state.submitterOf(), After: s.end, Most: most, Turn: s.turn})
		if err != nil && !errors.Is(err, ErrConsumerUnavailable) && !errors.Is(err, lease.ErrFenced) { // possibly too much for one answer
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

// keepWanted keeps the transactions of requested nonces.
func (s *blockSpan) keepWanted(t *incident, transactions map[uint64]ConsumingTx) {
	for n, consuming := range transactions {
		switch _, wanted := slices.BinarySearch(s.left, n); {
		case wanted && t.state.hasVersion(consuming.Hash):
			s.ours[n] = true
		case wanted || n >= s.count:
			s.found[n] = consuming
		}
	}
}

// proveSpan proves the first transactions that were found. s.end is below the block of the first
// one not proved. It passes such a block only after the scan has waited there for maxUnprovenWait.
func (t *incident) proveSpan(ctx context.Context, s *blockSpan, after uint64) error {
	var all []ForeignTransaction
	for n, consuming := range s.found {
		all = append(all, ForeignTransaction{Nonce: n, Incident: t.state.Incident, Tx: consuming, CallDigest: consuming.CallDigest()})
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

func (t *incident) readBlocks(ctx context.Context, q BlocksQuery) (r BlocksRead, err error) {
	err = t.callOutside(ctx, func(ctx context.Context) error {
		r, err = t.chain.ReadBlocks(ctx, q)
		return err
	})
	return r, err
}
