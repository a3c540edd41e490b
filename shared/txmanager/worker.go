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

// Worker serves submitters. It keeps nothing between two calls: any number of
// workers, in any number of processes, may serve one submitter at once.
type Worker struct {
	Store   Store
	ChainOf func(Submitter) (ChainConnector, error) // the connector of a submitter's chain
	Signer  Signer
	// SignerNamed is the signer that a registration names. nil: Signer signs for all.
	SignerNamed func(signer string) Signer

	Tasks TaskEnqueuer
	Rules Rules

	// Handlers make the transactions of requests that name one.
	Handlers map[string]Handler

	// Intents checks MACs before anything is signed. nil: this process has no key.
	Intents IntentVerifier

	// Resolution decides by code about what is STUCK. nil, the default, only
	// waits for an operator; the log has an ERROR line when one becomes STUCK.
	Resolution StuckResolution

	// Stopping says that this process is about to end: a tenure gives the lease back
	// with its next write, and asks for another to go on. nil: it never is.
	Stopping func() bool

	Node    string // this instance, in owners and logs
	Log     *slog.Logger
	Watcher Watcher            // for metrics and traces; may be nil
	Reached func(point string) // passed at each step by its name; nil but in tests
}

// ServeSubmitter looks at everything that s has due and does it, as far as the function
// of kind may, until nothing is left to do now; then it asks for the next look.
//
// If another invocation holds the lease, Serve leaves a wake mark and a task
// for the case that the holder dies, and returns nil. If the lease is lost on
// the way, Serve starts over as if just called. Any error means that the
// caller's own task must come again (an answer other than 2xx): by then
// nothing is lost, since every step began with a fenced write.
func (w *Worker) ServeSubmitter(ctx context.Context, s Submitter, kind Kind) error {
	began := time.Now()
	chain, err := w.ChainOf(s)
	if err != nil {
		return err
	}
	owner := w.Node + "/" + invocationID()
	for {
		taken, err := w.acquire(ctx, s, owner, kind.MaySign())
		if err != nil && ctx.Err() == nil { // it may be ours: the same owner finds it free
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

// acquire takes the lease from the book, and has the rules bind what was loaded.
func (w *Worker) acquire(ctx context.Context, s Submitter, owner string, wide bool) (Acquired, error) {
	taken, err := w.Store.Acquire(ctx, s, owner, wide && !w.Rules.Strict)
	taken.State = w.Rules.bindWindow(taken.State).withoutChecks()
	return taken, err
}

// invocationID tells one invocation from every other.
func invocationID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}
