package store_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// leftBehind is one submitter with one intent, and what befalls it.
type leftBehind struct {
	given string // its state: QUEUED, IN_FLIGHT or SUBMITTED
	then  []string
}

// Statements on everything that belongs to submitter $1.
const (
	checkLongAgo   = `update managed_tx set next_check_at = clock_timestamp() - interval '10 min' where submitter = $1`
	checkLater     = `update managed_tx set next_check_at = clock_timestamp() + interval '10 min' where submitter = $1`
	checkJustNow   = `update managed_tx set next_check_at = clock_timestamp() - interval '10 s' where submitter = $1`
	postedLongAgo  = `update managed_tx set created_at = clock_timestamp() - interval '10 min' where submitter = $1`
	queueLongAgo   = `update managed_tx set next_check_at = null, created_at = clock_timestamp() - interval '10 min' where submitter = $1 and state = 'QUEUED'`
	resendLongAgo  = `update managed_tx set next_resubmit_at = clock_timestamp() - interval '10 min' where submitter = $1`
	pending        = `update managed_tx set state = 'TRACKING', sub_state = 'PENDING' where submitter = $1`
	included       = `update managed_tx set state = 'TRACKING', sub_state = 'INCLUDED', receipt = '{}' where submitter = $1`
	stuck          = `update managed_tx set state = 'STUCK' where submitter = $1`
	displaced      = `update managed_tx set state = 'PROTECT' where submitter = $1`
	confirmed      = `update managed_tx set state = 'CONFIRMED', receipt = '{}', confirmations = '[]', confirmed_at = clock_timestamp() where submitter = $1`
	cancelled      = `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where submitter = $1`
	marked         = `update submitter_lease set rerun_requested = true, owner_node = 'dead/1', expires_at = clock_timestamp() - interval '10 min' where submitter = $1`
	markedHeld     = `update submitter_lease set rerun_requested = true, owner_node = 'b/1', expires_at = clock_timestamp() + interval '10 s' where submitter = $1`
	markedInSkew   = `update submitter_lease set rerun_requested = true, owner_node = 'b/1', expires_at = clock_timestamp() where submitter = $1`
	suspended      = `update submitter set status = 'SUSPENDED' where submitter = $1`
	incidentClosed = `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r' where submitter = $1`
	// What rows have once the database's clock was set back by an hour.
	changedAhead = `update managed_tx set created_at = created_at + interval '1 hour', updated_at = updated_at + interval '1 hour',
		next_check_at = clock_timestamp() + interval '61 min', first_submit_at = first_submit_at + interval '1 hour',
		last_submit_at = last_submit_at + interval '1 hour', next_resubmit_at = clock_timestamp() + interval '61 min' where submitter = $1`
	sweptAhead  = `update submitter set swept_at = clock_timestamp() + interval '1 hour' where submitter = $1`
	markedAhead = `update submitter_lease set rerun_requested = true, owner_node = 'dead/1', expires_at = clock_timestamp() + interval '1 hour' where submitter = $1`

	narrow = `update submitter set max_in_flight = 1 where submitter = $1`
)

// overdue and inOrder are, by name, what the sweep must take and must leave.
var overdue = map[string]leftBehind{
	"queued and never looked at":              {"QUEUED", []string{postedLongAgo}},
	"queued, its wait over":                   {"QUEUED", []string{checkLongAgo}},
	"allocated and not signed":                {"IN_FLIGHT", []string{checkLongAgo}},
	"claimed, outcome not recorded":           {"SUBMITTED", []string{checkLater, resendLongAgo}},
	"sent, receipt not asked for":             {"SUBMITTED", []string{checkLongAgo}},
	"tracked, receipt not asked for":          {"SUBMITTED", []string{pending, checkLongAgo}},
	"included, not confirmed":                 {"SUBMITTED", []string{included, checkLongAgo}},
	"STUCK, not watched":                      {"SUBMITTED", []string{stuck, checkLongAgo}},
	"nonce taken by another, not watched":     {"SUBMITTED", []string{displaced, checkLongAgo}},
	"a mark whose holder died":                {"QUEUED", []string{marked}},
	"an incident that was closed":             {"QUEUED", []string{postedLongAgo, openIncident, incidentClosed}},
	"suspended, receipt not asked for":        {"SUBMITTED", []string{pending, checkLongAgo, suspended}},
	"late in more than one way":               {"QUEUED", []string{postedLongAgo, marked}},
	"queued behind one in flight, with room":  {"SUBMITTED, QUEUED", []string{checkLater, queueLongAgo}},
	"the window full, but the lowest is late": {"SUBMITTED, QUEUED", []string{narrow, checkLongAgo}},
	"queued before the clock was set back":    {"QUEUED", []string{changedAhead, sweptAhead}},
	"sent before the clock was set back":      {"SUBMITTED", []string{pending, changedAhead, sweptAhead}},
	"taken before the clock was set back":     {"QUEUED", []string{markedAhead, sweptAhead}},
}

