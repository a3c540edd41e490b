// Package lease holds the rules of the right to act for one submitter.
//
// One invocation owns a lease. Each iteration has its own fencing token, which only increases. A
// critical write needs the token: it holds only while the invocation owns the lease, the lease is
// unexpired, and its row stays locked until the commit. The database's clock decides. This package
// only estimates the time left by the process's monotonic clock, counted from before the acquire
// was sent. So the estimate never exceeds the real time.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrFenced reports that another owner holds the lease that a write was made under, or that it
// expired. The write did not happen. The caller must discard what it has loaded, and acquire again
// as if it had just been called.
var ErrFenced = errors.New("fenced")

// Rules are the durations that govern every lease.
type Rules struct {
	Duration           time.Duration // from acquire or renewal to expiry
	RenewBelow         time.Duration // renew before a call if less than this is left
	ClockSkewAllowance time.Duration // how long after the expiry other owners still wait
}

// callMargin is kept between the end of an outside call and the lease's end, so that the result can
// be written.
const callMargin = time.Second

// Lease is the right of one owner to act for one submitter.
type Lease struct {
	Submitter string
	Owner     string // instance id / invocation id
	Token     int64

	deadline time.Time // with a monotonic reading
}

// New returns the lease that was granted for d by an acquire sent at sentAt. sentAt must come from
// [time.Now], so that it has a monotonic reading.
func New(submitter, owner string, token int64, sentAt time.Time, d time.Duration) Lease {
	return Lease{Submitter: submitter, Owner: owner, Token: token, deadline: sentAt.Add(d)}
}

// Left returns how long the lease lasts at least.
func (l Lease) Left() time.Duration { return time.Until(l.deadline) }

// CallContext bounds an outside call by timeout, and by the lease's remaining time less one second.
// The caller must renew first if [Rules.Short] reports true.
func (l Lease) CallContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(timeout, l.Left()-callMargin))
}

// WriteContext bounds the wait for the database's answer to a write under l: until a lease's
// duration after the end of l. A process whose network loses all packets stops waiting then, so
// that its task is delivered again and another process continues. The result of the write is
// unknown.
func (r Rules) WriteContext(ctx context.Context, l Lease) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(l.Left(), 0)+r.Duration)
}

// Short reports whether too little of l is left to begin an outside call.
func (r Rules) Short(l Lease) bool { return l.Left() < r.RenewBelow }

// Validate returns an error for contradictory durations.
func (r Rules) Validate() error {
	switch {
	case r.Duration <= callMargin:
		return fmt.Errorf("lease.duration %v: must be longer than %v", r.Duration, callMargin)
	case r.RenewBelow >= r.Duration:
		return fmt.Errorf("lease.duration %v: must be longer than %v, below which a lease is renewed", r.Duration, r.RenewBelow)
	case r.ClockSkewAllowance < 0:
		return fmt.Errorf("clockSkewAllowance %v: must not be negative", r.ClockSkewAllowance)
	}
	return nil
}
