package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const alice = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")

// take takes the lease of sub for owner, or fails the test.
func take(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, owner string) txmanager.SubmitterState {
	t.Helper()
	taken, err := db.Acquire(t.Context(), sub, owner, true)
	if err != nil || !taken.Held {
		t.Fatalf("take lease for %s: got held %v, error %v; want it held", owner, taken.Held, err)
	}
	return taken.State
}

// post stores one intent.
func post(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, requestID string) store.StoredIntent {
	t.Helper()
	a, err := db.Create(t.Context(), intent(sub, requestID), 100)
	if err != nil {
		t.Fatalf("create %s: %v", requestID, err)
	}
	return a
}

func intent(sub txmanager.Submitter, requestID string) store.Intent {
	return store.Intent{
		TxID: uuid.NewString(), Submitter: sub, RequestID: requestID, Caller: "shop",
		Payload: []byte(`{"to":"0x00000000000000000000000000000000000000b0","value":"1"}`), Fingerprint: [32]byte{1},
	}
}

// An invocation that finds the lease held sets the rerun flag. The holder then iterates again
// under the next token instead of releasing the lease.
func TestAcquireOrMark(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	first := take(t, db, alice, "a/1")
	if first.Lease.Token != 1 {
		t.Errorf("first token: got %d, want 1", first.Lease.Token)
	}
	met, err := db.Acquire(t.Context(), alice, "b/1", true)
	if err != nil || met.Held || met.Token != 1 || !met.TakeoverAt.After(met.ExpiresAt) {
		t.Fatalf("second taker: got %+v, %v; want not held, token 1, free after its expiry", met, err)
	}
	done, err := db.Commit(t.Context(), txmanager.Commit{Lease: first.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	if err != nil || done.Released {
		t.Fatalf("release with the mark set: got %+v, %v; want not released", done, err)
	}
	again, err := db.BeginIteration(t.Context(), first.Lease, true)
	if err != nil || again.Lease.Token != 2 {
		t.Fatalf("next round: got token %d, %v; want 2", again.Lease.Token, err)
	}
	if _, err := db.Commit(t.Context(), txmanager.Commit{Lease: first.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("write under the round before: got %v, want fenced", err)
	}
	done, err = db.Commit(t.Context(), txmanager.Commit{Lease: again.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	if err != nil || !done.Released || done.Token != 2 {
		t.Errorf("release: got %+v, %v; want released under 2", done, err)
	}
	if third := take(t, db, alice, "b/1"); third.Lease.Token != 3 {
		t.Errorf("after the release: got token %d, want 3", third.Lease.Token)
	}
}

// An unregistered submitter has no lease.
func TestTakeUnknownSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if _, err := db.Acquire(t.Context(), alice, "a/1", true); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("take: got %v, want unknown submitter", err)
	}
}

// The load sees all earlier intents, in the order of the queue.
func TestTakeLoadsTheQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 2)
	one := post(t, db, alice, "one")
	post(t, db, alice, "two")
	post(t, db, alice, "three")
	w := take(t, db, alice, "a/1")
	if len(w.Queue) != 2 || !w.QueueMore || w.Queue[0].ID != one.TxID || w.NextNonce != 0 || w.Window != 2 {
		t.Errorf("work: got %d queued, more %v, head %s, next %d, window %d; want 2, true, %s, 0, 2",
			len(w.Queue), w.QueueMore, w.Queue[0].ID, w.NextNonce, w.Window, one.TxID)
	}
}

// A lease that ran out is still waited for during the skew allowance, and the
// time given to the waiting is exactly when it can be had.
func TestH24RescueNamesAndDueTime(t *testing.T) {
	t.Parallel()
	rules := lease.Rules{Duration: 300 * time.Millisecond, ClockSkewAllowance: 2 * time.Second}
	db := storetest.NewWith(t, rules)
	db.Register(t, alice, 1)
	first := take(t, db, alice, "a/1")
	met := meet(t, db, "b/1")
	if got := met.TakeoverAt.Sub(met.ExpiresAt); got != rules.ClockSkewAllowance {
		t.Errorf("free after its expiry: got %v, want %v", got, rules.ClockSkewAllowance)
	}
	awaitClock(t, db, met.ExpiresAt)
	if _, err := db.Commit(t.Context(), txmanager.Commit{Lease: first.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("the owner's write at its expiry: got %v, want %v", err, lease.ErrFenced)
	}
	again := meet(t, db, "b/1")
	if !again.ExpiresAt.Equal(met.ExpiresAt) || !again.TakeoverAt.Equal(met.TakeoverAt) || again.Token != met.Token {
		t.Errorf("at its expiry: got %+v, want what was met before, %+v", again, met)
	}
	awaitClock(t, db, met.TakeoverAt)
	if b := take(t, db, alice, "b/1"); b.Lease.Token != met.Token+1 {
		t.Errorf("when it is free: got token %d, want %d", b.Lease.Token, met.Token+1)
	}
	if renewed := meet(t, db, "c/1"); !renewed.ExpiresAt.After(met.ExpiresAt) {
		t.Errorf("expiry of the next tenure: got %v, want after %v: another name", renewed.ExpiresAt, met.ExpiresAt)
	}
}

// meet is owner's result for a lease that is held.
func meet(t *testing.T, db storetest.Bundle, owner string) txmanager.AcquireResult {
	t.Helper()
	met, err := db.Acquire(t.Context(), alice, owner, true)
	if err != nil || met.Held {
		t.Fatalf("take for %s: got %+v, %v; want not held", owner, met, err)
	}
	return met
}

// awaitClock waits until the database's clock is past at.
func awaitClock(t *testing.T, db storetest.Bundle, at time.Time) {
	t.Helper()
	await(t, "the clock is past "+at.String(), func() bool {
		return value[bool](t, db, `select clock_timestamp() > $1`, at)
	})
}

// Another expiry by renewal is another name for the rescue.
func TestRenewMovesTheExpiryAndKeepsTheToken(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	l := take(t, db, alice, "a/1").Lease
	before := meet(t, db, "b/1")
	renewed, err := db.Renew(t.Context(), l)
	if err != nil || renewed.Token != l.Token || renewed.Left() <= l.Left() {
		t.Fatalf("renew: got token %d with %v left, %v; want %d with more than %v", renewed.Token, renewed.Left(), err, l.Token, l.Left())
	}
	after := meet(t, db, "b/1")
	if after.Token != before.Token || !after.ExpiresAt.After(before.ExpiresAt) {
		t.Errorf("met after the renewal: got %+v, want the token of %+v and a later expiry", after, before)
	}
	if done := write(t, db, txmanager.Commit{Lease: renewed, LeaseEnd: txmanager.ReleaseUnlessRerun}); done.Released {
		t.Error("release: got released, want the mark kept over the renewal")
	}
}

// An expiry further ahead than twice a lease's duration shows a clock that was set back, and
// counts as expired. A nearer one is a valid lease.
func TestLeaseFarAheadCountsAsExpired(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	take(t, db, alice, "a/1")
	ahead := func(beyond time.Duration) {
		run(t, db, `update submitter_lease set expires_at = clock_timestamp() + $1::interval`, 2*storetest.Rules.Duration+beyond)
	}
	ahead(0) // less by the time that passes until it is looked at
	meet(t, db, "b/1")
	ahead(time.Minute)
	b := take(t, db, alice, "b/1")
	if b.Lease.Token != 2 {
		t.Errorf("takeover: got token %d, want 2", b.Lease.Token)
	}
	if left := value[time.Duration](t, db, `select expires_at - clock_timestamp() from submitter_lease`); left > storetest.Rules.Duration {
		t.Errorf("the new lease: got it for %v, want at most %v", left, storetest.Rules.Duration)
	}
}

// A lease lasts from the moment its row was locked, not from when the wait for
// it began; what the owner believes of it is never more.
func TestLeaseLastsFromTheLock(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	l := take(t, db, alice, "a/1").Lease
	write(t, db, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
	other := connect(t, db)
	other.do("begin")
	other.do(`select from submitter_lease for update`)
	taking := start(func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	awaitBlocked(t, db, "insert into submitter_lease")
	sentBefore := time.Now()
	unlocked := value[time.Time](t, db, `select clock_timestamp()`)
	other.do("commit")
	taken := <-taking
	if taken.err != nil || !taken.got.Held {
		t.Fatalf("take: got %+v, %v; want held", taken.got, taken.err)
	}
	if got, want := taken.got.ExpiresAt, unlocked.Add(storetest.Rules.Duration); got.Before(want) {
		t.Errorf("expiry: got %v, want %v or later", got, want)
	}
	passed := time.Since(sentBefore)
	if left := taken.got.State.Lease.Left(); left >= storetest.Rules.Duration-passed {
		t.Errorf("left by the owner's clock: got %v, want less than %v, counted from before it was sent", left, storetest.Rules.Duration-passed)
	}
}
