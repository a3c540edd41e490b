package nonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ReleaseMode is how a submitter leaves PROTECT.
type ReleaseMode string

// Resume says that the view was wrong; resync accepts that nonces were lost.
const (
	Resume ReleaseMode = "resume"
	Resync ReleaseMode = "resync"
)

// Leave is an operator's decision to end one episode of PROTECT.
type Leave struct {
	Episode  int // the one the operator looked at; a later one stays
	Mode     ReleaseMode
	By       string
	Reason   string
	Count    uint64            // for resync: the chain's count that is accepted
	Requests map[uint64]string // for resync: which request each lost nonce was, or [NoRequest]
	Hashes   map[uint64]Hash   // for resync: by which transaction each lost nonce was consumed, where no node tells
	Executed map[uint64]string // for resync: how the operator knows that the request which is named for the nonce was carried out, where no node can prove it
	Matching bool              // for resync: nonces that Requests does not list get the requests that match one to one
	DryRun   bool              // for resync: nothing is written
	Change   int64             // filled in by the release: [LostBytes.Change], by which it was judged
	Fill     *uint64           // for resync: the largest window that the submitter can have had; nil: as the rules have it (see [LostBytes])
	Filling  *Filling          // for resync, filled in by the release: what placeholders consume; nil: nothing is filled
	Resting  bool              // for resume: only where the chain's counts, mined and pending, are the next nonce here
	End      []Naming          // for resync, filled in by the release: requests without a nonce that end with it
	Fallen   []FinalTx         // for resync, filled in by the release: final ones that the chain no longer has
	Takers   map[uint64]Taker  // for resync, filled in by the release: what took the nonces of intents
}

// Errors of [Worker.Release]. After each, the episode is as it was.
var (
	// ErrNotLeader reports that another invocation kept the lease all the while.
	ErrNotLeader = errors.New("the submitter is being served by another invocation")
	// ErrEpisodeClosed reports that the episode named is not the open one.
	ErrEpisodeClosed = errors.New("that episode of PROTECT is not open")
	// ErrNotAccepted reports a database that is not the one written last.
	ErrNotAccepted = errors.New("the database is not the one written last, and no operator has accepted it: POST /admin/v1/authority/accept first")
)

// ErrCount reports a resync to another count than the chain's final one.
type ErrCount struct {
	Accepted, Next uint64
	Final          *uint64 // nil: the node has no finalized block
}

// Error names the counts.
func (e ErrCount) Error() string {
	if e.Final == nil {
		return "the node has no finalized block yet to prove a loss by; for a chain that has no such tag at all, set chain.finalizedTag to false"
	}
	return fmt.Sprintf("resync accepts the count %d; the chain's, at its finalized block, is %d, and the next nonce here is %d",
		e.Accepted, *e.Final, e.Next)
}

// ErrUsed reports a submitter whose counts on the chain are not its next nonce.
type ErrUsed struct{ Latest, Pending, Next uint64 }

// Error names the counts.
func (e ErrUsed) Error() string {
	return fmt.Sprintf("the account has %d transactions mined and %d with those pending, and its next nonce here is %d", e.Latest, e.Pending, e.Next)
}

// Released is what a release did.
type Released struct {
	Displaced []uint64  // nonces that were lost to foreign transactions, those of intents first
	Fallen    []FinalTx // final transactions that the chain no longer has, which resync accepts
	NextNonce uint64
	Named     []Naming // what each name did, by nonce
	Filling   *Filling // the nonces that placeholders consume; nil: none was asked for or due
}

// releaseWait is how long a release waits for the lease.
const releaseWait = 5 * time.Second

