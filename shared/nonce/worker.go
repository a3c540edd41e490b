package nonce

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
	Book   Book
	Chain  func(Submitter) (ChainConnector, error) // the connector of a submitter's chain
	Signer SubmitterSignService
	// SignerNamed is the signer that a registration names. nil: Signer signs for all.
	SignerNamed func(signer string) SubmitterSignService

	Wake  Waker
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

	Node  string // this instance, in owners and logs
	Log   *slog.Logger
	Watch Watcher            // for metrics and traces; may be nil
	At    func(point string) // passed at each step by its name; nil but in tests
}

// Serve looks at everything that s has due and does it, as far as the function
// of kind may, until nothing is left to do now; then it asks for the next look.
//
// If another invocation holds the lease, Serve leaves a wake mark and a task
// for the case that the holder dies, and returns nil. If the lease is lost on
// the way, Serve starts over as if just called. Any error means that the
// caller's own task must come again (an answer other than 2xx): by then
// nothing is lost, since every step began with a fenced write.
func (w *Worker) Serve(ctx context.Context, s Submitter, kind Kind) error {
	began := time.Now()
	chain, err := w.Chain(s)
	if err != nil {
		return err
	}
	owner := w.Node + "/" + invocationID()
	for {
		taken, err := w.take(ctx, s, owner, kind.MaySign())
		if err != nil && ctx.Err() == nil { // it may be ours: the same owner finds it free
			taken, err = w.take(ctx, s, owner, kind.MaySign())
		}
		if err != nil {
			return fmt.Errorf("take lease of %s: %w", s, err)
		}
		if !taken.Held {
			return w.Wake.Rescue(ctx, s, taken)
		}
		t := tenure{Worker: w, chain: remembering(chain), kind: kind, work: taken.Work, began: began}
		t.pass("taken")
		if t.work.Foreign {
			w.Log.ErrorContext(ctx, "PROTECT on every submitter: the database is not the one written last", t.attrs()...)
		}
		err = t.run(ctx)
		if !errors.Is(err, lease.ErrFenced) {
			return err
		}
		w.Log.WarnContext(ctx, "fenced: starting over", t.attrs()...)
		if t.late() {
			return err
		}
	}
}

// take takes the lease from the book, and has the rules bind what was loaded.
func (w *Worker) take(ctx context.Context, s Submitter, owner string, wide bool) (Taken, error) {
	taken, err := w.Book.Take(ctx, s, owner, wide && !w.Rules.Strict)
	taken.Work = w.Rules.bind(taken.Work).unchecked()
	return taken, err
}

// invocationID tells one invocation from every other.
func invocationID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}
