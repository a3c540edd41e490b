package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Several owners act in any order with any clock. Tokens only go up and are never given twice.
// Only the holder of the last one writes. A rerun flag stays until an iteration or a forced
// release.
func TestLeaseProperties(t *testing.T) {
	t.Parallel()
	// Long, so that a lease runs out only when the model says so.
	rules := lease.Rules{Duration: 10 * time.Minute, ClockSkewAllowance: 5 * time.Minute}
	db := storetest.NewWith(t, rules)
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
