// Package events tells receivers what became of transactions: the domain's events, once
// they are kept, each submitter's in their order.
//
// What a receiver has been told of one submitter is a stream. Whoever tells it holds
// the stream's lease: an invocation, with a fencing token, as with a submitter's. What a
// receiver took is on record after it took it, so that it may be told twice, and never
// not at all; by its key ([nonce.Event.Key]) it tells that it was. A receiver that takes
// nothing keeps its own streams waiting, and nobody else.
package events

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
)

// ErrSettings reports publishers that cannot be made of what was configured.
var ErrSettings = errors.New("cannot publish events")

// PageSize is how many events are loaded at once.
const PageSize = 100

// How long a receiver that failed is left alone: first, and at most. It doubles.
const (
	FirstWait = time.Second
	MostWait  = 10 * time.Minute
)

// SilentFrom is how many times in a row a receiver gives no answer, to whomever, before
// it is asked by one stream at a time.
const SilentFrom = 3

// Stream is a submitter's events for one receiver.
type Stream struct {
	Submitter nonce.Submitter
	Receiver  string
}

// Page is what waits in a stream.
type Page struct {
	Events []nonce.Event // the first of it, in order
	To     uint64        // the position up to which Events is all there was
}

// Taken is what came of taking a stream.
type Taken struct {
	There     bool // false: nothing was ever to be told in it, or the database is not the one written last
	Held      bool // false: somebody else has it, who was marked to go round again
	Token     int64
	ExpiresAt time.Time
	FreeAt    time.Time // when a holder that died is waited out
	Lease     lease.Lease

	Now           time.Time // the database's clock
	Failures      int       // in a row, so far
	NextAttemptAt time.Time
	Pending       bool // something waits, or was forgotten before it was told
	Page          Page // what was committed before it was taken
}

// Outcome is what came of telling.
type Outcome struct {
	To       uint64 // position up to which the receiver has taken all
	Asked    bool   // false: nothing of it was the receiver's
	Failures int    // in a row; 0: it took what it was told
	Error    string // of the last; "": none
	Silent   bool   // it gave no answer: that may be so for every stream
	Wait     time.Duration
}

// Settled is what is on record after an outcome.
type Settled struct {
	Lease         lease.Lease // renewed
	NextAttemptAt time.Time
	Page          Page // what waits now
}

// Book is the record of streams. Every error is unknown, but for one that wraps
// [lease.ErrFenced]: nothing was written then.
type Book interface {
	// NumberEvents has all that was committed before be told of to these receivers.
	NumberEvents(ctx context.Context, receivers []string) error

	// TakeStream takes the stream's lease, or marks its holder, and loads what waits
	// once that is committed. Whoever holds it takes it anew by another call.
	TakeStream(ctx context.Context, s nonce.Submitter, receiver, owner string) (Taken, error)

	// MayAsk says whether the receiver may be asked now: always, unless it was silent;
	// then by one at a time.
	MayAsk(ctx context.Context, receiver string) (bool, error)

	// Settle records an outcome under the lease, renews it, and loads what waits.
	Settle(ctx context.Context, l lease.Lease, receiver string, o Outcome) (Settled, error)

	// ReleaseStream gives the lease back, and says whether it did: not where the wake
	// mark is set, unless anyway.
	ReleaseStream(ctx context.Context, l lease.Lease, receiver string, anyway bool) (bool, error)
}

// Waker asks for a look at a stream. A task that cannot be made is the sweep's to make.
type Waker interface {
	// Publish asks for one at a time, by the second of which it is named.
	Publish(ctx context.Context, s Stream, at time.Time) error

	// RescuePublish asks for one when the holder met could be waited out.
	RescuePublish(ctx context.Context, s Stream, met Taken) error
}