// Release ends the episode under the lease, and asks for the next look. With
// [Resync], an intent whose nonce was taken ends FAILED/DISPLACED, and is never
// sent at another; each nonce that the chain has beyond the cursor gets a row of
// its own, DISPLACED. Above them placeholders may fill the nonces for which a lost database
// may have signed: see [Filling].
func (w *Worker) Release(ctx context.Context, s Submitter, l Leave) (out Released, err error) {
	chain, err := w.Chain(s)
	if err != nil {
		return out, err
	}
	taken, err := w.takeWaiting(ctx, s)
	if err != nil {
		return out, err
	}
	w.pass("release.taken")
	t := tenure{Worker: w, chain: remembering(chain), kind: KindAdvance, work: taken.Work, began: time.Now(), operator: true}
	defer func() {
		if err != nil {
			t.giveUp(ctx)
			err = errors.Join(err, t.Wake.Advance(context.WithoutCancel(ctx), s, t.work.Lease.Token+1)) // a mark may have been passed over
		}
	}()
	switch {
	case t.work.Foreign:
		return out, ErrNotAccepted
	case t.work.Episode != l.Episode || l.Episode == 0:
		return out, ErrEpisodeClosed
	}
	wr := Write{Moves: resumed(t.work), Release: Abandon}
	wr.Cursor = CursorChange{Trust: true, Leave: &l}
	if wr.Cursor.Final, l.Fallen, err = t.anchor(ctx); err != nil {
		return out, err
	}
	lost, err := t.Book.LostBytes(ctx, s)
	if err != nil {
		return out, err
	}
	l.Change = lost.Change
	switch {
	case l.Mode == Resync:
		wr.Moves, out, err = t.resync(ctx, &l, lost)
		if out.Fallen = l.Fallen; err != nil {
			return out, err
		}
		if l.DryRun {
			t.giveUp(ctx)
			return out, w.Wake.Advance(ctx, s, t.work.Lease.Token+1)
		}
	case len(l.Fallen) > 0:
		return out, ErrNotBack{l.Fallen}
	default:
		if err = errors.Join(lost.mayResume(), t.mayRest(ctx, l)); err != nil {
			return out, err
		}
	}
	out.Fallen = l.Fallen
	wr.Lease = t.work.Lease
	began := time.Now()
	done, err := t.Book.Write(ctx, wr)
	if err != nil {
		return out, fmt.Errorf("release %s: %w", s, err)
	}
	w.pass("release.written")
	t.wrote(ctx, began, wr, done)
	if l.Mode == Resume {
		out.NextNonce = t.work.NextNonce
	}
	return out, w.Wake.Advance(ctx, s, done.Token)
}

// takeWaiting takes the lease, waiting for a while where another holds it.
func (w *Worker) takeWaiting(ctx context.Context, s Submitter) (Taken, error) {
	owner := w.Node + "/" + invocationID()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		taken, err := w.take(ctx, s, owner, true)
		if err != nil {
			return taken, errors.Join(err, w.forsake(ctx, s, owner))
		}
		if taken.Held {
			return taken, nil
		}
		if time.Since(began) > releaseWait {
			return taken, ErrNotLeader
		}
		select {
		case <-ctx.Done():
			return taken, ctx.Err()
		case <-tick.C:
		}
	}
}

// forsake gives a lease back that was perhaps taken: the answer was lost. Nobody's
// task would come again for it, and creates would count on its holder.
func (w *Worker) forsake(ctx context.Context, s Submitter, owner string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
	defer cancel()
	taken, err := w.Book.Take(ctx, s, owner, false)
	if err != nil || !taken.Held {
		return err
	}
	done, err := w.Book.Write(ctx, Write{Lease: taken.Work.Lease, Release: Abandon})
	if err != nil {
		return err
	}
	return w.Wake.Advance(ctx, s, done.Token)
}

// resumed takes transactions out of the state PROTECT: they are watched as before, and
// sent again at once, as nobody knows what became of their bytes meanwhile.
func resumed(w Work) []Move {
	var moves []Move
	for _, t := range w.Unsettled {
		if t.State == Protect {
			t.State, t.Sub, t.LastError, t.NextCheckAt, t.NextResubmitAt = Tracking, Pending, "", &w.Now, &w.Now
			moves = append(moves, Move{From: Protect, To: t})
		}
	}
	return moves
}

