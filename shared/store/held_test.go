package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// distrusted makes the database one that was restored, and did not notice.
func distrusted(t testing.TB, db storetest.Bundle) {
	t.Helper()
	run(t, db, `update database_identity set timeline_id = timeline_id + 1`)
}

// acceptRestored accepts the database as one that was restored from a backup, and
// releases each submitter.
func acceptRestored(t testing.TB, db storetest.Bundle) {
	t.Helper()
	distrusted(t, db)
	if err := db.AcceptDatabase(t.Context(), "ann", "restored"); err != nil {
		t.Fatalf("accept: %v", err)
	}
	run(t, db, releaseAll)
}

const releaseAll = `
update protect_incident
   set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'nothing ran'
 where closed_at is null`

// subState is what a caller sees of an intent.
func subState(t testing.TB, db storetest.Bundle, txID string) string {
	t.Helper()
	r, err := db.Tx(t.Context(), txID, store.Viewer{Caller: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if r.SubState == nil {
		return ""
	}
	return *r.SubState
}

// inQueue are the request ids that the holder of the lease would bind.
func inQueue(w txmanager.SubmitterState) (ids []string) {
	for _, q := range w.Queue {
		ids = append(ids, q.RequestID)
	}
	return ids
}

// A queued intent of a restored copy gets no nonce until its caller posts it again, and does
// not delay later intents.
func TestAcceptanceHoldsTheQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	first, second := post(t, db, alice, "first"), post(t, db, alice, "second")
	acceptRestored(t, db)

	for _, id := range []string{first.TxID, second.TxID} {
		if got := subState(t, db, id); got != "HELD" {
			t.Errorf("sub-state of %s: got %q, want HELD", id, got)
		}
	}
	r, err := db.Tx(t.Context(), first.TxID, store.Viewer{Caller: "shop"})
	if err != nil || r.LastError == nil || !strings.HasPrefix(*r.LastError, "held: ") {
		t.Errorf("last error: got %+v, %v; want why it is held", r.LastError, err)
	}
	page, _, err := db.List(t.Context(), store.ListQuery{Submitter: alice, State: txmanager.Queued, Size: 10}, store.Viewer{Caller: "shop"})
	if err != nil || len(page) != 2 || page[0].SubState == nil || *page[0].SubState != "HELD" {
		t.Errorf("list: got %+v, %v; want both, HELD", page, err)
	}
	if v, err := db.Submitter(t.Context(), alice); err != nil || v.Queued != 2 || v.Held != 2 {
		t.Errorf("submitter: got %d queued, %d held, %v; want 2 and 2", v.Queued, v.Held, err)
	}
	run(t, db, `update managed_tx set updated_at = updated_at - interval '1 h' where tx_id = $1`, second.TxID)
	if b, err := db.Backlog(t.Context()); err != nil || b.Queued != 0 || b.Held != 2 || b.HeldLongest < time.Hour || b.HeldLongest > 2*time.Hour {
		t.Errorf("backlog: got %+v, %v; want none queued, and 2 held, one for an hour", b, err)
	}
	if late, _, err := db.Overdue(t.Context(), 0, 10, time.Time{}); err != nil || len(late) != 0 {
		t.Errorf("overdue: got %v, %v; want nobody", late, err)
	}

	post(t, db, alice, "third")
	w := take(t, db, alice, "a/1")
	if diff := cmp.Diff([]string{"third"}, inQueue(w)); diff != "" {
		t.Errorf("the queue (-want +got):\n%s", diff)
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})

	again, err := db.Create(t.Context(), intent(alice, "second"), 10)
	if err != nil || again.TxID != second.TxID || again.New || !again.Queued {
		t.Errorf("posted again: got %+v, %v; want the stored intent, queued", again, err)
	}
	if got := subState(t, db, second.TxID); got != "" {
		t.Errorf("sub-state after its caller posted it again: got %q, want none", got)
	}
	if by := value[string](t, db, `select by || ': ' || reason from tx_decision where tx_id = $1 and action = 'PROCEED'`, second.TxID); by != "shop: its caller posted the request again" {
		t.Errorf("on record: got %q", by)
	}
	w = take(t, db, alice, "a/2")
	if diff := cmp.Diff([]string{"second", "third"}, inQueue(w)); diff != "" {
		t.Errorf("the queue after the repeat (-want +got):\n%s", diff)
	}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	if done.Allocated != 2 {
		t.Errorf("allocated: got %d, want 2", done.Allocated)
	}
}