var inOrder = map[string]leftBehind{
	"queued just now":                     {"QUEUED", nil},
	"queued, late by less than the grace": {"QUEUED", []string{checkJustNow}},
	"queued long ago, waits on":           {"QUEUED", []string{postedLongAgo, checkLater}},
	"sent just now":                       {"SUBMITTED", nil},
	"allocated just now":                  {"IN_FLIGHT", nil},
	"tracked, its check to come":          {"SUBMITTED", []string{pending, checkLater, resendLongAgo}},
	"tracked, late by less than grace":    {"SUBMITTED", []string{pending, checkJustNow}},
	"final":                               {"SUBMITTED", []string{checkLongAgo, postedLongAgo, resendLongAgo, confirmed}},
	"cancelled":                           {"QUEUED", []string{checkLongAgo, postedLongAgo, cancelled}},
	"in PROTECT":                          {"SUBMITTED", []string{pending, checkLongAgo, openIncident}},
	"in PROTECT, with a mark":             {"QUEUED", []string{postedLongAgo, marked, openIncident}},
	"suspended, queued":                   {"QUEUED", []string{postedLongAgo, suspended}},
	"a mark, the holder alive":            {"QUEUED", []string{markedHeld}},
	"a mark, the holder within the skew":  {"QUEUED", []string{markedInSkew}},
	"queued, the window full":             {"SUBMITTED, QUEUED", []string{narrow, checkLater, queueLongAgo}},
}

const grace = time.Minute

// The sweep takes every submitter that a lost task left behind, and no other.
func TestOverdueFindsWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	names := map[txmanager.Submitter]string{}
	want := []string{}
	const last = "a mark, the holder within the skew" // ends within a second
	for _, cases := range []map[string]leftBehind{overdue, inOrder, {last: inOrder[last]}} {
		for name, c := range cases {
			if name == last && len(cases) > 1 {
				continue
			}
			sub := numbered(1 + len(names))
			names[sub] = name
			c.arrange(t, db, sub)
			if _, late := overdue[name]; late {
				want = append(want, name)
			}
		}
	}
	found, at, err := db.Overdue(t.Context(), grace, 1000, time.Time{})
	check.OK(t)(err)
	got := []string{}
	for _, sub := range found {
		got = append(got, names[sub])
	}
	slices.Sort(got)
	slices.Sort(want)
	check.Same(t, "taken", got, want)
	now := value[time.Time](t, db, `select clock_timestamp()`)
	if since := now.Sub(at); since < 0 || since > time.Minute {
		t.Errorf("time: got %v at %v, want the database's clock", at, now)
	}
}

// A claimed broadcast has its outcome recorded after the next block. The sweep takes it only if that
// is overdue.
func TestClaimedBroadcastHasABlockMore(t *testing.T) {
	t.Parallel()
	db := reopened(t, storetest.New(t), func(o *store.Options) { o.BlockTime = 10 * time.Minute })
	want := map[txmanager.Submitter]string{}
	for i, c := range []struct {
		claimed, check string // how long ago
		taken          bool
	}{{"9 min", "9 min", false}, {"10 min 30 s", "10 min 30 s", false}, {"12 min", "12 min", true}, {"9 min", "8 min", true}} {
		sub := numbered(i + 1)
		leftBehind{given: "SUBMITTED"}.arrange(t, db, sub)
		db.Run(t, `update managed_tx set last_submit_at = c.at, first_submit_at = c.at, next_resubmit_at = c.at, next_check_at = c.at + $2::interval - $3::interval
			from (select clock_timestamp() - $2::interval as at) c where submitter = $1`, sub, c.claimed, c.check)
		if c.taken {
			want[sub] = ""
		}
	}
	check.Same(t, "taken", late(t, db, 10), slices.Sorted(maps.Keys(want)))
}

