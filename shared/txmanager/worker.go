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

// Worker serves submitters. It keeps no state between calls: any number of workers, in any number
// of processes, may serve one submitter at once.
type Worker struct {
	Store   Store
	ChainOf func(Submitter) (ChainConnector, error) // the connector of a submitter's chain
	Signer  Signer
	// SignerNamed returns the signer that a registration names. nil: Signer signs for all.
	SignerNamed func(signer string) Signer

	Tasks TaskEnqueuer
	Rules Rules

	// Handlers make the transactions of requests that name a handler.
	Handlers map[string]Handler

	// Intents checks MACs before signing. nil: this process has no key.
	Intents IntentVerifier

	// Resolution decides by code about STUCK transactions. nil, the default, waits for an
	// operator. The log has an ERROR line when a transaction becomes STUCK.
	Resolution StuckResolution

	// Stopping reports whether this process is about to end. The lease session then releases the
	// lease with its next write and enqueues a task. nil: never.
	Stopping func() bool

	Node    string // this instance, for lease owners and logs
	Log     *slog.Logger
	Watcher Watcher            // for metrics and traces; may be nil
	Reached func(point string) // called with the name of each crash point; nil outside tests
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
	owner := w.Node + "/" + invocationID()
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
		t := leaseSession{Worker: w, chain: withPayloadCache(chain), kind: kind, state: taken.State, began: began}
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

// acquire acquires the lease and applies the rules' window to the loaded state.
func (w *Worker) acquire(ctx context.Context, s Submitter, owner string, wide bool) (Acquired, error) {
	taken, err := w.Store.Acquire(ctx, s, owner, wide && !w.Rules.Strict)
	taken.State = w.Rules.bindWindow(taken.State).withoutChecks()
	return taken, err
}

// invocationID is a random id for one invocation.
func invocationID() string {
	var b [8]byte
	rand.Read(b[:]) // crypto/rand never fails
	return hex.EncodeToString(b[:])
}
