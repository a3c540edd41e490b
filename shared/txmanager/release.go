package txmanager

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

// ReleaseRequest is an operator's decision to end one episode of PROTECT.
type ReleaseRequest struct {
	Incident      int // the one the operator looked at; a later one stays
	Mode          ReleaseMode
	By            string
	Reason        string
	Count         uint64                 // for resync: the chain's count that is accepted
	Requests      map[uint64]string      // for resync: which request each lost nonce was, or [NoRequest]
	Hashes        map[uint64]Hash        // for resync: by which transaction each lost nonce was consumed, where no node tells
	Executed      map[uint64]string      // for resync: how the operator knows that the request which is named for the nonce was carried out, where no node can prove it
	Matching      bool                   // for resync: nonces that Requests does not list get the requests that match one to one
	DryRun        bool                   // for resync: nothing is written
	Change        int64                  // filled in by the release: [LostNonces.Change], by which it was judged
	Fill          *uint64                // for resync: the largest window that the submitter can have had; nil: as the rules have it (see [LostNonces])
	Filling       *Filling               // for resync, filled in by the release: what placeholders consume; nil: nothing is filled
	Untouched     bool                   // for resume: only where the chain's counts, mined and pending, are the next nonce here
	EndedRequests []Naming               // for resync, filled in by the release: requests without a nonce that end with it
	ReorgedFinals []FinalTx              // for resync, filled in by the release: final ones that the chain no longer has
	ConsumedBy    map[uint64]ConsumingTx // for resync, filled in by the release: what took the nonces of intents
}

// Errors of [Worker.ReleaseSubmitter]. After each, the episode is as it was.
var (
	// ErrNotLeader reports that another invocation kept the lease all the while.
	ErrNotLeader = errors.New("the submitter is being served by another invocation")
	// ErrIncidentClosed reports that the episode named is not the open one.
	ErrIncidentClosed = errors.New("that episode of PROTECT is not open")
	// ErrDatabaseNotAccepted reports a database that is not the one written last.
	ErrDatabaseNotAccepted = errors.New("the database is not the one written last, and no operator has accepted it: POST /admin/v1/authority/accept first")
)

// FinalCountError reports a resync to another count than the chain's final one.
type FinalCountError struct {
	Accepted, Next uint64
	Final          *uint64 // nil: the node has no finalized block
}

// Error names the counts.
func (e FinalCountError) Error() string {
	if e.Final == nil {
		return "the node has no finalized block yet to prove a loss by; for a chain that has no such tag at all, set chain.finalizedTag to false"
	}
	return fmt.Sprintf("resync accepts the count %d; the chain's, at its finalized block, is %d, and the next nonce here is %d",
		e.Accepted, *e.Final, e.Next)
}

// AccountUsedError reports a submitter whose counts on the chain are not its next nonce.
type AccountUsedError struct{ Latest, Pending, Next uint64 }

// Error names the counts.
func (e AccountUsedError) Error() string {
	return fmt.Sprintf("the account has %d transactions mined and %d with those pending, and its next nonce here is %d", e.Latest, e.Pending, e.Next)
}

// ReleaseResult is what a release did.
type ReleaseResult struct {
	Displaced     []uint64  // nonces that were lost to foreign transactions, those of intents first
	ReorgedFinals []FinalTx // final transactions that the chain no longer has, which resync accepts
	NextNonce     uint64
	Named         []Naming // what each name did, by nonce
	Filling       *Filling // the nonces that placeholders consume; nil: none was asked for or due
}

// releaseWait is how long a release waits for the lease.
const releaseWait = 5 * time.Second