// late are the submitters that a sweep takes, at most so many, in the order of their names.
func late(t *testing.T, db storetest.Bundle, limit int) []txmanager.Submitter {
	t.Helper()
	found, _, err := db.Overdue(t.Context(), grace, limit, time.Time{})
	check.OK(t)(err)
	return slices.Sorted(slices.Values(found))
}

// arrange brings sub to where the case wants it.
func (c leftBehind) arrange(t *testing.T, db storetest.Bundle, sub txmanager.Submitter) {
	t.Helper()
	db.Register(t, sub, 2)
	post(t, db, sub, "r")
	w := take(t, db, sub, "a/1")
	wr := txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}
	if c.given != "QUEUED" {
		wr.Allocations = allocations(w, c.given != "IN_FLIGHT")
	}
	if done := write(t, db, wr); !done.Released {
		t.Fatalf("release of %s: got %+v", sub, done)
	}
	if c.given == "SUBMITTED, QUEUED" {
		post(t, db, sub, "behind it")
	}
	for _, statement := range c.then {
		db.Run(t, statement, sub)
	}
}

// Two sweeps at once share the work, and neither waits for the other. A create on its way hides nothing from them.
func TestOverdueBesideOtherSessions(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for i := range 3 {
		leftBehind{"QUEUED", []string{postedLongAgo}}.arrange(t, db, numbered(i))
	}
	holdingCreate(t, db, intent(numbered(0), "on its way"))
	db.Holding(t, `update submitter set swept_at = clock_timestamp() where submitter = $1`, numbered(1))
	check.Same(t, "beside another sweep and a create", late(t, db, 10), []txmanager.Submitter{numbered(0), numbered(2)})
}

// The head of the queue decides whether the queue is late. An intent behind a waiting head, or
// behind an open nonce, could not have been sent.
func TestOverdueReadsTheHead(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	behindHead, aside := numbered(1), numbered(2)
	leftBehind{"QUEUED", []string{checkLater}}.arrange(t, db, behindHead)
	post(t, db, behindHead, "behind the head")
	db.Run(t, postedLongAgo, behindHead)
	leftBehind{"SUBMITTED, QUEUED", []string{checkLater, postedLongAgo}}.arrange(t, db, aside)
	db.Run(t, `update managed_tx set next_check_at = null, deferred_until_nonce = 0 where submitter = $1 and state = 'QUEUED'`, aside)
	check.Equal(t, "late, with nothing to do for anyone", len(late(t, db, 10)), 0)
}

// A submitter that was taken stays overdue until its task has run: one sweep
// takes it once, however many batches it takes.
func TestOneSweepTakesEachOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for i := range 5 {
		sub := eip155.NewSubmitter(1337, eip155.Address([20]byte{byte(i + 1)}))
		db.Register(t, sub, 1)
		post(t, db, sub, "r")
	}
	db.Run(t, `update managed_tx set created_at = created_at - interval '1 hour'`)
	var taken []int
	var began time.Time
	for range 4 {
		got, now, err := db.Overdue(t.Context(), time.Second, 2, began)
		check.OK(t)(err)
		if began.IsZero() {
			began = now
		}
		taken = append(taken, len(got))
	}
	check.Same(t, "taken by the batches of one sweep", taken, []int{2, 2, 1, 0})
}

// After the database's clock was set back, steps planned by the earlier clock are due at once:
// the load brings their times to now, and the bytes with them. Otherwise the sweep would find
// them, and the invocation that it enqueued would leave them for an hour.
func TestLoadAfterTheClockWasSetBackFindsEverythingDue(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	postAll(t, db, alice, "low", "high")
	sendAll(t, db, alice)
	db.Run(t, pending, alice)
	db.Run(t, changedAhead, alice)
	post(t, db, alice, "queued")
	db.Run(t, `update managed_tx set updated_at = updated_at + interval '1 hour', next_check_at = clock_timestamp() + interval '61 min' where state = 'QUEUED' and submitter = $1`, alice)
	w := take(t, db, alice, "a/2")
	if len(w.Open) != 2 || len(w.Queue) != 1 {
		t.Fatalf("loaded: got %+v, want two with a nonce and one queued", w)
	}
	for _, x := range append(w.Open, w.Queue...) {
		if x.NextCheckAt == nil || x.NextCheckAt.After(w.Now) {
			t.Errorf("%s: got its next check at %v, want it due at %v", x.RequestID, x.NextCheckAt, w.Now)
		}
		if x.Nonce != nil && (x.NextResubmitAt.After(w.Now) || x.FirstSubmitAt.After(w.Now) || len(x.Raw) == 0) {
			t.Errorf("%s: got its next broadcast at %v, its first at %v, %d bytes; want it due at %v, with its bytes", x.RequestID, x.NextResubmitAt, x.FirstSubmitAt, len(x.Raw), w.Now)
		}
	}
}

