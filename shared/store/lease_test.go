package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

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

// A lease that ran out is still waited for during the skew allowance, and the
// time given to the waiting is exactly when it can be had.
func TestH24RescueNamesAndDueTime(t *testing.T) {
	t.Parallel()
	rules := lease.Rules{Duration: 300 * time.Millisecond, ClockSkewAllowance: 2 * time.Second}
	db := storetest.At(t, storetest.URL(t), rules)
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
	other := db.Holding(t, `select from submitter_lease for update`)
	taking := storetest.Blocked(t, db, "insert into submitter_lease", func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	sentBefore := time.Now()
	unlocked := value[time.Time](t, db, `select clock_timestamp()`)
	other.Do("commit")
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

// Several owners act in any order with any clock. Tokens only go up and are never given twice.
// Only the holder of the last one writes. A rerun flag stays until an iteration or a forced
// release.
func TestLeaseProperties(t *testing.T) {
	t.Parallel()
	// Long, so that a lease runs out only when the model says so.
	rules := lease.Rules{Duration: 10 * time.Minute, ClockSkewAllowance: 5 * time.Minute}
	db := storetest.At(t, storetest.URL(t), rules)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt, t, db, numbered(int(runs.Add(1))), rules)
		rt.Repeat(map[string]func(*rapid.T){
			"":        m.compare,
			"take":    m.take,
			"take 2":  m.take, // twice as often as the rest
			"again":   m.again,
			"renew":   m.renew,
			"release": m.release,
			"abandon": m.abandon,
			"clock":   m.moveClock,
			"write":   m.write,
			"race":    m.everybodyWrites,
		})
	})
}

// clock is where the database's clock stands, seen from a lease's expiry.
type clock string

const (
	live   clock = "live"
	inSkew clock = "run out, within the skew allowance"
	over   clock = "run out, and waited out"
	ahead  clock = "further ahead than a lease can end"
)

// model is what one submitter's lease ought to be.
type model struct {
	ctx   context.Context
	db    storetest.Bundle
	sub   txmanager.Submitter
	rules lease.Rules
	tx    txmanager.Tx // the row that all writes are about

	owner   string
	token   int64
	wake    bool
	clock   clock
	handles []lease.Lease // every lease ever granted
	reason  string        // last write that was made
	by      int64         // and its token
}

func newModel(rt *rapid.T, t *testing.T, db storetest.Bundle, sub txmanager.Submitter, rules lease.Rules) *model {
	db.Register(t, sub, 1)
	if _, err := db.Create(t.Context(), intent(sub, "r"), 10); err != nil {
		rt.Fatalf("create: %v", err)
	}
	taken, err := db.Acquire(t.Context(), sub, "a", true)
	if err != nil || !taken.Held || taken.Token != 1 {
		rt.Fatalf("first take: got %+v, %v; want held under token 1", taken, err)
	}
	return &model{
		ctx: t.Context(), db: db, sub: sub, rules: rules, tx: taken.State.Queue[0],
		owner: "a", token: 1, clock: live, handles: []lease.Lease{taken.State.Lease},
	}
}

// holds is true if l is the right to write now.
func (m *model) holds(l lease.Lease) bool {
	return l.Owner == m.owner && l.Token == m.token && (m.clock == live || m.clock == ahead)
}

// grant is an iteration under a new token.
func (m *model) grant(rt *rapid.T, l lease.Lease) {
	for _, old := range m.handles {
		if l.Token <= old.Token {
			rt.Fatalf("token: got %d after %d was given, want a higher one", l.Token, old.Token)
		}
	}
	if l.Token != m.token+1 {
		rt.Fatalf("token: got %d, want %d", l.Token, m.token+1)
	}
	m.owner, m.token, m.wake, m.clock = l.Owner, l.Token, false, live
	m.handles = append(m.handles, l)
}

func (m *model) take(rt *rapid.T) {
	owner := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "owner")
	free := m.owner == "" || m.owner == owner || m.clock == over || m.clock == ahead
	taken, err := m.db.Acquire(m.ctx, m.sub, owner, false)
	if err != nil || taken.Held != free {
		rt.Fatalf("take for %s of %q, %s: got held %v, %v; want %v", owner, m.owner, m.clock, taken.Held, err, free)
	}
	if free {
		m.grant(rt, taken.State.Lease)
		return
	}
	m.wake = true
	if taken.Token != m.token || !taken.TakeoverAt.Equal(taken.ExpiresAt.Add(m.rules.ClockSkewAllowance)) {
		rt.Fatalf("not held: got %+v, want token %d, free %v after its expiry", taken, m.token, m.rules.ClockSkewAllowance)
	}
}

// handle is the lease in force, or any that was ever granted.
func (m *model) handle(rt *rapid.T) lease.Lease {
	if rapid.Bool().Draw(rt, "the last") {
		return m.handles[len(m.handles)-1]
	}
	return rapid.SampledFrom(m.handles).Draw(rt, "lease")
}

