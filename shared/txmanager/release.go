package txmanager

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ReleaseMode is how a submitter leaves PROTECT.
type ReleaseMode string

// Resume states that the observation was wrong. Resync accepts that nonces were lost.
const (
	Resume ReleaseMode = "resume"
	Resync ReleaseMode = "resync"
)

// ReleaseRequest is an operator's decision to end one PROTECT incident.
type ReleaseRequest struct {
	Incident      int // the incident that the operator reviewed; a later one stays open
	Mode          ReleaseMode
	By            string
	Reason        string
	Count         uint64                 // for resync: the accepted count of the chain
	Requests      map[uint64]string      // for resync: the request that each lost nonce was, or [NoRequest]
	Hashes        map[uint64]Hash        // for resync: the hash of the transaction that consumed each lost nonce, where no node finds it
	Executed      map[uint64]string      // for resync: how the operator knows that the named request was carried out, where no node can prove it
	Matching      bool                   // for resync: nonces without an entry in Requests get the requests that match one to one
	DryRun        bool                   // for resync: nothing is written
	Change        int64                  // set by the release: the [LostNonces.Change] that it was decided with
	Fill          *uint64                // for resync: the largest window that the submitter can have had; nil: the registered window, and only where [LostNonces] requires a fill
	Filling       *Filling               // for resync, set by the release: the nonces for placeholders; nil: none
	Untouched     bool                   // for resume: only if the chain's counts, mined and pending, equal the next nonce here
	EndedRequests []Naming               // for resync, set by the release: requests without a nonce that end with it
	ReorgedFinals []FinalTx              // for resync, set by the release: final transactions that the chain no longer has
	ConsumedBy    map[uint64]ConsumingTx // for resync, set by the release: the transactions that consumed nonces of intents
}

// Errors of [Worker.ReleaseSubmitter]. After each, the incident is unchanged.
var (
	// ErrNotLeader reports that another invocation held the lease all the time.
	ErrNotLeader = errors.New("the submitter is being served by another invocation")
	// ErrIncidentClosed reports that the named incident is not the open one.
	ErrIncidentClosed = errors.New("that episode of PROTECT is not open")
	// ErrDatabaseNotAccepted reports a database that is not the last one written.
	ErrDatabaseNotAccepted = errors.New("the database is not the one written last, and no operator has accepted it: POST /admin/v1/authority/accept first")
)

// FinalCountError reports a resync to a count other than the chain's final one.
type FinalCountError struct {
	Accepted, Next uint64
	Final          *uint64 // nil: the node has no finalized block
}

// Error gives the counts.
func (e FinalCountError) Error() string {
	if e.Final == nil {
		return "the node has no finalized block yet to prove a loss by; for a chain that has no such tag at all, set chain.finalizedTag to false"
	}
	return fmt.Sprintf("resync accepts the count %d; the chain's, at its finalized block, is %d, and the next nonce here is %d",
		e.Accepted, *e.Final, e.Next)
}

// AccountUsedError reports that the account's counts on the chain differ from its next nonce.
type AccountUsedError struct{ Latest, Pending, Next uint64 }

// Error gives the counts.
func (e AccountUsedError) Error() string {
	return fmt.Sprintf("the account has %d transactions mined and %d with those pending, and its next nonce here is %d", e.Latest, e.Pending, e.Next)
}

// ReleaseResult is the effect of a release.
type ReleaseResult struct {
	Displaced     []uint64  // nonces lost to foreign transactions, those of intents first
	ReorgedFinals []FinalTx // final transactions that the chain no longer has, accepted by resync
	NextNonce     uint64
	Named         []Naming // the effect of each name, by nonce
	Filling       *Filling // the nonces that placeholders consume; nil: none requested or required
}

// ReleaseSubmitter ends the incident under the lease, and enqueues an advance. With [Resync], an
// intent whose nonce was consumed ends FAILED/DISPLACED and is never sent at another nonce. Each
// nonce that the chain consumed beyond the cursor gets a DISPLACED row. Above them, placeholders
// may fill the nonces for which a lost database may have signed: see [Filling].
func (w *Service) releaseSubmitter(ctx context.Context, s Submitter, l ReleaseRequest) (out ReleaseResult, err error) {
	chain, err := w.ChainOf(s)
	if err != nil {
		return out, err
	}
	taken, err := w.acquireWaiting(ctx, s)
	if err != nil {
		return out, err
	}
	w.reached("release.taken")
	t := incident{leaseSession: &leaseSession{Service: w, chain: withPayloadCache(chain), kind: KindAdvance, state: taken.State, began: time.Now(), forOperator: true}}
	defer func() {
		if err != nil {
			t.releaseAfterFailure(ctx)
			err = errors.Join(err, t.Tasks.EnqueueAdvance(context.WithoutCancel(ctx), s, t.state.Lease.Token+1)) // the release may have overridden the rerun flag
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

// resumeProtected takes transactions out of state PROTECT. They are polled as before and sent
// again at once, since the state of their bytes is unknown.
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

// planResync proves the loss that the operator accepts. One node's count at its finalized block
// must be the accepted one, and a quorum must agree. A nonce below it is lost if no version of its
// open transaction has a receipt.
func (t *incident) planResync(ctx context.Context, l *ReleaseRequest, bytes LostNonces) ([]Transition, ReleaseResult, error) {
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true, FinalCount: true}
	for _, x := range t.state.Open {
		q.Receipts = append(q.Receipts, x.Versions...)
	}
	v, err := t.query(ctx, q)
	if err != nil {
		return nil, ReleaseResult{}, fmt.Errorf("query the final count: %w", err)
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

// checkUntouched proves, if the release requires it, that the account sent no transaction unknown
// here. A quorum of nodes must report the next nonce here as both of its counts, mined and
// pending.
func (t *incident) checkUntouched(ctx context.Context, l ReleaseRequest) error {
	if !l.Untouched {
		return nil
	}
	next := t.state.NextNonce
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true}
	v, err := t.query(ctx, q)
	if err != nil {
		return fmt.Errorf("query the counts: %w", err)
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

// agreesOnLoss votes on whether the final count is the same, and no version of a lost transaction
// has a receipt. A node with a lower final count abstains.
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

// displaceLost ends the transactions that lost their nonces below count, and resumes the others.
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
		t.Receipt, t.Confirmations = nil, nil // of a block that was reorged out
		t.LastError = "a foreign transaction took its nonce, and an operator accepted the loss"
		moves = append(moves, Transition{From: from, To: t})
		lost = append(lost, *t.Nonce)
	}
	return moves, lost
}
