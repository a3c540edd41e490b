package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// sendReleased sends the bytes that out's commit stored, after that commit released the lease. It
// enqueues the next poll at the same time. The bytes are bound to their nonce, so another invocation
// may send them too, or store a replacement meanwhile.
//
// The next chain query finds the outcome of an accepted broadcast. Any other outcome is recorded at
// once.
func (t *invocation) sendReleased(ctx context.Context, out outcome) error {
	t.CrashPoint("unsent")
	enqueued := make(chan error, 1)
	go func() { enqueued <- t.enqueueNext(ctx, out) }()
	results, err := t.send(ctx, []txmanager.Tx{out.unsent.tx}, nil)
	if err := errors.Join(<-enqueued, err); err != nil || results[0].Acknowledged() {
		return err
	}
	return t.recordOutcome(ctx, *out.unsent, results[0])
}

// recordOutcome acquires the lease again, loads the state, and records that no node accepted sent. It
// records nothing if the transaction has another version, broadcast or outcome by then. If another
// invocation holds the lease, that one sends the bytes again and gets an answer too.
func (t *invocation) recordOutcome(ctx context.Context, sent unsent, res txmanager.SendResult) error {
	s := t.State.Submitter()
	owner := t.NewOwner()
	taken, err := t.worker.acquireTwice(ctx, s, owner, t.Kind)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return fmt.Errorf("take lease of %s to record a broadcast: %w", s, errors.Join(err, t.worker.ReleaseUnknown(ctx, s, owner)))
	}
	if !taken.Held {
		return t.Tasks.EnqueueTakeover(ctx, s, taken)
	}
	t.State, t.Released = taken.State, false
	t.CrashPoint("taken")
	return t.runFrom(ctx, func(ctx context.Context, queried bool) (outcome, error) {
		i := slices.IndexFunc(t.State.Open, func(x txmanager.Tx) bool { return rules.IsUnansweredBroadcast(x, sent.tx) })
		if i < 0 {
			return t.iterate(ctx, queried)
		}
		x := t.State.Open[i]
		outcome := t.outcomeOf(x, res, sent.head, t.State.DatabaseTime())
		return t.commit(ctx, txmanager.Commit{Transitions: []txmanager.Transition{outcome}}, true)
	})
}

// acquireTwice acquires the lease, and once more after an error: the lost answer may have granted it.
func (w *Worker) acquireTwice(ctx context.Context, s txmanager.Submitter, owner string, kind txmanager.Kind) (txmanager.AcquireResult, error) {
	taken, err := w.Acquire(ctx, s, owner, kind.MaySign())
	if err != nil && ctx.Err() == nil {
		taken, err = w.Acquire(ctx, s, owner, kind.MaySign())
	}
	return taken, err
}