// H33: an overdue submitter waits for no more sweeps than one cycle over all takes, however
// few each sweep takes. A submitter in PROTECT takes up no place.
func TestH33SweepStarvesNobody(t *testing.T) {
	t.Parallel()
	const many = 9
	db := storetest.New(t)
	for n := range many {
		leftBehind{"QUEUED", []string{postedLongAgo}}.arrange(t, db, numbered(n))
		db.Run(t, `update submitter_lease set rerun_requested = false`)
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := newSweepModel(rt, t.Context(), db, many)
		rt.Repeat(map[string]func(*rapid.T){
			"sweep":   m.sweep,
			"sweep 2": m.sweep, // twice as often as the rest
			"late":    m.change("late", func(s *swept, yes bool) { s.late = yes }),
			"protect": m.change("protect", func(s *swept, yes bool) { s.protected = yes }),
		})
		taken := map[txmanager.Submitter]bool{}
		due := m.due()
		for range (len(due) + m.page - 1) / m.page {
			for _, s := range m.sweepOnce(rt) {
				taken[s] = true
			}
		}
		for _, s := range due {
			if !taken[s.sub] {
				rt.Errorf("%s: got not swept while %d overdue were gone round by %d, want it swept", s.sub, len(due), m.page)
			}
		}
	})
}

// swept is what the sweep ought to know of one submitter.
type swept struct {
	sub             txmanager.Submitter
	late, protected bool
	last            int // the sweep that took it; 0: none
}

// sweepModel is what the sweep ought to do with a few submitters.
type sweepModel struct {
	ctx    context.Context
	db     storetest.Bundle
	page   int
	sweeps int
	all    []*swept
}

// newSweepModel makes everybody late, out of PROTECT and never swept.
func newSweepModel(rt *rapid.T, ctx context.Context, db storetest.Bundle, many int) *sweepModel {
	m := &sweepModel{ctx: ctx, db: db, page: rapid.IntRange(1, many+1).Draw(rt, "page")}
	m.exec(rt, `update submitter set swept_at = '-infinity'`)
	for n := range many {
		m.all = append(m.all, &swept{sub: numbered(n), late: true})
		m.tell(rt, *m.all[n])
	}
	return m
}

func (m *sweepModel) exec(rt *rapid.T, statement string, args ...any) {
	if _, err := m.db.DB.Exec(m.ctx, statement, args...); err != nil {
		rt.Fatalf("%s: %v", statement, err)
	}
}

