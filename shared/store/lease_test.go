package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const alice = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")

// take takes the lease of sub for owner, or fails the test.
func take(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, owner string) txmanager.SubmitterState {
	t.Helper()
	taken, err := db.Acquire(t.Context(), sub, owner, true)
	if err != nil || !taken.Held {
		t.Fatalf("take lease for %s: got held %v, error %v; want it held", owner, taken.Held, err)
	}
	return taken.State
}

// post stores one intent.
func post(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, requestID string) store.StoredIntent {
	t.Helper()
	return create(t, db, intent(sub, requestID))
}

// create stores the intent.
func create(t testing.TB, db storetest.Bundle, in store.Intent) store.StoredIntent {
	t.Helper()
	return check.Value(db.Create(t.Context(), in, 10_000))(t)
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
	db := registered(t, 1, alice)
	first := take(t, db, alice, "a/1")
	check.Equal(t, "first token", first.Lease.Token, 1)
	met, err := db.Acquire(t.Context(), alice, "b/1", true)
	if err != nil || met.Held || met.Token != 1 || !met.TakeoverAt.After(met.ExpiresAt) {
		t.Fatalf("second taker: got %+v, %v; want not held, token 1, free after its expiry", met, err)
	}
	release := txmanager.Commit{Lease: first.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}
	check.Equal(t, "release with the mark set", write(t, db, release), txmanager.CommitResult{})
	again := check.Value(db.BeginIteration(t.Context(), first.Lease, true))(t)
	check.Equal(t, "token of the next round", again.Lease.Token, 2)
	check.Err(t, "write under the round before", lease.ErrFenced)(db.Commit(t.Context(), release))
	release.Lease = again.Lease
	check.Equal(t, "release", write(t, db, release), txmanager.CommitResult{Released: true, Token: 2})
	check.Equal(t, "token after the release", take(t, db, alice, "b/1").Lease.Token, 3)
}

// An unregistered submitter has no lease.
func TestTakeUnknownSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	check.Err(t, "take", store.ErrUnknownSubmitter)(db.Acquire(t.Context(), alice, "a/1", true))
}

// The load sees all earlier intents, in the order of the queue.
func TestTakeLoadsTheQueue(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	one := post(t, db, alice, "one")
	postAll(t, db, alice, "two", "three")
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
	check.Equal(t, "free after its expiry", met.TakeoverAt.Sub(met.ExpiresAt), rules.ClockSkewAllowance)
	awaitClock(t, db, met.ExpiresAt)
	check.Err(t, "the owner's write at its expiry", lease.ErrFenced)(db.Commit(t.Context(), txmanager.Commit{Lease: first.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}))
	again := meet(t, db, "b/1")
	if !again.ExpiresAt.Equal(met.ExpiresAt) || !again.TakeoverAt.Equal(met.TakeoverAt) || again.Token != met.Token {
		t.Errorf("at its expiry: got %+v, want what was met before, %+v", again, met)
	}
	awaitClock(t, db, met.TakeoverAt)
	check.Equal(t, "token when it is free", take(t, db, alice, "b/1").Lease.Token, met.Token+1)
	if renewed := meet(t, db, "c/1"); !renewed.ExpiresAt.After(met.ExpiresAt) {
		t.Errorf("expiry of the next tenure: got %v, want after %v: another name", renewed.ExpiresAt, met.ExpiresAt)
	}
}

// meet is owner's result for a lease that is held.
func meet(t testing.TB, db storetest.Bundle, owner string) txmanager.AcquireResult {
	t.Helper()
	met, err := db.Acquire(t.Context(), alice, owner, true)
	if err != nil || met.Held {
		t.Fatalf("take for %s: got %+v, %v; want not held", owner, met, err)
	}
	return met
}

// awaitClock waits until the database's clock is past at.
func awaitClock(t testing.TB, db storetest.Bundle, at time.Time) {
	t.Helper()
	storetest.Await(t, "the clock is past "+at.String(), func() bool {
		return value[bool](t, db, `select clock_timestamp() > $1`, at)
	})
}

// Another expiry by renewal is another name for the rescue.
func TestRenewMovesTheExpiryAndKeepsTheToken(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
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
	check.Equal(t, "released although the mark was kept over the renewal", write(t, db, txmanager.Commit{Lease: renewed, LeaseEnd: txmanager.ReleaseUnlessRerun}).Released, false)
}

