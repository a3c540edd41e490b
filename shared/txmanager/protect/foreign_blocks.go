package protect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

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

// readForeignBlocks finds foreign transactions in blocks, where a node lacks such old counts. It
// reads from the block of the last terminal nonce up to the last final block, and continues where
// the previous step stopped. A nonce that no block has shown by then has an unknown consuming
// transaction.
func (t *incident) readForeignBlocks(ctx context.Context, v txmanager.ChainObservation, left []uint64) (foreignProgress, error) {
	at, err := t.Store.ForeignScan(ctx, t.State.Submitter(), t.State.Incident, left[0])
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
	complete, err := t.finishSpan(ctx, &s, &at, v)
	if err != nil {
		return foreignProgress{}, err
	}
	for _, n := range s.missing() {
		t.noteUnknownConsumer(n, complete)
	}
	moved := at.Block > before.Block || !before.Begun || len(s.proven) > 0
	t.scan = at
	t.State.ForeignUnread = !complete || s.held || v.Account.LatestCount > *v.FinalCount
	t.State.ForeignReadable = moved && at.Block < at.Final
	if moved || !isSameScan(before, at) {
		return foreignProgress{found: s.proven, scan: &at}, nil
	}
	return foreignProgress{}, nil
}

// finishSpan updates at after s was read. At the last final block it may read the blocks again.
// complete reports that no block can show a missing nonce any more.
func (t *incident) finishSpan(ctx context.Context, s *blockSpan, at *txmanager.ForeignScan, v txmanager.ChainObservation) (complete bool, err error) {
	at.Block, at.Final = s.end, s.final
	if at.Block < at.Final {
		return false, nil
	}
	missing := s.missing()
	sureOfLast := v.FinalBlock == nil || at.Final >= *v.FinalBlock // about the count's last nonce, if no block shows it
	complete = at.EndedAt != nil && sureOfLast || !slices.Contains(missing, *v.FinalCount-1)
	at.EndedAt = cmp.Or(at.EndedAt, new(t.State.DatabaseTime()))
	if s.read == 0 && len(missing) > 0 {
		err = t.rescanBlocks(ctx, s, at)
	}
	return complete, err
}

// noteBlocksNotGiven records that the nonces in left stay unknown, if err is
// [txmanager.ErrConsumerUnavailable]. It returns err.
func (t *incident) noteBlocksNotGiven(left []uint64, err error) error {
	if errors.Is(err, txmanager.ErrConsumerUnavailable) {
		t.State.ForeignUnread = false
		for _, n := range left {
			t.noteUnknownConsumer(n, true)
		}
	}
	return err
}

// staysAtUnproven reports whether the scan waits at a transaction without a receipt.
func (t *incident) staysAtUnproven(at txmanager.ForeignScan) bool {
	return !at.Begun || t.State.DatabaseTime().Sub(at.MovedAt) < maxUnprovenWait
}

// isSameScan reports whether b needs no write after a.
func isSameScan(a, b txmanager.ForeignScan) bool {
	return a.Block == b.Block && a.Passes == b.Passes && (a.EndedAt == nil) == (b.EndedAt == nil) &&
		(a.Again == nil) == (b.Again == nil) && (a.Again == nil || *a.Again == *b.Again)
}

// beginScan finds the block after which the scan begins.
func (t *incident) beginScan(ctx context.Context, at txmanager.ForeignScan) (txmanager.ForeignScan, error) {
	at.Incident, at.Begun = t.State.Incident, true
	if at.TerminalBlock != nil {
		at.Start = *at.TerminalBlock - min(*at.TerminalBlock, terminalMargin)
		at.Block = at.Start
		return at, nil
	}
	r, err := t.readBlocks(ctx, txmanager.BlocksQuery{Submitter: t.State.Submitter(), OlderThan: at.Registered.Add(-registeredMargin)})
	at.Start, at.Block, at.Final = r.End, r.End, r.Final
	return at, err
}