// tell brings the database to what s says.
func (m *sweepModel) tell(rt *rapid.T, s swept) {
	m.exec(rt, `update managed_tx set next_check_at = case when $2 then null else 'infinity'::timestamptz end where submitter = $1`, s.sub, s.late)
	if s.protected {
		m.exec(rt, `insert into protect_incident (submitter, incident, evidence)
			select s.submitter, 1 + (select count(*) from protect_incident p where p.submitter = s.submitter), '{}'
			  from submitter s where s.submitter = $1 on conflict do nothing`, s.sub)
		return
	}
	m.exec(rt, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'
		where submitter = $1 and closed_at is null`, s.sub)
}

// change is an action that changes one submitter.
func (m *sweepModel) change(name string, set func(*swept, bool)) func(*rapid.T) {
	return func(rt *rapid.T) {
		s := rapid.SampledFrom(m.all).Draw(rt, name)
		set(s, rapid.Bool().Draw(rt, "yes"))
		m.tell(rt, *s)
	}
}

// due are those to be taken.
func (m *sweepModel) due() []*swept {
	return slices.DeleteFunc(slices.Clone(m.all), func(s *swept) bool { return !s.late || s.protected })
}

func (m *sweepModel) sweep(rt *rapid.T) { m.sweepOnce(rt) }

// sweepOnce compares one sweep with the model. It takes up to its limit of the due submitters,
// the least recently taken first. It may choose between those that one earlier sweep took.
func (m *sweepModel) sweepOnce(rt *rapid.T) []txmanager.Submitter {
	got, _, err := m.db.Overdue(m.ctx, grace, m.page, time.Time{})
	due := m.due()
	if want := min(m.page, len(due)); err != nil || len(got) != want {
		rt.Fatalf("a sweep of %d at a time, %d due: got %v, %v; want %d", m.page, len(due), got, err, want)
	}
	m.sweeps++
	latest, earliest := 0, m.sweeps // of those taken, and of those left
	for _, s := range due {
		if !slices.Contains(got, s.sub) {
			earliest = min(earliest, s.last)
			continue
		}
		latest = max(latest, s.last)
		s.last = m.sweeps
	}
	taken := slices.DeleteFunc(due, func(s *swept) bool { return s.last != m.sweeps })
	if len(taken) != len(got) || latest > earliest {
		rt.Fatalf("sweep %d: got %v, one of them last in sweep %d while one of sweep %d was left; want the longest unswept of those due",
			m.sweeps, got, latest, earliest)
	}
	return got
}

// The backlog counts all submitters, and the longest queue separately. A nonce is as old as
// its first signature.
func TestBacklog(t *testing.T) {
	t.Parallel()
	db := registered(t, 4, alice)
	db.Register(t, bob, 1)
	wants := func(what string, want store.Backlog, least time.Duration) {
		t.Helper()
		got := check.Value(db.Backlog(t.Context()))(t)
		if got.OldestHeld < least || got.OldestHeld > least+time.Hour {
			t.Errorf("%s: oldest nonce held for %v, want %v or a little more", what, got.OldestHeld, least)
		}
		got.OldestHeld = 0
		check.Same(t, what, got, want)
	}
	wants("nothing", store.Backlog{}, 0)
	postAll(t, db, alice, "1", "2", "3", "4", "5", "6", "7")
	post(t, db, bob, "1")
	wants("two queues", store.Backlog{Queued: 8, Fullest: 7}, 0)
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:4], LeaseEnd: txmanager.ReleaseUnlessRerun})
	db.Run(t, `alter table tx_version disable trigger user`)
	db.Run(t, `update tx_version set created_at = created_at - nonce * interval '1 day'`) // above the lowest: not asked
	db.Run(t, `update tx_version set created_at = created_at - interval '2 h' where nonce = 0`)
	w = take(t, db, alice, "a/2")
	var moves []txmanager.Transition
	for i, x := range w.Open[:3] {
		if x.State = txmanager.Stuck; i == 2 {
			x.State, x.Sub = txmanager.Tracking, txmanager.Pending
		}
		moves = append(moves, txmanager.Transition{From: txmanager.Submitted, To: x})
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: moves, LeaseEnd: txmanager.ReleaseUnlessRerun})
	db.Run(t, openIncident, bob)
	wants("some sent", store.Backlog{Queued: 4, Fullest: 3, Stuck: 2, NoReceipt: 2, Protected: 1}, 2*time.Hour)
}

// The trace of an intent is stored with it at no further round trip, and is loaded with the
// submitter's state. A repeat in another trace changes nothing.
func TestTraceIsKept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	traced, origin := intent(alice, "traced"), bytes.Repeat([]byte{7}, 25)
	traced.Trace = origin
	check.OK(t)(db.Create(t.Context(), traced, 100))
	again := intent(alice, "traced")
	again.Trace = bytes.Repeat([]byte{8}, 25)
	check.OK(t)(db.CreateAll(t.Context(), []store.Intent{again, intent(alice, "untraced")}, 100))
	w := take(t, db, alice, "a/1")
	if got := w.Queue[0].Trace; !bytes.Equal(got, origin) {
		t.Errorf("trace in the queue: got %x, want %x", got, origin)
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1], LeaseEnd: txmanager.ReleaseUnlessRerun})
	w = take(t, db, alice, "a/2")
	if got := w.Open[0].Trace; !bytes.Equal(got, origin) {
		t.Errorf("trace of what is sent: got %x, want %x", got, origin)
	}
	if got := w.Queue[0].Trace; got != nil {
		t.Errorf("trace of an intent that came in none: got %x, want none", got)
	}
	decided, err := decide(t, db, traced.TxID, operator, txmanager.ActionPlaceholder)
	if err != nil || !decided.Recorded || !bytes.Equal(decided.Trace, origin) {
		t.Errorf("a decision: got %+v, %v; want it recorded, with the trace", decided, err)
	}
	if decided, err = decide(t, db, traced.TxID, operator, txmanager.ActionPlaceholder); err != nil || decided.Recorded {
		t.Errorf("the decision again: got recorded %v, %v; want it there already", decided.Recorded, err)
	}
}
