// Package worker serves submitters: within a lease session it loads, queries, evaluates, commits,
// signs and sends until nothing is due. Start reading at [Worker.ServeSubmitter].
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/protect"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// Worker serves submitters. It keeps no state between calls: any number of workers, in any number
// of processes, may serve one submitter at once.
type Worker struct {
	session.Service
	Limits Limits

	// SignerNamed returns the signer that a registration names.
	SignerNamed func(signer string) txmanager.Signer

	// Handlers make the transactions of requests that name a handler.
	Handlers map[string]txmanager.Handler

	// Intents checks MACs before signing. nil: this process has no key.
	Intents txmanager.IntentVerifier

	// Resolution decides by code about STUCK transactions. nil, the default, waits for an
	// operator. The log has an ERROR line when a transaction becomes STUCK.
	Resolution txmanager.StuckResolution
}

// Limits are the time limits of signatures and handler calls.
type Limits struct {
	SignTimeout     time.Duration // bounds one call to a signer; 0: CallTimeout
	SignParallel    int           // concurrent signatures for one submitter, where signing may precede binding the nonce; 0: 1
	HandlerTimeout  time.Duration // bounds one handler call
	HandlerPatience time.Duration // how long a handler that answers ErrRetryLater is asked again, from the first call on
}

// ServeSubmitter does everything that s has due, as far as the function of kind may. When nothing
// is left to do now, it enqueues the next task.
//
// If another invocation holds the lease, ServeSubmitter sets the rerun flag and enqueues a
// takeover task, in case the holder dies. It then returns nil. If the lease is lost on the way, it
// starts over as if just called. After any error the caller must let its own task be retried (an
// answer other than 2xx). No stored state is lost, since every step begins with a fenced write.
func (w *Worker) ServeSubmitter(ctx context.Context, s txmanager.Submitter, kind txmanager.Kind) error {
	began := time.Now()
	chain, err := w.ChainOf(s)
	if err != nil {
		return err
	}
	owner := w.NewOwner()
	for {
		taken, err := w.acquireTwice(ctx, s, owner, kind)
		if ctx.Err() != nil { // nobody else would release a lease that this call has taken
			return fmt.Errorf("take lease of %s: %w", s, errors.Join(cmp.Or(err, ctx.Err()), w.ReleaseUnknown(ctx, s, owner)))
		}
		if err != nil {
			return fmt.Errorf("take lease of %s: %w", s, err)
		}
		if !taken.Held {
			return w.Tasks.EnqueueTakeover(ctx, s, taken)
		}
		t := invocation{Session: w.Open(chain, kind, taken.State), worker: w}
		t.Began = began
		t.CrashPoint("taken")
		if t.State.ForeignDatabase {
			w.Log.ErrorContext(ctx, "PROTECT on every submitter: the database is not the one written last", t.LogAttrs()...)
		}
		err = t.run(ctx)
		if !errors.Is(err, lease.ErrFenced) {
			return err
		}
		w.Log.WarnContext(ctx, "fenced: starting over", t.LogAttrs()...)
		if t.IsPastDeadline() {
			return err
		}
	}
}

// ReleaseSubmitter ends an incident: see [protect.Release].
func (w *Worker) ReleaseSubmitter(ctx context.Context, s txmanager.Submitter, l txmanager.ReleaseRequest) (txmanager.ReleaseResult, error) {
	return protect.Release(ctx, &w.Service, s, l)
}