// expect checks that an act under l was done if l holds, and was fenced if not.
func (m *model) expect(rt *rapid.T, act string, l lease.Lease, err error) (done bool) {
	holds := m.holds(l)
	if (holds && err != nil) || (!holds && !errors.Is(err, lease.ErrFenced)) {
		rt.Fatalf("%s by %s under %d, with %q under %d, %s: got %v, want done %v or fenced", act, l.Owner, l.Token, m.owner, m.token, m.clock, err, holds)
	}
	return holds
}

func (m *model) again(rt *rapid.T) {
	l := m.handle(rt)
	w, err := m.db.BeginIteration(m.ctx, l, false)
	if m.expect(rt, "again", l, err) {
		m.grant(rt, w.Lease)
	}
}

func (m *model) renew(rt *rapid.T) {
	l := m.handle(rt)
	renewed, err := m.db.Renew(m.ctx, l)
	if !m.expect(rt, "renew", l, err) {
		return
	}
	m.clock = live
	if renewed.Owner != l.Owner || renewed.Token != l.Token {
		rt.Fatalf("renew: got %+v, want the owner and token of %+v", renewed, l)
	}
}

func (m *model) release(rt *rapid.T) {
	l := m.handle(rt)
	done, err := m.db.Commit(m.ctx, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
	if !m.expect(rt, "release", l, err) {
		return
	}
	if done.Released == m.wake || (done.Released && done.Token != m.token) {
		rt.Fatalf("release with mark %v under %d: got %+v", m.wake, m.token, done)
	}
	if done.Released {
		m.owner = ""
	}
}

func (m *model) abandon(rt *rapid.T) {
	l := m.handle(rt)
	done, err := m.db.Commit(m.ctx, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseAnyway})
	if !m.expect(rt, "abandon", l, err) {
		return
	}
	if !done.Released || done.Token != m.token+1 {
		rt.Fatalf("abandon under %d: got %+v, want released under the next", m.token, done)
	}
	m.owner, m.wake, m.token = "", false, done.Token
}

// moveClock lets time pass, or the clock be set back, by moving the expiry.
func (m *model) moveClock(rt *rapid.T) {
	m.clock = rapid.SampledFrom([]clock{live, inSkew, over, ahead}).Draw(rt, "clock")
	expiry := map[clock]time.Duration{
		live: m.rules.Duration, inSkew: -m.rules.ClockSkewAllowance / 2,
		over: -m.rules.ClockSkewAllowance, ahead: 3 * m.rules.Duration,
	}[m.clock]
	_, err := m.db.DB.Exec(m.ctx, `update submitter_lease set expires_at = clock_timestamp() + $2::interval where submitter = $1`, m.sub, expiry)
	if err != nil {
		rt.Fatalf("move the expiry: %v", err)
	}
}

func (m *model) write(rt *rapid.T) { m.writeUnder(rt, m.handle(rt)) }

func (m *model) writeUnder(rt *rapid.T, l lease.Lease) bool {
	reason := fmt.Sprintf("written under %d after %d", l.Token, m.by)
	done, err := m.db.Commit(m.ctx, txmanager.Commit{Lease: l, Transitions: []txmanager.Transition{remark(m.tx, reason)}})
	if !m.expect(rt, "write", l, err) {
		return false
	}
	if done.Transitioned != 1 || l.Token < m.by {
		rt.Fatalf("write under %d: got %+v after a write under %d, want 1 moved and no newer write before", l.Token, done, m.by)
	}
	m.reason, m.by = reason, l.Token
	return true
}

// everybodyWrites writes under each lease that was ever granted, in any order. At most one of
// them can.
func (m *model) everybodyWrites(rt *rapid.T) {
	last := slices.Clone(m.handles[max(0, len(m.handles)-5):])
	writers := map[int64]bool{}
	for _, l := range rapid.Permutation(last).Draw(rt, "order") {
		if m.writeUnder(rt, l) {
			writers[l.Token] = true
		}
	}
	if len(writers) > 1 {
		rt.Fatalf("writers at one time: got tokens %v, want one", writers)
	}
}

// compare holds the model against the database.
func (m *model) compare(rt *rapid.T) {
	var got model
	err := m.db.DB.QueryRow(m.ctx, `
		select l.owner_node, l.fencing_token, l.rerun_requested, coalesce(m.last_error, ''), coalesce(m.fencing_token, 0)
		  from submitter_lease l join managed_tx m using (submitter)
		 where l.submitter = $1`, m.sub).Scan(&got.owner, &got.token, &got.wake, &got.reason, &got.by)
	if err != nil {
		rt.Fatalf("read the lease: %v", err)
	}
	if got.owner != m.owner || got.token != m.token || got.wake != m.wake {
		rt.Fatalf("lease: got %q under %d, mark %v; want %q under %d, mark %v", got.owner, got.token, got.wake, m.owner, m.token, m.wake)
	}
	if got.reason != m.reason || got.by != m.by {
		rt.Fatalf("row: got %q under %d, want %q under %d", got.reason, got.by, m.reason, m.by)
	}
}
