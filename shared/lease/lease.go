// Package lease holds the rules of the right to act for one submitter.
//
// The owner of a lease is one invocation. Each look at the submitter's work has
// its own fencing token, which only goes up; every critical write is made under
// the token and holds only while the lease is owned, unexpired and its row
// locked until commit. Time is the database's: this package only carries what
// is left of a lease by the process's monotonic clock, counted from before the
// acquire was sent, so that it can never think it has longer than it has.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrFenced reports that the lease a write was made under is no longer ours.
// The write did not happen. The caller acts no more on what it had loaded; it
// goes back to acquire as if it had just been called.
var ErrFenced = errors.New("fenced")

// Rules are the lengths that govern every lease.
type Rules struct {
	Duration           time.Duration // from acquire or renewal to expiry
	RenewBelow         time.Duration // a call is not begun with less than this left: renew first
	ClockSkewAllowance time.Duration // how long past expiry another owner still waits
}

// callMargin is kept between the end of an outside call and the lease's end, so
// that what the call brought can still be written.
const callMargin = time.Second

// Lease is the right of one owner to act for one submitter.
type Lease struct {
	Submitter string
	Owner     string // instance id / invocation id
	Token     int64

	deadline time.Time // with a monotonic reading
}

// New is the lease that was granted for d by an acquire sent at sentAt, which
// must come from [time.Now] so that it has a monotonic reading.
func New(submitter, owner string, token int64, sentAt time.Time, d time.Duration) Lease {
	return Lease{Submitter: submitter, Owner: owner, Token: token, deadline: sentAt.Add(d)}
}

// Left is how long the lease lasts at least, from the owner's point of view.
func (l Lease) Left() time.Duration { return time.Until(l.deadline) }

// CallContext bounds an outside call by the smaller of its own time-out and the
// lease left less one second. The caller renews first when [Rules.Short] says so.
func (l Lease) CallContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(timeout, l.Left()-callMargin))
}

// WriteContext bounds the wait for the database's answer to a write under l: until a
// lease's duration after l has ended. A process behind a network that loses all packets
// gives up then, so that its task comes again and another process goes on. What became of
// the write is unknown, as of any whose answer was lost.
func (r Rules) WriteContext(ctx context.Context, l Lease) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(l.Left(), 0)+r.Duration)
}

// Short says that too little of l is left to begin an outside call.
func (r Rules) Short(l Lease) bool { return l.Left() < r.RenewBelow }

// Validate refuses lengths that contradict each other.
func (r Rules) Validate() error {
	switch {
	case r.Duration <= callMargin:
		return fmt.Errorf("lease.duration %v: must be longer than %v", r.Duration, callMargin)
	case r.RenewBelow >= r.Duration:
		return fmt.Errorf("a lease of %v cannot be renewed below %v: make lease.duration longer", r.Duration, r.RenewBelow)
	case r.ClockSkewAllowance < 0:
		return fmt.Errorf("clockSkewAllowance %v: must not be negative", r.ClockSkewAllowance)
	}
	return nil
}
