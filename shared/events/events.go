// Package events delivers the domain's committed events to endpoints, the events of each submitter
// in their order.
//
// The events of one submitter for one endpoint are a delivery queue. An invocation delivers them
// under the queue's lease, with a fencing token as for a submitter. A delivery is recorded after
// the endpoint has accepted it. So it may be repeated, and is never lost; the endpoint detects a
// repetition by the event's key ([txmanager.Event.Key]). An endpoint that accepts nothing delays only
// its own queues.
package events

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// PageSize is how many events are loaded at once.
const PageSize = 100

// The wait after a failure: the first, and the longest. It doubles with each failure.
const (
	FirstWait = time.Second
	MaxWait   = 10 * time.Minute
)

// SilentFrom is the number of consecutive calls without an answer, over all queues, after which
// only one queue at a time calls the endpoint.
const SilentFrom = 3

// DeliveryQueue is the delivery queue of a submitter's events for one endpoint.
type DeliveryQueue struct {
	Submitter txmanager.Submitter
	Endpoint  string
}

// Page holds the next events of a delivery queue.
type Page struct {
	Events []txmanager.Event // in order, from the first pending one
	To     uint64            // the position up to which Events is complete
}

// AcquireResult is the result of acquiring the lease of a delivery queue.
type AcquireResult struct {
	There     bool // false: the queue never had an event, or the database is not the one written last
	Held      bool // false: another invocation holds the lease, and its rerun flag was set
	Token     int64
	ExpiresAt time.Time
	FreeAt    time.Time // when a dead holder's lease can be taken over
	Lease     lease.Lease

	Now           time.Time // the database's clock
	Failures      int       // consecutive ones so far
	NextAttemptAt time.Time
	Pending       bool // events are pending, or were deleted before they were delivered
	Page          Page // the events committed before the lease was acquired
}

// Outcome is the result of a delivery.
type Outcome struct {
	To       uint64 // the position up to which the endpoint has accepted all
	Asked    bool   // false: none of the events was for the endpoint, and it was not called
	Failures int    // consecutive ones; 0: it accepted everything
	Error    string // of the last failure; "": none
	Silent   bool   // no answer: the endpoint may be down for every queue
	Wait     time.Duration
	Answer   *Answer // of the last delivery; nil: the publisher records none
}

// Answer is what a receiver answered over HTTP.
type Answer struct {
	Status  int      // 0: there was no answer
	Text    string   // its first bytes, or why there was none
	Secrets []string // fingerprints of the secrets that signed the request
}

type answerKey struct{}

// RecordAnswer gives the answer to a delivery to the caller of Publish. The last answer counts.
func RecordAnswer(ctx context.Context, a Answer) {
	if last, ok := ctx.Value(answerKey{}).(**Answer); ok {
		*last = &a
	}
}

// withAnswer returns a context that keeps the last answer in the result.
func withAnswer(ctx context.Context) (context.Context, **Answer) {
	last := new(*Answer)
	return context.WithValue(ctx, answerKey{}, last), last
}

// SettleResult is the stored state after an outcome.
type SettleResult struct {
	Lease         lease.Lease // renewed
	NextAttemptAt time.Time
	Page          Page // the events that are pending now
}

// Store is the port to the stored delivery queues. After an error the write may have happened,
// unless it wraps [lease.ErrFenced]: then nothing was written.
type Store interface {
	// NumberEvents numbers all events committed before the call for delivery to these endpoints.
	NumberEvents(ctx context.Context, endpoints []string) error

	// AcquireDeliveryQueue acquires the queue's lease, or sets its holder's rerun flag. After that commit it
	// loads the pending events. The holder itself acquires it again by another call.
	AcquireDeliveryQueue(ctx context.Context, s txmanager.Submitter, endpoint, owner string) (AcquireResult, error)

	// MayDeliver reports whether the endpoint may be called now: always, unless an operator has paused it, or it
	// gave no answer lately; then by one queue at a time.
	MayDeliver(ctx context.Context, endpoint string) (bool, error)

	// OpenTest reports when an operator requested a test of the endpoint. open is false if the test has been
	// answered, is older than [TestWithin], or is unknown.
	OpenTest(ctx context.Context, endpoint string, test int64) (at time.Time, open bool, err error)

	// AnswerTest records the answer to a test, once.
	AnswerTest(ctx context.Context, endpoint string, test int64, a Answer) error

	// Settle records an outcome under the lease, renews the lease, and loads the pending events.
	Settle(ctx context.Context, l lease.Lease, endpoint string, o Outcome) (SettleResult, error)

	// ReleaseDeliveryQueue releases the lease and reports whether it did. It does not if the rerun flag is
	// set, unless anyway is true.
	ReleaseDeliveryQueue(ctx context.Context, l lease.Lease, endpoint string, anyway bool) (bool, error)
}

// TaskEnqueuer enqueues tasks for a delivery queue. If that fails, the sweep enqueues one.
type TaskEnqueuer interface {
	// Publish enqueues a task at a time. The task's name has that second.
	Publish(ctx context.Context, s DeliveryQueue, at time.Time) error

	// RescuePublish enqueues a task for the time when the lease of met can be taken over.
	RescuePublish(ctx context.Context, s DeliveryQueue, met AcquireResult) error
}

// Log writes one line "event" for each event, with all members of its body.
func Log(ctx context.Context, log *slog.Logger, all []txmanager.Event) {
	for _, e := range all {
		log.LogAttrs(ctx, slog.LevelInfo, "event", slog.String("txId", e.TxID), slog.String("submitter", string(e.Submitter)),
			slog.String("type", string(e.Type)), slog.Int("sequence", e.Sequence), slog.Any("event", e.Body))
	}
}

// OnlyOf publishes to p only the events of these callers' transactions, and accepts all others
// itself. An event without a known caller is published to no one.
func OnlyOf(callers []string, p txmanager.DomainEventPublisher) txmanager.DomainEventPublisher {
	return filter{callers, p}
}

type filter struct {
	callers []string
	next    txmanager.DomainEventPublisher
}

// skips reports whether none of the events is for the endpoint. Then it is not called, and nothing
// is learned about whether it answers.
func skips(p txmanager.DomainEventPublisher, all []txmanager.Event) bool {
	f, some := p.(filter)
	return !slices.ContainsFunc(all, func(e txmanager.Event) bool { return !some || slices.Contains(f.callers, e.Caller) })
}

// Publish implements [txmanager.DomainEventPublisher].
func (f filter) Publish(ctx context.Context, all []txmanager.Event) (int, error) {
	theirs := slices.DeleteFunc(slices.Clone(all), func(e txmanager.Event) bool { return !slices.Contains(f.callers, e.Caller) })
	if len(theirs) == 0 {
		return len(all), nil
	}
	n, err := f.next.Publish(ctx, theirs)
	if n == len(theirs) {
		return len(all), err
	}
	first := theirs[n].Key() // the first that was not accepted
	return slices.IndexFunc(all, func(e txmanager.Event) bool { return e.Key() == first }), err
}
