// Package session holds the lease of one submitter for one invocation: it acquires, renews and
// releases the lease, and makes every outside call end before the lease does. It also reports
// commits to the log and the watcher.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// Service is what the lease sessions of one process share.
type Service struct {
	Store   txmanager.Store
	ChainOf func(txmanager.Submitter) (txmanager.ChainConnector, error) // the connector of a submitter's chain
	Tasks   txmanager.TaskEnqueuer
	Rules   rules.Rules
	Timing  Timing
	Node    string // this instance, for lease owners and logs
	Log     *slog.Logger
	Watcher txmanager.Watcher  // for metrics and traces; may be nil
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

// Session is the time from acquiring the lease to releasing it, by one invocation.
type Session struct {
	*Service
	Chain txmanager.ChainConnector
	Kind  txmanager.Kind
	Began time.Time
	State txmanager.SubmitterState // as the database has it: every commit is applied to it

	Released bool // the last commit released the lease

	ForOperator bool // an operator waits for the answer: see Require
}

// releaseTimeout bounds the last write of a lease session that failed or was cancelled.
const releaseTimeout = 2 * time.Second

// Acquire acquires the lease and applies the rules' window to the loaded state.
func (w *Service) Acquire(ctx context.Context, s txmanager.Submitter, owner string, wide bool) (txmanager.AcquireResult, error) {
	taken, err := w.Store.Acquire(ctx, s, owner, wide && !w.Rules.Strict)
	taken.State = rules.WithoutChecks(w.Rules.BindWindow(taken.State))
	return taken, err
}

// NewOwner is a new lease owner: this instance and a random id for one invocation.
func (w *Service) NewOwner() string { return w.Node + "/" + rand.Text()[:16] }

// releaseWait bounds the wait for the lease.
const releaseWait = 5 * time.Second

// OpenWaiting acquires the lease of s for a session that may sign. It waits up to releaseWait where
// another owner holds the lease.
func (w *Service) OpenWaiting(ctx context.Context, s txmanager.Submitter) (*Session, error) {
	chain, err := w.ChainOf(s)
	if err != nil {
		return nil, err
	}
	owner := w.NewOwner()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		switch taken, err := w.Acquire(ctx, s, owner, true); {
		case err != nil:
			return nil, errors.Join(err, w.ReleaseUnknown(ctx, s, owner))
		case taken.Held:
			return w.Open(chain, txmanager.KindAdvance, taken.State), nil
		case time.Since(began) > releaseWait:
			return nil, txmanager.ErrNotLeader
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// Open is the session of an acquired lease.
func (w *Service) Open(chain txmanager.ChainConnector, kind txmanager.Kind, state txmanager.SubmitterState) *Session {
	return &Session{Service: w, Chain: payloadCache{chain, make(map[string]func() (txmanager.Call, error))}, Kind: kind, Began: time.Now(), State: state}
}

// ReleaseUnknown releases a lease that may have been acquired, since the answer was lost. No task
// would return for this owner, and creates would rely on it as the holder.
func (w *Service) ReleaseUnknown(ctx context.Context, s txmanager.Submitter, owner string) error {
	ctx = context.WithoutCancel(ctx)
	bound, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	taken, err := w.Store.Acquire(bound, s, owner, false)
	if err != nil || !taken.Held {
		return err
	}
	bound, cancel = context.WithTimeout(ctx, releaseTimeout) // the acquire may have used up the first
	defer cancel()
	_, err = w.Store.Commit(bound, txmanager.Commit{Lease: taken.State.Lease, LeaseEnd: txmanager.ReleaseAnyway})
	return errors.Join(err, w.Tasks.EnqueueAdvance(ctx, s, taken.State.Lease.Token+1)) // also where the release is unknown
}

// IsPastDeadline reports whether no further iteration may begin.
func (t *Session) IsPastDeadline() bool {
	return time.Since(t.Began) > t.Timing.IterationsEndAfter || t.Stopping != nil && t.Stopping()
}

// IsHalfTimeOver reports whether half of the time for iterations is over.
func (t *Session) IsHalfTimeOver() bool {
	return time.Since(t.Began) > t.Timing.IterationsEndAfter/2
}

// ReleaseAfterFailure releases the lease after a failure. The token rises, so that the retried
// task of this invocation, or any other, gets an unused name.
func (t *Session) ReleaseAfterFailure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := t.Store.Commit(ctx, txmanager.Commit{Lease: t.State.Lease, LeaseEnd: txmanager.ReleaseAnyway})
	if errors.Is(err, lease.ErrFenced) { // perhaps our own BeginIteration raised the token and its answer was lost
		var taken txmanager.AcquireResult
		if taken, err = t.Store.Acquire(ctx, t.State.Submitter(), t.State.Lease.Owner, false); err == nil && taken.Held {
			_, err = t.Store.Commit(ctx, txmanager.Commit{Lease: taken.State.Lease, LeaseEnd: txmanager.ReleaseAnyway})
		}
	}
	if err != nil {
		t.Log.WarnContext(ctx, "lease not released: it will expire", append(t.LogAttrs(), "error", err.Error())...)
	}
}

// Commit writes w under the fence and applies the written parts to t.State.
func (t *Session) Commit(ctx context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	w.Lease, w.Fees = t.State.Lease, gas.FeeUses(t.State, w)
	began := time.Now()
	bound, cancel := t.Timing.Lease.WriteContext(ctx, w.Lease)
	defer cancel()
	written, err := t.Store.Commit(bound, w)
	if err != nil {
		return written, fmt.Errorf("write for %s: %w", t.State.Submitter(), err)
	}
	t.reportCommit(ctx, began, w, written)
	w.Allocations = w.Allocations[:written.Allocated] // the store did not bind the others
	t.State = rules.AfterCommit(t.State, w)
	if t.Released = written.Released; t.Released {
		t.State.Lease.Token = written.Token
	}
	return written, nil
}

// Query queries the chain once, within the lease.
func (t *Session) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	return Outside(ctx, t, func(ctx context.Context) (txmanager.ChainObservation, error) { return t.Chain.Query(ctx, q) })
}

// FindConsumingTx finds the transaction that consumed nonce n, within the lease.
func (t *Session) FindConsumingTx(ctx context.Context, n uint64) (txmanager.ConsumingTx, error) {
	return Outside(ctx, t, func(ctx context.Context) (txmanager.ConsumingTx, error) {
		return t.Chain.FindConsumingTx(ctx, t.State.Submitter(), n)
	})
}

// Outside is [Session.CallOutside] for a call with a result.
func Outside[T any](ctx context.Context, t *Session, f func(context.Context) (T, error)) (result T, err error) {
	err = t.CallOutside(ctx, func(ctx context.Context) error {
		result, err = f(ctx)
		return err
	})
	return result, err
}

// CallOutside makes one outside call, which must end before the lease does. A released lease counts
// as if it were held, but is not renewed: a process that was paused after the release does not act on
// an old state.
func (t *Session) CallOutside(ctx context.Context, f func(context.Context) error) error {
	if t.Released {
		ctx, cancel := t.State.Lease.CallContext(ctx, t.Timing.CallTimeout)
		defer cancel()
		return f(ctx)
	}
	return t.CallOutsideWithin(ctx, t.Timing.CallTimeout, f)
}

func (t *Session) CallOutsideWithin(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if t.Timing.Lease.Short(t.State.Lease) {
		if err := t.RenewLease(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := t.State.Lease.CallContext(ctx, limit)
	defer cancel()
	return f(ctx)
}

func (t *Session) RenewLease(ctx context.Context) error {
	bound, cancel := t.Timing.Lease.WriteContext(ctx, t.State.Lease)
	defer cancel()
	renewed, err := t.Store.Renew(bound, t.State.Lease)
	if err != nil {
		return fmt.Errorf("renew lease of %s: %w", t.State.Submitter(), err)
	}
	t.State.Lease = renewed
	return nil
}

// AccountQuery queries the account, and the data that shows a violation.
func (t *Session) AccountQuery() txmanager.ChainQuery {
	q := txmanager.ChainQuery{Submitter: t.State.Submitter(), Account: true, HashesAt: rules.WatchedHeights(t.State)}
	if len(t.State.Open) > 0 {
		q.Known = t.State.Open[0].Versions
		q.Receipts = q.Known
	}
	return q
}

// CrashPoint reports a crash point of the function.
func (t *Session) CrashPoint(step string) { t.Service.CrashPoint(string(t.Kind) + "." + step) }

func (w *Service) CrashPoint(point string) {
	if w.Reached != nil {
		w.Reached(point)
	}
}

// payloadCache parses each payload once in a lease session.
type payloadCache struct {
	txmanager.ChainConnector
	read map[string]func() (txmanager.Call, error) // by payload
}

// ParsePayload implements [txmanager.ChainConnector].
func (m payloadCache) ParsePayload(payload []byte) (txmanager.Call, error) {
	if m.read[string(payload)] == nil {
		m.read[string(payload)] = sync.OnceValues(func() (txmanager.Call, error) { return m.ChainConnector.ParsePayload(payload) })
	}
	return m.read[string(payload)]()
}
