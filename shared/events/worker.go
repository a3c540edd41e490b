package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
)

// Worker tells receivers of events. It keeps nothing between two calls.
type Worker struct {
	Book       Book
	Receivers  []string                              // all that there are
	Publishers map[string]nonce.DomainEventPublisher // by receiver
	Wake       Waker
	Rules      lease.Rules
	EndAfter   time.Duration // since it was called: then it leaves the rest to another task
	Node       string        // this instance, in owners
	Log        *slog.Logger

	Told func(ctx context.Context, receiver string, taken int, err error) // for metrics; may be nil
	At   func(point string)                                               // passed at each step by its name; nil but in tests
}

// Serve tells the stream's receiver of all that waits, or as much as it takes. If
// another invocation is at it, that one is marked, and a task made for the case that it
// dies. What is left for later has a task, or is the sweep's. Any error means that the
// caller's own task must come again.
func (w *Worker) Serve(ctx context.Context, s Stream) error {
	p := w.Publishers[s.Receiver]
	if p == nil { // it was, when the task was made
		w.Log.WarnContext(ctx, "nobody is told of events: no such receiver any more", "receiver", s.Receiver, "submitter", s.Submitter)
		return nil
	}
	began := time.Now()
	owner := w.Node + "/" + invocationID()
	for {
		if err := w.Book.NumberEvents(ctx, w.Receivers); err != nil {
			return err
		}
		taken, err := w.Book.TakeStream(ctx, s.Submitter, s.Receiver, owner)
		switch {
		case err != nil:
			return err
		case !taken.There:
			return nil
		case !taken.Held:
			return w.Wake.RescuePublish(ctx, s, taken)
		}
		w.pass("publish.taken")
		t := telling{Worker: w, stream: s, publisher: p, taken: taken, lease: taken.Lease, page: taken.Page, began: began}
		over, err := t.run(ctx)
		switch {
		case errors.Is(err, lease.ErrFenced):
			w.Log.WarnContext(ctx, "fenced: starting over", t.attrs()...)
		case err != nil || over:
			return err
		}
		if time.Since(began) > w.EndAfter {
			return w.Wake.Publish(ctx, s, taken.Now.Add(time.Second))
		}
	}
}

func (w *Worker) pass(point string) {
	if w.At != nil {
		w.At(point)
	}
}

// invocationID tells one invocation from every other.
func invocationID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}

// telling is one tenure of a stream.
type telling struct {
	*Worker
	stream    Stream
	publisher nonce.DomainEventPublisher
	taken     Taken
	lease     lease.Lease
	page      Page
	began     time.Time
}

func (t *telling) attrs() []any {
	return []any{"submitter", t.stream.Submitter, "receiver", t.stream.Receiver, "nodeId", t.Node, "fencingToken", t.lease.Token}
}

// run tells what waits. over says that nothing is left for this invocation; otherwise it
// takes the stream anew.
func (t *telling) run(ctx context.Context) (over bool, err error) {
	if t.taken.early() {
		return t.leave(ctx, t.taken.NextAttemptAt)
	}
	for len(t.page.Events) > 0 || t.taken.Pending {
		asked := !skips(t.publisher, t.page.Events)
		if asked {
			may, err := t.Book.MayAsk(ctx, t.stream.Receiver)
			if err != nil {
				return false, err
			}
			if !may {
				return t.giveBack(ctx) // the sweep comes back to it, once somebody was answered
			}
		}
		failed, err := t.tell(ctx, asked)
		switch {
		case err != nil:
			return false, err
		case failed:
			return t.leave(ctx, t.taken.NextAttemptAt)
		case time.Since(t.began) > t.EndAfter:
			return t.leave(ctx, t.taken.Now.Add(time.Since(t.began)))
		}
	}
	return t.giveBack(ctx)
}

// ask tells the receiver of the page.
func (t *telling) ask(ctx context.Context) (taken int, err error) {
	calling, cancel := t.lease.CallContext(ctx, t.Rules.Duration)
	defer cancel()
	taken, err = t.publisher.Publish(calling, t.page.Events)
	t.pass("publish.told")
	if t.Told != nil {
		t.Told(ctx, t.stream.Receiver, taken, err)
	}
	return taken, err
}

// tell tells the page, or passes it over where nothing of it is the receiver's, keeps
// what came of it, and loads the next.
func (t *telling) tell(ctx context.Context, asked bool) (failed bool, err error) {
	n, cause := len(t.page.Events), error(nil)
	if asked {
		n, cause = t.ask(ctx)
	}
	out := Outcome{Asked: asked}
	switch all := n == len(t.page.Events); {
	case all:
		out.To = t.page.To
	case n > 0:
		out.To = t.page.Events[n-1].Position
	}
	if cause != nil {
		t.taken.Failures++
		if n > 0 { // it fails at another one than before
			t.taken.Failures = 1
		}
		out.Failures, out.Error, out.Silent = t.taken.Failures, cause.Error(), errors.Is(cause, nonce.ErrNoAnswer)
		out.Wait = wait(out.Failures)
		t.Log.WarnContext(ctx, "event not taken", append(t.attrs(), "txId", t.page.Events[n].TxID, "type", t.page.Events[n].Type,
			"sequence", t.page.Events[n].Sequence, "failures", out.Failures, "error", cause.Error())...)
	} else {
		t.taken.Failures = 0
	}
	settled, err := t.Book.Settle(ctx, t.lease, t.stream.Receiver, out)
	if err != nil {
		return false, err
	}
	t.pass("publish.settled")
	t.lease, t.page, t.taken.NextAttemptAt, t.taken.Pending = settled.Lease, settled.Page, settled.NextAttemptAt, false
	return cause != nil, nil
}

// early says that the receiver is not to be told again yet. An attempt further ahead than
// it was planned was planned before the database's clock was set back, and is due.
func (t Taken) early() bool {
	ahead := t.NextAttemptAt.Sub(t.Now)
	return t.Failures > 0 && ahead > 0 && ahead <= wait(t.Failures)
}

// wait is how long a stream waits after so many failures in a row.
func wait(failures int) time.Duration {
	d := FirstWait
	for range failures - 1 {
		if d *= 2; d >= MostWait {
			return MostWait
		}
	}
	return d
}

// leave gives the stream back with events in it, and has a task come for them.
func (t *telling) leave(ctx context.Context, at time.Time) (over bool, err error) {
	if _, err := t.Book.ReleaseStream(ctx, t.lease, t.stream.Receiver, true); err != nil {
		return false, err
	}
	t.pass("publish.released")
	if err := t.Wake.Publish(ctx, t.stream, at); err != nil {
		return false, fmt.Errorf("no task for the events of %s that are left: %w", t.stream.Submitter, err)
	}
	return true, nil
}

// giveBack ends the tenure, unless events have come meanwhile.
func (t *telling) giveBack(ctx context.Context) (over bool, err error) {
	released, err := t.Book.ReleaseStream(ctx, t.lease, t.stream.Receiver, false)
	if released {
		t.pass("publish.released")
	}
	return released, err
}