// rescanBlocks reads the blocks again, slowly, where a nonce was in none of them. The node may
// have been wrong, or the start too high.
func (t *incident) rescanBlocks(ctx context.Context, s *blockSpan, at *txmanager.ForeignScan) error {
	if at.Again == nil {
		if t.State.DatabaseTime().Sub(*at.EndedAt) < rescanAfter {
			return nil
		}
		at.Again = new(at.Start - min(at.Start, rescanMargin<<min(at.Passes, 30)))
	}
	if err := t.readSpan(ctx, s, *at.Again); err != nil {
		return err
	}
	if at.Again = new(s.end); s.end >= at.Block {
		at.Again, at.EndedAt = nil, new(t.State.DatabaseTime())
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
	found      map[uint64]txmanager.ConsumingTx
	proven     []txmanager.ForeignTransaction
	ours       map[uint64]bool // nonces that stored versions consumed
	held       bool            // it waits at a transaction that is not proved, or not final for the first node queried
}

// missing are the requested nonces that no block has shown.
func (s *blockSpan) missing() []uint64 {
	return slices.DeleteFunc(slices.Clone(s.left), func(n uint64) bool {
		return s.ours[n] || slices.ContainsFunc(s.proven, func(f txmanager.ForeignTransaction) bool { return f.Nonce == n })
	})
}

// readSpan reads blocks after one, as many as the invocation still may, and proves the
// transactions that it finds. s.end is below the first transaction that must be read again.
func (t *incident) readSpan(ctx context.Context, s *blockSpan, after uint64) error {
	s.end, s.found, s.ours = after, make(map[uint64]txmanager.ConsumingTx), make(map[uint64]bool)
	for first := true; first || !t.IsHalfTimeOver() && !t.IsPastDeadline(); first = false {
		r, err := t.readNextBlocks(ctx, s)
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

// readNextBlocks reads blocks after s.end. If that fails, it reads one, since they may be too much
// for one answer.
func (t *incident) readNextBlocks(ctx context.Context, s *blockSpan) (txmanager.BlocksRead, error) {
	q := txmanager.BlocksQuery{Submitter: t.State.Submitter(), After: s.end, MaxBlocks: min(maxBlocksPerCall, maxScanBlocks-t.blocksRead), Turn: s.turn}
	r, err := t.readBlocks(ctx, q)
	if err != nil && !errors.Is(err, txmanager.ErrConsumerUnavailable) && !errors.Is(err, lease.ErrFenced) {
		q.MaxBlocks = min(q.MaxBlocks, 1)
		r, err = t.readBlocks(ctx, q)
	}
	if err == nil && r.Final > s.head+maxScanBlocks {
		err = fmt.Errorf("node %s answered final block %d above its head, block %d", r.Node, r.Final, s.head)
	}
	return r, err
}

// keepWanted keeps the transactions of requested nonces.
func (s *blockSpan) keepWanted(t *incident, transactions map[uint64]txmanager.ConsumingTx) {
	for n, consuming := range transactions {
		switch _, wanted := slices.BinarySearch(s.left, n); {
		case wanted && hasVersion(t.State, consuming.Hash):
			s.ours[n] = true
		case wanted || n >= s.count:
			s.found[n] = consuming
		}
	}
}

// proveSpan proves the first transactions that were found. s.end is below the block of the first
// one not proved. It passes such a block only after the scan has waited there for maxUnprovenWait.
func (t *incident) proveSpan(ctx context.Context, s *blockSpan, after uint64) error {
	var all []txmanager.ForeignTransaction
	some := 0 // how many are proved now
	for _, n := range slices.Sorted(maps.Keys(s.found)) {
		all = append(all, t.foreignTransaction(n, s.found[n]))
		if n < s.count {
			some = min(len(all), maxForeignReads)
		}
	}
	proven, err := t.proveForeign(ctx, all[:some], s.count)
	if err != nil {
		return err
	}
	s.proven = proven
	for i, f := range all {
		done := slices.ContainsFunc(proven, func(p txmanager.ForeignTransaction) bool { return p.Nonce == f.Nonce })
		if done || i < some && !s.patient && f.Tx.BlockNumber == after+1 {
			continue
		}
		s.held = true
		s.end = min(s.end, f.Tx.BlockNumber-1)
	}
	return nil
}

func (t *incident) readBlocks(ctx context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	return session.Outside(ctx, t.Session, func(ctx context.Context) (txmanager.BlocksRead, error) { return t.Chain.ReadBlocks(ctx, q) })
}
