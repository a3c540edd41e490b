package txmanager

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Service is what the lease sessions of one process share.
type Service struct {
	Store   Store
	ChainOf func(Submitter) (ChainConnector, error) // the connector of a submitter's chain
	Tasks   TaskEnqueuer
	Rules   Rules
	Timing  Timing
	Node    string // this instance, for lease owners and logs
	Log     *slog.Logger
	Watcher Watcher            // for metrics and traces; may be nil
	Reached func(point string) // called with the name of each crash point; nil outside tests

	// Stopping reports whether this process is about to end. The lease session then releases the
	// lease with its next write and enqueues a task. nil: never.
	Stopping func() bool
}

// Timing are the time limits of a lease session.
type Timing struct {
	Lease              lease.Rules
	CallTimeout        time.Duration // bounds one call to a node
	IterationsEndAfter time.Duration // no further iteration begins when the invocation is older than this
}

// leaseSession is the time from acquiring the lease to releasing it, by one invocation.
type leaseSession struct {
	*Service
	chain ChainConnector
	kind  Kind
	began time.Time
	state SubmitterState // as the database has it: every commit is applied to it

	forOperator bool // an operator waits for the answer: see requireQuorum
}

// releaseTimeout bounds the last write of a lease session that failed or was cancelled.
const releaseTimeout = 2 * time.Second

// acquire acquires the lease and applies the rules' window to the loaded state.
func (w *Service) acquire(ctx context.Context, s Submitter, owner string, wide bool) (Acquired, error) {
	taken, err := w.Store.Acquire(ctx, s, owner, wide && !w.Rules.Strict)
	taken.State = w.Rules.bindWindow(taken.State).withoutChecks()
	return taken, err
}

// newOwner is a new lease owner: this instance and a random id for one invocation.
func (w *Service) newOwner() string {
	var b [8]byte
	rand.Read(b[:]) // crypto/rand never fails
	return w.Node + "/" + hex.EncodeToString(b[:])
}

// releaseWait bounds the wait for the lease.
const releaseWait = 5 * time.Second

// acquireWaiting acquires the lease. It waits up to releaseWait where another owner holds it.
func (w *Service) acquireWaiting(ctx context.Context, s Submitter) (Acquired, error) {
	owner := w.newOwner()
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

// releaseUnknown releases a lease that may have been acquired, since the answer was lost. No task
// would return for this owner, and creates would rely on it as the holder.
func (w *Service) releaseUnknown(ctx context.Context, s Submitter, owner string) error {
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

// isPastDeadline reports whether no further iteration may begin.
func (t *leaseSession) isPastDeadline() bool {
	return time.Since(t.began) > t.Timing.IterationsEndAfter || t.Stopping != nil && t.Stopping()
}

// isHalfTimeOver reports whether half of the time for iterations is over.
func (t *leaseSession) isHalfTimeOver() bool {
	return time.Since(t.began) > t.Timing.IterationsEndAfter/2
}

// releaseAfterFailure releases the lease after a failure. The token rises, so that the retried
// task of this invocation, or any other, gets an unused name.
func (t *leaseSession) releaseAfterFailure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := t.Store.Commit(ctx, Commit{Lease: t.state.Lease, LeaseEnd: ReleaseAnyway})
	if errors.Is(err, lease.ErrFenced) { // perhaps our own BeginIteration raised the token and its answer was lost
		var taken Acquired
		if taken, err = t.Store.Acquire(ctx, t.state.submitterOf(), t.state.Lease.Owner, false); err == nil && taken.Held {
			_, err = t.Store.Commit(ctx, Commit{Lease: taken.State.Lease, LeaseEnd: ReleaseAnyway})
		}
	}
	if err != nil {
		t.Log.WarnContext(ctx, "lease not given back: it will run out", append(t.logAttrs(), "error", err.Error())...)
	}
}

// query queries the chain once, within the lease.
func (t *leaseSession) query(ctx context.Context, q ChainQuery) (v ChainObservation, err error) {
	err = t.callOutside(ctx, func(ctx context.Context) error {
		v, err = t.chain.Query(ctx, q)
		return err
	})
	return v, err
}

// callOutside makes one outside call, which must end before the lease does.
func (t *leaseSession) callOutside(ctx context.Context, f func(context.Context) error) error {
	return t.callOutsideWithin(ctx, t.Timing.CallTimeout, f)
}

func (t *leaseSession) callOutsideWithin(ctx context.Context, most time.Duration, f func(context.Context) error) error {
	if t.Timing.Lease.Short(t.state.Lease) {
		if err := t.renewLease(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := t.state.Lease.CallContext(ctx, most)
	defer cancel()
	return f(ctx)
}

func (t *leaseSession) renewLease(ctx context.Context) error {
	bound, cancel := t.Timing.Lease.WriteContext(ctx, t.state.Lease)
	defer cancel()
	renewed, err := t.Store.Renew(bound, t.state.Lease)
	if err != nil {
		return fmt.Errorf("renew lease of %s: %w", t.state.submitterOf(), err)
	}
	t.state.Lease = renewed
	return nil
}

// accountQuery queries the account, and the data that shows a violation.
func (t *leaseSession) accountQuery() ChainQuery {
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true, HashesAt: t.state.watchedHeights()}
	if len(t.state.Open) > 0 {
		q.Known = t.state.Open[0].Versions
		q.Receipts = q.Known
	}
	return q
}