// A move or an allocation that was decided before the acceptance changes no held intent.
func TestHolderFromBeforeTheAcceptanceBindsNothingHeld(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	p := post(t, db, alice, "one")
	w := take(t, db, alice, "a/1")
	acceptRestored(t, db)

	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	if done.Allocated != 0 {
		t.Errorf("allocated: got %d, want none", done.Allocated)
	}
	done = write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{remark(w.Queue[0], "balance: too low")}})
	if done.Transitioned != 0 {
		t.Errorf("moved: got %d, want none", done.Transitioned)
	}
	if got := subState(t, db, p.TxID); got != "HELD" {
		t.Errorf("sub-state: got %q, want HELD", got)
	}
	_, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'IN_FLIGHT', nonce = 0 where tx_id = $1`, p.TxID)
	if violated(err) != "held_has_no_nonce" {
		t.Errorf("bound all the same: got %v, want it refused by held_has_no_nonce", err)
	}
}

// A post with another payload or another caller lets no held intent proceed.
func TestOnlyTheSamePostOfItsCallerLetsAnIntentGoOn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	p := post(t, db, alice, "one")
	acceptRestored(t, db)
	other, foreign := intent(alice, "one"), intent(alice, "one")
	other.Fingerprint[0]++
	foreign.Caller = "bank"
	for _, in := range []store.Intent{other, foreign} {
		if _, err := db.Create(t.Context(), in, 10); !errors.Is(err, store.ErrRequestConflict) {
			t.Errorf("create: got %v, want a conflict", err)
		}
	}
	if got := subState(t, db, p.TxID); got != "HELD" {
		t.Errorf("sub-state: got %q, want HELD", got)
	}
}

// No held intent proceeds until the database is accepted. An interrupted acceptance can be
// repeated.
func TestNothingProceedsBeforeTheAcceptance(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	p := post(t, db, alice, "one")
	distrusted(t, db)
	run(t, db, `update managed_tx set held = true where tx_id = $1`, p.TxID)
	if again, err := db.Create(t.Context(), intent(alice, "one"), 10); err != nil || again.Queued {
		t.Errorf("posted again: got %+v, %v; want it stored, and not queued", again, err)
	}
	if _, err := db.Proceed(t.Context(), p.TxID, "ann", "wanted"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("proceed: got %v, want ErrForeign", err)
	}
	if _, err := db.ProceedAll(t.Context(), alice, uuid.NewString(), "ann", "wanted", 10); !errors.Is(err, store.ErrForeign) {
		t.Errorf("proceed all: got %v, want ErrForeign", err)
	}
	if got := subState(t, db, p.TxID); got != "HELD" {
		t.Errorf("sub-state: got %q, want HELD", got)
	}
}

// An operator lets one intent proceed, or all of a submitter page by page. Each is recorded.
// Payouts wait for their transfers.
func TestOperatorLetsHeldIntentsProceed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	var all []store.StoredIntent
	for i := range 5 {
		all = append(all, post(t, db, alice, fmt.Sprint("request-", i)))
	}
	payout := intent(alice, "payout")
	payout.Caller, payout.Names = store.PayoutCaller, []string{store.PayoutCaller, "*"}
	paid, err := db.Create(t.Context(), payout, 10)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := post(t, db, bob, "elsewhere")
	acceptRestored(t, db)

	for range 2 { // the second changes nothing
		if out, err := db.Proceed(t.Context(), all[3].TxID, "ann", "wanted"); err != nil || out.State != txmanager.Queued || out.SubState != "" {
			t.Errorf("proceed: got %+v, %v", out, err)
		}
	}
	if n := value[int](t, db, `select count(*) from tx_decision where tx_id = $1 and by = 'ann' and reason = 'wanted'`, all[3].TxID); n != 1 {
		t.Errorf("decisions on record: got %d, want 1", n)
	}
	if _, err := db.Proceed(t.Context(), paid.TxID, "ann", "wanted"); !errors.Is(err, store.ErrCoordinators) {
		t.Errorf("proceed of a payout: got %v, want ErrCoordinators", err)
	}
	if _, err := db.Create(t.Context(), payout, 10); err != nil || !value[bool](t, db, `select held from managed_tx where tx_id = $1`, paid.TxID) {
		t.Errorf("a payout that is posted again: got error %v, and it goes on; want it held", err)
	}
	want := []store.ProceededAll{{Proceeded: 3, Remaining: 1, Payouts: 1}, {Proceeded: 1, Payouts: 1}, {Payouts: 1}}
	for _, w := range want {
		if out, err := db.ProceedAll(t.Context(), alice, all[4].TxID, "ann", "reconciled", 3); err != nil || out != w {
			t.Errorf("proceed all: got %+v, %v; want %+v", out, err, w)
		}
	}
	if n := value[int](t, db, `select count(*) from tx_decision where action = 'PROCEED' and by = 'ann' and reason = 'reconciled'`); n != 4 {
		t.Errorf("decisions on record: got %d, want 4", n)
	}
	if got := subState(t, db, elsewhere.TxID); got != "HELD" {
		t.Errorf("another submitter's intent: got sub-state %q, want HELD", got)
	}
	fresh := post(t, db, alice, "fresh")
	if _, err := db.Proceed(t.Context(), fresh.TxID, "ann", "wanted"); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("proceed of what is not held: got %v, want ErrNotHeld", err)
	}
	if _, err := db.ProceedAll(t.Context(), numbered(9), all[4].TxID, "ann", "wanted", 3); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("proceed all of nobody: got %v, want ErrUnknownSubmitter", err)
	}
}

// A held intent is cancelled at once, by its caller or an operator, and for good.
func TestHeldIntentIsCancelled(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	p := post(t, db, alice, "one")
	acceptRestored(t, db)
	out, err := db.RecordDecision(t.Context(), store.Decision{TxID: p.TxID, By: store.Viewer{Caller: "shop"}, Action: txmanager.ActionCancel, Reason: "not wanted"})
	if err != nil || out.State != txmanager.Failed || out.SubState != txmanager.Cancelled {
		t.Errorf("cancel: got %+v, %v; want FAILED/CANCELLED", out, err)
	}
	if again, err := db.Create(t.Context(), intent(alice, "one"), 10); err != nil || again.Queued {
		t.Errorf("posted again: got %+v, %v; want it ended", again, err)
	}
}

// A held intent takes no room in a bounded queue.
func TestHeldIntentsLeaveTheQueueItsRoom(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	post(t, db, alice, "one")
	post(t, db, alice, "two")
	acceptRestored(t, db)
	if got, err := db.Create(t.Context(), intent(alice, "three"), 1); err != nil || !got.New {
		t.Errorf("a new intent: got %+v, %v; want it accepted", got, err)
	}
	if _, err := db.Create(t.Context(), intent(alice, "four"), 1); !errors.Is(err, store.ErrQueueFull) {
		t.Errorf("one more: got %v, want the queue full", err)
	}
}

// A database that was moved as planned has all that was committed: nothing is held.
func TestPlannedMoveHoldsNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	p := post(t, db, alice, "one")
	distrusted(t, db)
	if err := db.Accept(t.Context(), store.Acceptance{By: "ann", Reason: "moved", Planned: true}); err != nil {
		t.Fatal(err)
	}
	if got := subState(t, db, p.TxID); got != "" {
		t.Errorf("sub-state: got %q, want none", got)
	}
}

// More intents than one statement holds are all held, and an acceptance of a database
// that is the accepted database holds nothing.
func TestAcceptanceHoldsManyQueues(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for i := range 3 {
		db.Register(t, numbered(i), 1)
		run(t, db, withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint)
			select gen_random_uuid(), $1, 'r' || n, 'shop', sha256('x') from generate_series(1, 700) as n`), numbered(i))
	}
	if err := db.AcceptDatabase(t.Context(), "ann", "again"); !errors.Is(err, store.ErrDatabaseAccepted) {
		t.Errorf("accept the authority: got %v", err)
	}
	if n := value[int](t, db, `select count(*) from managed_tx where held`); n != 0 {
		t.Errorf("held in the authority: got %d, want none", n)
	}
	acceptRestored(t, db)
	if n := value[int](t, db, `select count(*) from managed_tx where queued and not held`); n != 0 {
		t.Errorf("not held: got %d, want none", n)
	}
}

