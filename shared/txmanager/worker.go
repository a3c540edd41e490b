package txmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Worker serves submitters. It keeps no state between calls: any number of workers, in any number
// of processes, may serve one submitter at once.
type Worker struct {
	Service
	Limits Limits2
	Signer Signer
	// SignerNamed returns the signer that a registration names. nil: Signer signs for all.
	SignerNamed func(signer string) Signer

	// Handlers make the transactions of requests that name a handler.
	Handlers map[string]Handler

	// Intents checks MACs before signing. nil: this process has no key.
	Intents IntentVerifier

	// Resolution decides by code about STUCK transactions. nil, the default, waits for an
	// operator. The log has an ERROR line when a transaction becomes STUCK.
	Resolution StuckResolution
}

// Limits2 are the time limits of signatures and handler calls.
type Limits2 struct {
	SignTimeout     time.Duration // bounds one call to a signer; 0: CallTimeout
	SignParallel    int           // concurrent signatures for one submitter, where signing may precede binding the nonce; 0: 1
	HandlerTimeout  time.Duration // bounds one handler call
	HandlerPatience time.Duration // how long a handler that answers ErrNotNow is asked again, from the first call on
}

// ServeSubmitter does everything that s has due, as far as the function of kind may. When nothing
// is left to do now, it enqueues the next task.
//
// If another invocation holds the lease, ServeSubmitter sets the rerun flag and enqueues a
// takeover task, in case the holder dies. It then returns nil. If the lease is lost on the way, it
// starts over as if just called. After any error the caller must let its own task be retried (an
// answer other than 2xx). No stored state is lost, since every step begins with a fenced write.
func (w *Worker) ServeSubmitter(ctx context.Context, s Submitter, kind Kind) error {
	began := time.Now()
	chain, err := w.ChainOf(s)
	if err != nil {
		return err
	}
	owner := w.newOwner()
	for {
		taken, err := w.acquire(ctx, s, owner, kind.MaySign())
		if err != nil && ctx.Err() == nil { // the lost answer may have granted the lease: the same owner can acquire it again
			taken, err = w.acquire(ctx, s, owner, kind.MaySign())
		}
		if err != nil {
			return fmt.Errorf("take lease of %s: %w", s, err)
		}
		if !taken.Held {
			return w.Tasks.EnqueueTakeover(ctx, s, taken)
		}
		t := invocation{leaseSession: &leaseSession{Service: &w.Service, chain: withPayloadCache(chain), kind: kind, state: taken.State, began: began}, worker: w}
		t.reached("taken")
		if t.state.ForeignDatabase {
			w.Log.ErrorContext(ctx, "PROTECT on every submitter: the database is not the one written last", t.logAttrs()...)
		}
		err = t.run(ctx)
		if !errors.Is(err, lease.ErrFenced) {
			return err
		}
		w.Log.WarnContext(ctx, "fenced: starting over", t.logAttrs()...)
		if t.isPastDeadline() {
			return err
		}
	}
}