// ReleaseSubmitter ends the episode under the lease, and asks for the next look. With
// [Resync], an intent whose nonce was taken ends FAILED/DISPLACED, and is never
// sent at another; each nonce that the chain has beyond the cursor gets a row of
// its own, DISPLACED. Above them placeholders may fill the nonces for which a lost database
// may have signed: see [Filling].
func (w *Worker) ReleaseSubmitter(ctx context.Context, s Submitter, l ReleaseRequest) (out ReleaseResult, err error) {
	chain, err := w.ChainOf(s)
	if err != nil {
		return out, err
	}
	taken, err := w.acquireWaiting(ctx, s)
	if err != nil {
		return out, err
	}
	w.reached("release.taken")
	t := leaseSession{Worker: w, chain: withPayloadCache(chain), kind: KindAdvance, state: taken.State, began: time.Now(), forOperator: true}
	defer func() {
		if err != nil {
			t.releaseAfterFailure(ctx)
			err = errors.Join(err, t.Tasks.EnqueueAdvance(context.WithoutCancel(ctx), s, t.state.Lease.Token+1)) // a mark may have been passed over
		}
	}()
	switch {
	case t.state.ForeignDatabase:
		return out, ErrDatabaseNotAccepted
	case t.state.Incident != l.Incident || l.Incident == 0:
		return out, ErrIncidentClosed
	}
	wr := Commit{Transitions: resumeProtected(t.state), LeaseEnd: ReleaseAnyway}
	wr.Cursor = CursorChange{ClearSuspected: true, CloseIncident: &l}
	if wr.Cursor.FinalBlocks, l.ReorgedFinals, err = t.recheckFinalBlocks(ctx); err != nil {
		return out, err
	}
	lost, err := t.Store.LostNonces(ctx, s)
	if err != nil {
		return out, err
	}
	l.Change = lost.Change
	switch {
	case l.Mode == Resync:
		wr.Transitions, out, err = t.planResync(ctx, &l, lost)
		if out.ReorgedFinals = l.ReorgedFinals; err != nil {
			return out, err
		}
		if l.DryRun {
			t.releaseAfterFailure(ctx)
			return out, w.Tasks.EnqueueAdvance(ctx, s, t.state.Lease.Token+1)
		}
	case len(l.ReorgedFinals) > 0:
		return out, FinalsMissingError{l.ReorgedFinals}
	default:
		if err = errors.Join(lost.checkResume(), t.checkUntouched(ctx, l)); err != nil {
			return out, err
		}
	}
	out.ReorgedFinals = l.ReorgedFinals
	wr.Lease = t.state.Lease
	began := time.Now()
	done, err := t.Store.Commit(ctx, wr)
	if err != nil {
		return out, fmt.Errorf("release %s: %w", s, err)
	}
	w.reached("release.written")
	t.noteCommit(ctx, began, wr, done)
	if l.Mode == Resume {
		out.NextNonce = t.state.NextNonce
	}
	return out, w.Tasks.EnqueueAdvance(ctx, s, done.Token)
}