// resync proves the loss that the operator accepts: one node, at its finalized
// block, has the count named; and it has no receipt of any version of the
// unsettled nonces below it.
func (t *tenure) resync(ctx context.Context, l *Leave, bytes LostBytes) ([]Move, Released, error) {
	q := Look{Submitter: t.work.submitter(), Account: true, FinalCount: true}
	for _, x := range t.work.Unsettled {
		q.Receipts = append(q.Receipts, x.Versions...)
	}
	v, err := t.look(ctx, q)
	if err != nil {
		return nil, Released{}, fmt.Errorf("look at the final count: %w", err)
	}
	if v.FinalCount == nil || *v.FinalCount != l.Count || l.Count < t.work.lowest() {
		return nil, Released{}, ErrCount{Accepted: l.Count, Next: t.work.NextNonce, Final: v.FinalCount}
	}
	if err := t.borneOut(ctx, q, v, fmt.Sprintf("the account's final count is %d, and none of its versions has a receipt", l.Count), lostToo(t.work, v, l.Count)); err != nil {
		return nil, Released{}, err
	}
	moves, lost := displaced(t.work, v, l.Count)
	for n := t.work.NextNonce; n < l.Count; n++ {
		lost = append(lost, n)
	}
	moves, named, err := t.nameLost(ctx, l, v, moves, evidence{lost: lost, payer: bytes.Payer})
	if err != nil {
		return nil, Released{}, err
	}
	out := Released{Displaced: lost, NextNonce: max(t.work.NextNonce, l.Count), Named: named}
	if err := t.fill(l, v, bytes); err != nil {
		return nil, Released{}, err
	}
	if out.Filling = l.Filling; out.Filling != nil {
		out.NextNonce = max(out.NextNonce, out.Filling.Below)
	}
	return moves, out, nil
}

// mayRest proves, where the release wants that, that the account has sent nothing that is
// not known here: a quorum of nodes says that its next nonce is the one here, also with
// their pools.
func (t *tenure) mayRest(ctx context.Context, l Leave) error {
	if !l.Resting {
		return nil
	}
	next := t.work.NextNonce
	q := Look{Submitter: t.work.submitter(), Account: true}
	v, err := t.look(ctx, q)
	if err != nil {
		return fmt.Errorf("look at the counts: %w", err)
	}
	at := func(o View) bool { return o.Account.LatestCount == next && o.Account.PendingCount == next }
	if !at(v) {
		return ErrUsed{v.Account.LatestCount, v.Account.PendingCount, next}
	}
	return t.borneOut(ctx, q, v, fmt.Sprintf("the account's counts are %d", next), func(o View) vote {
		if at(o) {
			return bearsOut
		}
		return contradicts
	})
}

// lostToo asks a view whether its final count is the same, and nothing that is to end
// by v has a receipt there. One whose final count is lower may not be so far.
func lostToo(w Work, v View, count uint64) func(View) vote {
	return func(o View) vote {
		for _, t := range w.Unsettled {
			if _, answer := findReceipt(t, o); *t.Nonce < count && noReceipt(t, v) && answer != AnswerNotFound {
				if answer == AnswerFound {
					return contradicts
				}
				return silent
			}
		}
		switch {
		case o.FinalCount == nil || *o.FinalCount < count:
			return silent
		case *o.FinalCount == count:
			return bearsOut
		}
		return contradicts
	}
}

// displaced ends what lost its nonce below count, and lets the rest be watched
// as before.
func displaced(w Work, v View, count uint64) (moves []Move, lost []uint64) {
	for _, m := range resumed(w) {
		if *m.To.Nonce >= count || !noReceipt(m.To, v) {
			moves = append(moves, m)
		}
	}
	for _, t := range w.Unsettled {
		if *t.Nonce >= count || !noReceipt(t, v) {
			continue
		}
		from := t.State
		t.State, t.Sub, t.NextCheckAt, t.NextResubmitAt = Failed, Displaced, nil, nil
		t.Receipt, t.Confirmations = nil, nil // of a block that is gone
		t.LastError = "a foreign transaction took its nonce, and an operator accepted the loss"
		moves = append(moves, Move{From: from, To: t})
		lost = append(lost, *t.Nonce)
	}
	return moves, lost
}
