package lease_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
)

func granted(d time.Duration) lease.Lease { return lease.New("alice", "node-1/a", 7, time.Now(), d) }

// The time left is counted from before the acquire was sent. However slow the answer, the owner
// never assumes more time than the database granted.
func TestLeaseIsCountedFromBeforeTheAcquireWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sentAt := time.Now()
		time.Sleep(4 * time.Second) // the answer takes that long, by the bubble's clock
		l := lease.New("alice", "node-1/a", 7, sentAt, 10*time.Second)
		check.Equal(t, "left", l.Left(), 6*time.Second)
		if l.Submitter != "alice" || l.Owner != "node-1/a" || l.Token != 7 {
			t.Errorf("got %+v, want what was granted", l)
		}
		time.Sleep(7 * time.Second)
		check.Equal(t, "left past its end", l.Left(), -time.Second)
	})
}

// H29: a call ends at its own time-out, at its caller's deadline, or a second before the lease,
// whichever is first.
func TestH29CallsEndBeforeTheLeaseDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			left, timeout, caller, want time.Duration
		}{
			{10 * time.Second, 2 * time.Second, time.Hour, 2 * time.Second},
			{10 * time.Second, 10 * time.Second, time.Hour, 9 * time.Second},
			{10 * time.Second, time.Hour, time.Hour, 9 * time.Second},
			{10 * time.Second, time.Hour, time.Second, time.Second},
			{5 * time.Second, 10 * time.Second, time.Hour, 4 * time.Second},
			{time.Second, 10 * time.Second, time.Hour, 0},
			{-time.Minute, 10 * time.Second, time.Hour, 0},
		} {
			name := fmt.Sprintf("left %v, time-out %v, caller %v", c.left, c.timeout, c.caller)
			caller, stop := context.WithTimeout(t.Context(), c.caller)
			ctx, cancel := granted(c.left).CallContext(caller, c.timeout)
			began := time.Now()
			<-ctx.Done()
			check.Equal(t, name+": ended after", time.Since(began), c.want)
			check.Err(t, name, context.DeadlineExceeded)(ctx.Err())
			cancel()
			stop()
		}
	})
}

func TestShortLeaseIsRenewedBeforeACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := lease.Rules{Duration: 10 * time.Second, RenewBelow: 5 * time.Second}
		l := granted(rules.Duration)
		check.Equal(t, "a fresh lease is short", rules.Short(l), false)
		time.Sleep(5 * time.Second)
		check.Equal(t, "short with exactly 5 s left", rules.Short(l), false)
		time.Sleep(time.Nanosecond)
		check.Equal(t, "short with less than 5 s left", rules.Short(l), true)
		time.Sleep(time.Minute)
		check.Equal(t, "short past its end", rules.Short(l), true)
	})
}

func TestRulesThatContradictEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		duration, renewBelow, skew time.Duration
		ok                         bool
	}{
		{10 * time.Second, 5 * time.Second, time.Second, true},
		{10 * time.Second, 5 * time.Second, 0, true},
		{time.Second + 1, 0, 0, true},
		{time.Second, 0, 0, false},
		{0, 0, 0, false},
		{-10 * time.Second, -20 * time.Second, 0, false},
		{5 * time.Second, 5 * time.Second, time.Second, false},
		{5 * time.Second, 6 * time.Second, time.Second, false},
		{10 * time.Second, 5 * time.Second, -1, false},
	} {
		r := lease.Rules{Duration: c.duration, RenewBelow: c.renewBelow, ClockSkewAllowance: c.skew}
		if err := r.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: got %v, want ok %v", r, err, c.ok)
		}
	}
}