// acquireWaiting takes the lease, waiting for a while where another holds it.
func (w *Worker) acquireWaiting(ctx context.Context, s Submitter) (Acquired, error) {
	owner := w.Node + "/" + invocationID()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		taken, err := w.acquire(ctx, s, owner, true)
		if err != nil {
			return taken, errors.Join(err, w.releaseUnknown(ctx, s, owner))
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

// releaseUnknown gives a lease back that was perhaps taken: the answer was lost. Nobody's
// task would come again for it, and creates would count on its holder.
func (w *Worker) releaseUnknown(ctx context.Context, s Submitter, owner string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	taken, err := w.Store.Acquire(ctx, s, owner, false)
	if err != nil || !taken.Held {
		return err
	}
	done, err := w.Store.Commit(ctx, Commit{Lease: taken.State.Lease, LeaseEnd: ReleaseAnyway})
	if err != nil {
		return err
	}
	return w.Tasks.EnqueueAdvance(ctx, s, done.Token)
}

// resumeProtected takes transactions out of the state PROTECT: they are watched as before, and
// sent again at once, as nobody knows what became of their bytes meanwhile.
func resumeProtected(w SubmitterState) []Transition {
	var moves []Transition
	for _, t := range w.Open {
		if t.State == Protect {
			t.State, t.Sub, t.LastError, t.NextCheckAt, t.NextResubmitAt = Tracking, Pending, "", &w.Now, &w.Now
			moves = append(moves, Transition{From: Protect, To: t})
		}
	}
	return moves
}

// planResync proves the loss that the operator accepts: one node, at its finalized
// block, has the count named; and it has no receipt of any version of the
// unsettled nonces below it.
func (t *leaseSession) planResync(ctx context.Context, l *ReleaseRequest, bytes LostNonces) ([]Transition, ReleaseResult, error) {
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true, FinalCount: true}
	for _, x := range t.state.Open {
		q.Receipts = append(q.Receipts, x.Versions...)
	}
	v, err := t.query(ctx, q)
	if err != nil {
		return nil, ReleaseResult{}, fmt.Errorf("look at the final count: %w", err)
	}
	if v.FinalCount == nil || *v.FinalCount != l.Count || l.Count < t.state.lowestOpenNonce() {
		return nil, ReleaseResult{}, FinalCountError{Accepted: l.Count, Next: t.state.NextNonce, Final: v.FinalCount}
	}
	if err := t.requireQuorum(ctx, q, v, fmt.Sprintf("the account's final count is %d, and none of its versions has a receipt", l.Count), agreesOnLoss(t.state, v, l.Count)); err != nil {
		return nil, ReleaseResult{}, err
	}
	moves, lost := displaceLost(t.state, v, l.Count)
	for n := t.state.NextNonce; n < l.Count; n++ {
		lost = append(lost, n)
	}
	moves, named, err := t.nameLostNonces(ctx, l, v, moves, evidence{lost: lost, payer: bytes.Payer})
	if err != nil {
		return nil, ReleaseResult{}, err
	}
	out := ReleaseResult{Displaced: lost, NextNonce: max(t.state.NextNonce, l.Count), Named: named}
	if err := t.planFill(l, v, bytes); err != nil {
		return nil, ReleaseResult{}, err
	}
	if out.Filling = l.Filling; out.Filling != nil {
		out.NextNonce = max(out.NextNonce, out.Filling.Below)
	}
	return moves, out, nil
}

// checkUntouched proves, where the release wants that, that the account has sent nothing that is
// not known here: a quorum of nodes says that its next nonce is the one here, also with
// their pools.
func (t *leaseSession) checkUntouched(ctx context.Context, l ReleaseRequest) error {
	if !l.Untouched {
		return nil
	}
	next := t.state.NextNonce
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true}
	v, err := t.query(ctx, q)
	if err != nil {
		return fmt.Errorf("look at the counts: %w", err)
	}
	at := func(o ChainObservation) bool { return o.Account.LatestCount == next && o.Account.PendingCount == next }
	if !at(v) {
		return AccountUsedError{v.Account.LatestCount, v.Account.PendingCount, next}
	}
	return t.requireQuorum(ctx, q, v, fmt.Sprintf("the account's counts are %d", next), func(o ChainObservation) vote {
		if at(o) {
			return agrees
		}
		return disagrees
	})
}

// agreesOnLoss asks a view whether its final count is the same, and nothing that is to end
// by v has a receipt there. One whose final count is lower may not be so far.
func agreesOnLoss(w SubmitterState, v ChainObservation, count uint64) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		for _, t := range w.Open {
			if _, answer := findReceipt(t, o); *t.Nonce < count && hasNoReceipt(t, v) && answer != AnswerNotFound {
				if answer == AnswerFound {
					return disagrees
				}
				return abstains
			}
		}
		switch {
		case o.FinalCount == nil || *o.FinalCount < count:
			return abstains
		case *o.FinalCount == count:
			return agrees
		}
		return disagrees
	}
}

// displaceLost ends what lost its nonce below count, and lets the rest be watched
// as before.
func displaceLost(w SubmitterState, v ChainObservation, count uint64) (moves []Transition, lost []uint64) {
	for _, m := range resumeProtected(w) {
		if *m.To.Nonce >= count || !hasNoReceipt(m.To, v) {
			moves = append(moves, m)
		}
	}
	for _, t := range w.Open {
		if *t.Nonce >= count || !hasNoReceipt(t, v) {
			continue
		}
		from := t.State
		t.State, t.Sub, t.NextCheckAt, t.NextResubmitAt = Failed, Displaced, nil, nil
		t.Receipt, t.Confirmations = nil, nil // of a block that is gone
		t.LastError = "a foreign transaction took its nonce, and an operator accepted the loss"
		moves = append(moves, Transition{From: from, To: t})
		lost = append(lost, *t.Nonce)
	}
	return moves, lost
}
