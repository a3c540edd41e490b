package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	for _, cases := range []map[string]leftBehind{overdue, inOrder} {
		for name, c := range cases {
			sub := numbered(1 + len(names))
			names[sub] = name
			c.arrange(t, db, sub)
			if _, late := overdue[name]; late {
				want = append(want, name)
			}
		}
	}
	found, at, err := db.Overdue(t.Context(), grace, 1000, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, sub := range found {
		got = append(got, names[sub])
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	now := value[time.Time](t, db, `select clock_timestamp()`)
	if since := now.Sub(at); since < 0 || since > time.Minute {
		t.Errorf("time: got %v at %v, want the database's clock", at, now)
	}
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
		run(t, db, statement, sub)
	}
}

// The least recently taken submitters come first, and never more than requested: permanently
// overdue ones starve no other.
func TestOverdueTakesTheLongestUnsweptFirst(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for i := range 5 {
		leftBehind{"QUEUED", []string{postedLongAgo}}.arrange(t, db, numbered(i))
	}
	run(t, db, `update submitter set swept_at = clock_timestamp() - interval '1 hour' where submitter <> $1`, numbered(4))
	for round, want := range [][]txmanager.Submitter{
		{numbered(0), numbered(4)}, // 4 was never swept; of the others the names decide
		{numbered(1), numbered(2)},
	} {
		got, _, err := db.Overdue(t.Context(), grace, 2, time.Time{})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("round %d: got %v, %v; want %v", round, got, err, want)
		}
	}
	got, _, err := db.Overdue(t.Context(), grace, 2, time.Time{})
	if err != nil || len(got) != 2 || !slices.Contains(got, numbered(3)) {
		t.Errorf("round 2: got %v, %v; want two, the last unswept among them", got, err)
	}
}

// Two sweeps at once share the work, and neither waits for the other.
func TestOverdueIsSharedByTwoSweeps(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for i := range 3 {
		leftBehind{"QUEUED", []string{postedLongAgo}}.arrange(t, db, numbered(i))
	}
	other := connect(t, db)
	other.do("begin")
	other.do(`update submitter set swept_at = clock_timestamp() where submitter = $1`, numbered(1))
	got, _, err := db.Overdue(t.Context(), grace, 10, time.Time{})
	slices.Sort(got)
	if want := []txmanager.Submitter{numbered(0), numbered(2)}; err != nil || !slices.Equal(got, want) {
		t.Errorf("beside another sweep: got %v, %v; want %v", got, err, want)
	}
}

// A create on its way hides nothing from the sweep.
func TestOverdueBesideACreate(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	leftBehind{"QUEUED", []string{postedLongAgo}}.arrange(t, db, alice)
	in := intent(alice, "on its way")
	other := connect(t, db)
	other.do("begin")
	other.do(insertIntent, in.TxID, alice, in.RequestID, in.Fingerprint[:])
	if got, _, err := db.Overdue(t.Context(), grace, 10, time.Time{}); err != nil || len(got) != 1 {
		t.Errorf("beside a create: got %v, %v; want %s", got, err, alice)
	}
}

// The head of the queue decides whether the queue is late. An intent behind a waiting head, or
// behind an open nonce, could not have been sent.
func TestOverdueLooksAtTheHead(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	behindHead, aside := numbered(1), numbered(2)
	leftBehind{"QUEUED", []string{checkLater}}.arrange(t, db, behindHead)
	post(t, db, behindHead, "behind the head")
	run(t, db, postedLongAgo, behindHead)
	leftBehind{"SUBMITTED, QUEUED", []string{checkLater, postedLongAgo}}.arrange(t, db, aside)
	run(t, db, `update managed_tx set next_check_at = null, deferred_until_nonce = 0 where submitter = $1 and state = 'QUEUED'`, aside)
	if got, _, err := db.Overdue(t.Context(), grace, 10, time.Time{}); err != nil || len(got) != 0 {
		t.Errorf("nothing to do for anyone: got %v, %v; want none", got, err)
	}
}

// A submitter that was taken stays overdue until its task has run: one sweep
// takes it once, however many batches it takes.
func TestOneSweepTakesEachOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for i := range 5 {
		sub := txmanager.NewSubmitter(1337, txmanager.Address{byte(i + 1)})
		db.Register(t, sub, 1)
		post(t, db, sub, "r")
	}
	run(t, db, `update managed_tx set created_at = created_at - interval '1 hour'`)
	var taken []int
	var began time.Time
	for range 4 {
		got, now, err := db.Overdue(t.Context(), time.Second, 2, began)
		if err != nil {
			t.Fatal(err)
		}
		if began.IsZero() {
			began = now
		}
		taken = append(taken, len(got))
	}
	if diff := cmp.Diff([]int{2, 2, 1, 0}, taken); diff != "" {
		t.Errorf("taken by the batches of one sweep (-want +got):\n%s", diff)
	}
}

// After the database's clock was set back, steps planned by the earlier clock are due at once:
// the load brings their times to now, and the bytes with them. Otherwise the sweep would find
// them, and the invocation that it enqueued would leave them for an hour.
func TestLoadAfterTheClockWasSetBackFindsEverythingDue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 2)
	post(t, db, alice, "low")
	post(t, db, alice, "high")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	run(t, db, pending, alice)
	run(t, db, changedAhead, alice)
	post(t, db, alice, "queued")
	run(t, db, `update managed_tx set updated_at = updated_at + interval '1 hour', next_check_at = clock_timestamp() + interval '61 min' where state = 'QUEUED' and submitter = $1`, alice)
	w = take(t, db, alice, "a/2")
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
