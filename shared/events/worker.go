package events

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Worker delivers events to endpoints. It keeps no state between two calls.
type Worker struct {
	Book       Store
	Endpoints  []string                                  // all configured ones
	Publishers map[string]txmanager.DomainEventPublisher // by endpoint
	Wake       TaskEnqueuer
	Rules      lease.Rules
	EndAfter   time.Duration // after this time the rest is left to another task
	Node       string        // this instance, as part of lease owners
	Log        *slog.Logger

	Told func(ctx context.Context, endpoint string, taken int, err error) // for metrics; may be nil
	At   func(point string)                                               // called at each crash point; nil outside tests
}

// Serve delivers all pending events of the queue, or as many as the endpoint accepts. If another
// invocation holds the lease, Serve sets its rerun flag and enqueues a task in case it dies. A task
// or the sweep delivers the remaining events. After an error the caller's own task must be
// delivered again.
func (w *Worker) Serve(ctx context.Context, s DeliveryQueue) error {
	p := w.Publishers[s.Endpoint]
	if p == nil { // it was configured when the task was enqueued
		w.Log.WarnContext(ctx, "no events are delivered: the endpoint is no longer configured", "endpoint", s.Endpoint, "submitter", s.Submitter)
		return nil
	}
	began := time.Now()
	owner := w.Node + "/" + rand.Text()[:16] // no other invocation has it
	for {
		if err := w.Book.NumberEvents(ctx, w.Endpoints); err != nil {
			return err
		}
		taken, err := w.Book.AcquireDeliveryQueue(ctx, s.Submitter, s.Endpoint, owner)
		switch {
		case err != nil:
			return err
		case !taken.There:
			return nil
		case !taken.Held:
			return w.Wake.RescuePublish(ctx, s, taken)
		}
		w.reach("publish.taken")
		t := delivery{Worker: w, AcquireResult: taken, stream: s, publisher: p, began: began}
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

func (w *Worker) reach(point string) {
	if w.At != nil {
		w.At(point)
	}
}

// delivery is one lease session of a delivery queue.
type delivery struct {
	*Worker
	AcquireResult // the lease and the page are replaced after each delivery
	stream        DeliveryQueue
	publisher     txmanager.DomainEventPublisher
	began         time.Time
}

func (t *delivery) attrs() []any {
	return []any{"submitter", t.stream.Submitter, "endpoint", t.stream.Endpoint, "nodeId", t.Node, "fencingToken", t.Lease.Token}
}

// run delivers the pending events. over reports that this invocation is finished; otherwise it must
// acquire the lease again.
func (t *delivery) run(ctx context.Context) (over bool, err error) {
	if t.early() {
		return t.leave(ctx, t.NextAttemptAt)
	}
	for len(t.Page.Events) > 0 || t.Pending {
		asked := !skips(t.publisher, t.Page.Events)
		if asked {
			may, err := t.Book.MayDeliver(ctx, t.stream.Endpoint)
			if err != nil {
				return false, err
			}
			if !may {
				return t.release(ctx) // the sweep tries again once the endpoint has answered
			}
		}
		failed, err := t.deliverPage(ctx, asked)
		switch {
		case err != nil:
			return false, err
		case failed:
			return t.leave(ctx, t.NextAttemptAt)
		case time.Since(t.began) > t.EndAfter:
			return t.leave(ctx, t.Now.Add(time.Since(t.began)))
		}
	}
	return t.release(ctx)
}

// call publishes the page to the endpoint.
func (t *delivery) call(ctx context.Context) (taken int, answer *Answer, err error) {
	calling, cancel := t.Lease.CallContext(ctx, t.Rules.Duration)
	defer cancel()
	calling, last := withAnswer(calling)
	taken, err = publish(calling, t.publisher, t.Page.Events)
	t.reach("publish.told")
	if t.Told != nil {
		t.Told(ctx, t.stream.Endpoint, taken, err)
	}
	return taken, *last, err
}

// publish calls p. It has accepted nothing if it panics or counts events that it was not given. It must
// name an error if it accepted none, since the queue would otherwise repeat at once.
func publish(ctx context.Context, p txmanager.DomainEventPublisher, all []txmanager.Event) (taken int, err error) {
	panicked := txmanager.PanicOf(func() { taken, err = p.Publish(ctx, all) })
	switch {
	case panicked != nil:
		return 0, fmt.Errorf("the publisher panicked: %v", panicked)
	case taken < 0 || taken > len(all):
		return 0, fmt.Errorf("the publisher accepted %d of %d events", taken, len(all))
	case taken == len(all):
		return taken, nil
	case taken == 0 && err == nil:
		return 0, fmt.Errorf("the publisher returned no error, and accepted none of %d events", len(all))
	}
	return taken, err
}

// deliverPage publishes the page, or skips it if none of its events is for the endpoint. It stores
// the result and loads the next page.
func (t *delivery) deliverPage(ctx context.Context, asked bool) (failed bool, err error) {
	n, cause, out := len(t.Page.Events), error(nil), Outcome{Asked: asked}
	if asked {
		n, out.Answer, cause = t.call(ctx)
	}
	switch all := n == len(t.Page.Events); {
	case all:
		out.To = t.Page.To
	case n > 0:
		out.To = t.Page.Events[n-1].Position
	}
	if cause != nil {
		t.Failures++
		if n > 0 { // another event than before fails
			t.Failures = 1
		}
		out.Failures, out.Error, out.Silent = t.Failures, cause.Error(), errors.Is(cause, txmanager.ErrNoAnswer)
		out.Wait = wait(out.Failures)
		t.Log.WarnContext(ctx, "event not accepted", append(t.attrs(), "txId", t.Page.Events[n].TxID, "type", t.Page.Events[n].Type,
			"sequence", t.Page.Events[n].Sequence, "failures", out.Failures, "error", cause.Error())...)
	} else {
		t.Failures = 0
	}
	settled, err := t.Book.Settle(ctx, t.Lease, t.stream.Endpoint, out)
	if err != nil {
		return false, err
	}
	t.reach("publish.settled")
	t.Lease, t.Page, t.NextAttemptAt, t.Pending = settled.Lease, settled.Page, settled.NextAttemptAt, false
	return cause != nil, nil
}

// early reports whether the endpoint must not be called yet. A planned time that is further ahead
// than the longest wait was planned before the database's clock was set back, and is due.
func (t AcquireResult) early() bool {
	ahead := t.NextAttemptAt.Sub(t.Now)
	return t.Failures > 0 && ahead > 0 && ahead <= wait(t.Failures)
}

// wait returns how long a queue waits after so many consecutive failures.
func wait(failures int) time.Duration {
	const doublings = 10 // after so many the wait is MaxWait
	return min(FirstWait<<min(max(failures-1, 0), doublings), MaxWait)
}

// leave releases the lease although events are pending, and enqueues a task for them.
func (t *delivery) leave(ctx context.Context, at time.Time) (over bool, err error) {
	if _, err := t.Book.ReleaseDeliveryQueue(ctx, t.Lease, t.stream.Endpoint, true); err != nil {
		return false, err
	}
	t.reach("publish.released")
	if err := t.Wake.Publish(ctx, t.stream, at); err != nil {
		return false, fmt.Errorf("no task for the remaining events of %s: %w", t.stream.Submitter, err)
	}
	return true, nil
}

// release ends the lease session, unless events were added meanwhile.
func (t *delivery) release(ctx context.Context) (over bool, err error) {
	released, err := t.Book.ReleaseDeliveryQueue(ctx, t.Lease, t.stream.Endpoint, false)
	if released {
		t.reach("publish.released")
	}
	return released, err
}

// TestEvent is the type of the event that an operator sends to try an endpoint. No transaction made it.
const TestEvent txmanager.EventType = "EndpointTest"

// TestWithin is the age from which on a test is not sent any more.
const TestWithin = 5 * time.Minute

// Test sends the test event of that number to the endpoint, and records the answer. It ignores the endpoint's
// pause, its callers and its failures. A test that was answered before is not sent again.
func (w *Worker) Test(ctx context.Context, endpoint string, test int64) error {
	p := w.Publishers[endpoint]
	if p == nil { // it was configured when the test was requested
		w.Log.WarnContext(ctx, "no test event is sent: the endpoint is no longer configured", "endpoint", endpoint)
		return nil
	}
	at, open, err := w.Book.OpenTest(ctx, endpoint, test)
	if err != nil || !open {
		return err
	}
	if only, ok := p.(filter); ok {
		p = only.next
	}
	e := txmanager.Event{TxID: fmt.Sprintf("test-%d", test), Sequence: 1, Type: TestEvent}
	e.Body, _ = json.Marshal(map[string]any{ // strings: cannot fail
		"type": TestEvent, "timestamp": at.UTC().Format("2006-01-02T15:04:05.000000Z"), "data": map[string]any{"endpoint": endpoint},
	})
	calling, last := withAnswer(ctx)
	_, err = publish(calling, p, []txmanager.Event{e})
	switch {
	case *last != nil:
	case err != nil:
		*last = &Answer{Text: err.Error()}
	default:
		*last = new(Answer)
	}
	return w.Book.AnswerTest(ctx, endpoint, test, **last)
}