// An expiry further ahead than twice a lease's duration shows a clock that was set back, and
// counts as expired. A nearer one is a valid lease.
func TestLeaseFarAheadCountsAsExpired(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	take(t, db, alice, "a/1")
	ahead := func(beyond time.Duration) {
		db.Run(t, `update submitter_lease set expires_at = clock_timestamp() + $1::interval`, 2*storetest.Rules.Duration+beyond)
	}
	ahead(0) // less by the time that passes until it is looked at
	meet(t, db, "b/1")
	ahead(time.Minute)
	b := take(t, db, alice, "b/1")
	check.Equal(t, "takeover", b.Lease.Token, 2)
	if left := value[time.Duration](t, db, `select expires_at - clock_timestamp() from submitter_lease`); left > storetest.Rules.Duration {
		t.Errorf("the new lease: got it for %v, want at most %v", left, storetest.Rules.Duration)
	}
}

// A lease lasts from the moment its row was locked, not from when the wait for
// it began; what the owner believes of it is never more.
func TestLeaseLastsFromTheLock(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	l := take(t, db, alice, "a/1").Lease
	write(t, db, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
	other := holding(t, db, `select from submitter_lease for update`)
	taking := storetest.Blocked(t, db, "insert into submitter_lease", func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	sentBefore := time.Now()
	unlocked := value[time.Time](t, db, `select clock_timestamp()`)
	other.do("commit")
	taken := <-taking
	wantHeld(t, "take", taken, 2)
	if got, want := taken.Got.ExpiresAt, unlocked.Add(storetest.Rules.Duration); got.Before(want) {
		t.Errorf("expiry: got %v, want %v or later", got, want)
	}
	passed := time.Since(sentBefore)
	if left := taken.Got.State.Lease.Left(); left >= storetest.Rules.Duration-passed {
		t.Errorf("left by the owner's clock: got %v, want less than %v, counted from before it was sent", left, storetest.Rules.Duration-passed)
	}
}

// Many invocations at once, each with a separate intent, either hold the lease or set the
// rerun flag. The next iteration serves a flag set under its token and sees the intent. No
// release under that token misses it.
func TestH25MarkAndReleaseAreAtomic(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 25
	db := registered(t, 1000, alice)
	h := history{loads: map[int64]map[string]bool{}, releases: map[int64]bool{}}
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := range each {
				if err := h.invocation(t.Context(), db, fmt.Sprintf("%d/%d", worker, i)); err != nil {
					t.Errorf("invocation %d/%d: %v", worker, i, err)
					return
				}
			}
		})
	}
	all.Wait()
	h.check(t)
	end := value[string](t, db, `select owner_node || ' ' || rerun_requested from submitter_lease`)
	check.Equal(t, "owner and mark at the end", end, " false")
}

// history is what invocations saw, by token.
type history struct {
	sync.Mutex
	loads    map[int64]map[string]bool // the queue that was loaded
	releases map[int64]bool
	marks    []mark
}

// mark is a rerun flag set under a token by an invocation that had stored an intent.
type mark struct {
	token int64
	txID  string
}

// invocation posts an intent and serves the queue, or leaves it to the holder.
func (h *history) invocation(ctx context.Context, db storetest.Bundle, name string) error {
	created, err := db.Create(ctx, intent(alice, name), 10_000)
	if err != nil {
		return err
	}
	taken, err := db.Acquire(ctx, alice, name, true)
	if err != nil {
		return err
	}
	if !taken.Held {
		h.Lock()
		defer h.Unlock()
		h.marks = append(h.marks, mark{taken.Token, created.TxID})
		return nil
	}
	for w := taken.State; ; {
		if err := h.recordLoad(w); err != nil {
			return err
		}
		done, err := db.Commit(ctx, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
		if err != nil {
			return err
		}
		if done.Released {
			h.Lock()
			defer h.Unlock()
			h.releases[done.Token] = true
			return nil
		}
		if w, err = db.BeginIteration(ctx, w.Lease, true); err != nil {
			return err
		}
	}
}

func (h *history) recordLoad(w txmanager.SubmitterState) error {
	h.Lock()
	defer h.Unlock()
	if h.loads[w.Lease.Token] != nil {
		return fmt.Errorf("token %d was given twice: %w", w.Lease.Token, lease.ErrFenced)
	}
	seen := map[string]bool{}
	for _, q := range w.Queue {
		seen[q.ID] = true
	}
	h.loads[w.Lease.Token] = seen
	return nil
}

func (h *history) check(t *testing.T) {
	t.Helper()
	if len(h.marks) == 0 || len(h.releases) < 2 {
		t.Fatalf("got %d marks and %d releases: nothing met", len(h.marks), len(h.releases))
	}
	for _, m := range h.marks {
		if h.releases[m.token] {
			t.Errorf("a mark was left under token %d, and the lease was released under it", m.token)
		}
		if !h.loads[m.token+1][m.txID] {
			t.Errorf("the look after the mark under token %d missed the intent it was left for", m.token)
		}
	}
	t.Logf("%d loads, %d marks, %d releases", len(h.loads), len(h.marks), len(h.releases))
}