// A bulk call lets no intent proceed that was stored after the one that the operator names,
// because the operator has not seen it. Intents that their caller cancelled stay held too.
func TestInBulkOnlyWhatAnOperatorHasSeenProceeds(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	seen, parked, again := post(t, db, alice, "seen"), post(t, db, alice, "parked"), post(t, db, alice, "again")
	last, newer, elsewhere := post(t, db, alice, "last"), post(t, db, alice, "newer"), post(t, db, bob, "elsewhere")
	run(t, db, openIncident, alice)
	for _, p := range []store.StoredIntent{parked, again} {
		out, err := db.RecordDecision(t.Context(), store.Decision{TxID: p.TxID, By: store.Viewer{Caller: "shop"}, Action: txmanager.ActionCancel, Reason: "not wanted"})
		if err != nil || out.State != txmanager.Queued || !out.Recorded {
			t.Fatalf("cancel in PROTECT: got %+v, %v; want it parked", out, err)
		}
	}
	if _, err := db.Create(t.Context(), intent(alice, "again"), 10); err != nil {
		t.Fatalf("posted again: %v", err)
	}
	acceptRestored(t, db)
	for _, through := range []string{elsewhere.TxID, uuid.NewString()} {
		if out, err := db.ProceedAll(t.Context(), alice, through, "ann", "reconciled", 10); !errors.Is(err, store.ErrNoSuchIntent) || out.Proceeded != 0 {
			t.Errorf("through another's: got %+v, %v; want ErrNoSuchIntent", out, err)
		}
	}
	want := store.ProceededAll{Proceeded: 3, Newer: 1, Cancelled: 1}
	if out, err := db.ProceedAll(t.Context(), alice, last.TxID, "ann", "reconciled", 10); err != nil || out != want {
		t.Errorf("proceed all: got %+v, %v; want %+v", out, err, want)
	}
	for name, c := range map[string]struct{ txID, sub string }{"seen": {seen.TxID, ""}, "parked": {parked.TxID, "HELD"}, "again": {again.TxID, ""}, "newer": {newer.TxID, "HELD"}} {
		if got := subState(t, db, c.txID); got != c.sub {
			t.Errorf("%s: got %q, want %q", name, got, c.sub)
		}
	}
	if out, err := db.Proceed(t.Context(), parked.TxID, "ann", "its caller was asked"); err != nil || out.SubState != "" {
		t.Errorf("by itself: got %+v, %v; want it let go on", out, err)
	}
}
