package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// distrusted makes the database one that was restored, and did not notice.
func distrusted(t testing.TB, db storetest.Bundle) {
	t.Helper()
	db.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
}

// acceptRestored accepts the database as one that was restored from a backup, and
// releases each submitter.
func acceptRestored(t testing.TB, db storetest.Bundle) {
	t.Helper()
	distrusted(t, db)
	check.OK(t)(db.AcceptDatabase(t.Context(), "ann", "restored"))
	db.Run(t, releaseAll)
}

const releaseAll = `
update protect_incident
   set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'nothing ran'
 where closed_at is null`

// subState is what a caller sees of an intent.
func subState(t testing.TB, db storetest.Bundle, txID string) string {
	t.Helper()
	r := check.Value(store.RecordOf(db.TxWaiting(t.Context(), txID, shop)))(t)
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
	db := registered(t, 8, alice)
	first, second := post(t, db, alice, "first"), post(t, db, alice, "second")
	acceptRestored(t, db)

	for _, id := range []string{first.TxID, second.TxID} {
		check.Equal(t, fmt.Sprintf("sub-state of %s", id), subState(t, db, id), "HELD")
	}
	r, _, err := db.TxWaiting(t.Context(), first.TxID, shop)
	if err != nil || r.LastError == nil || !strings.HasPrefix(*r.LastError, "held: ") {
		t.Errorf("last error: got %+v, %v; want why it is held", r.LastError, err)
	}
	page, _, err := db.List(t.Context(), store.ListQuery{Submitter: alice, State: txmanager.Queued, Size: 10}, shop)
	if err != nil || len(page) != 2 || page[0].SubState == nil || *page[0].SubState != "HELD" {
		t.Errorf("list: got %+v, %v; want both, HELD", page, err)
	}
	if v, err := db.Submitter(t.Context(), alice); err != nil || v.Queued != 2 || v.Held != 2 {
		t.Errorf("submitter: got %d queued, %d held, %v; want 2 and 2", v.Queued, v.Held, err)
	}
	db.Run(t, `update managed_tx set updated_at = updated_at - interval '1 h' where tx_id = $1`, second.TxID)
	if b, err := db.Backlog(t.Context()); err != nil || b.Queued != 0 || b.Held != 2 || b.HeldLongest < time.Hour || b.HeldLongest > 2*time.Hour {
		t.Errorf("backlog: got %+v, %v; want none queued, and 2 held, one for an hour", b, err)
	}
	if late, _, err := db.Overdue(t.Context(), 0, 10, time.Time{}); err != nil || len(late) != 0 {
		t.Errorf("overdue: got %v, %v; want nobody", late, err)
	}

	post(t, db, alice, "third")
	w := take(t, db, alice, "a/1")
	check.Same(t, "the queue", inQueue(w), []string{"third"})
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})

	again, err := db.Create(t.Context(), intent(alice, "second"), 10)
	if err != nil || again.TxID != second.TxID || again.New || !again.Queued {
		t.Errorf("posted again: got %+v, %v; want the stored intent, queued", again, err)
	}
	check.Equal(t, "sub-state after its caller posted it again", subState(t, db, second.TxID), "")
	check.Equal(t, "on record", value[string](t, db, `select by || ': ' || reason from tx_decision where tx_id = $1 and action = 'PROCEED'`, second.TxID), "shop: its caller posted the request again")
	w = take(t, db, alice, "a/2")
	check.Same(t, "the queue after the repeat", inQueue(w), []string{"second", "third"})
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "allocated", done.Allocated, 2)
}

// A move or an allocation that was decided before the acceptance changes no held intent.
func TestHolderFromBeforeTheAcceptanceBindsNothingHeld(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	p := post(t, db, alice, "one")
	w := take(t, db, alice, "a/1")
	acceptRestored(t, db)

	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	check.Equal(t, "allocated", done.Allocated, 0)
	done = write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{remark(w.Queue[0], "balance: too low")}})
	check.Equal(t, "moved", done.Transitioned, 0)
	check.Equal(t, "sub-state", subState(t, db, p.TxID), "HELD")
	_, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'IN_FLIGHT', nonce = 0 where tx_id = $1`, p.TxID)
	check.Equal(t, "bound all the same", storetest.Violated(err), "held_has_no_nonce")
}

// A post with another payload or another caller lets no held intent proceed.
func TestOnlyTheSamePostOfItsCallerLetsAnIntentGoOn(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	p := post(t, db, alice, "one")
	acceptRestored(t, db)
	other, foreign := intent(alice, "one"), intent(alice, "one")
	other.Fingerprint[0]++
	foreign.Caller = "bank"
	for _, in := range []store.Intent{other, foreign} {
		check.Err(t, "create", store.ErrRequestConflict)(db.Create(t.Context(), in, 10))
	}
	check.Equal(t, "sub-state", subState(t, db, p.TxID), "HELD")
}

// No held intent proceeds until the database is accepted. An interrupted acceptance can be
// repeated.
func TestNothingProceedsBeforeTheAcceptance(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	p := post(t, db, alice, "one")
	distrusted(t, db)
	db.Run(t, `update managed_tx set held = true where tx_id = $1`, p.TxID)
	check.Equal(t, "queued when posted again", check.Value(db.Create(t.Context(), intent(alice, "one"), 10))(t).Queued, false)
	check.Err(t, "proceed", store.ErrForeign)(db.Proceed(t.Context(), p.TxID, "ann", "wanted"))
	check.Err(t, "proceed all", store.ErrForeign)(db.ProceedAll(t.Context(), alice, uuid.NewString(), "ann", "wanted", 10))
	check.Equal(t, "sub-state", subState(t, db, p.TxID), "HELD")
}

// An operator lets one intent proceed, or all of a submitter page by page. Each is recorded.
// Payouts wait for their transfers.
func TestOperatorLetsHeldIntentsProceed(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	var all []store.StoredIntent
	for i := range 5 {
		all = append(all, post(t, db, alice, fmt.Sprint("request-", i)))
	}
	payout := intent(alice, "payout")
	payout.Caller, payout.Names = store.PayoutCaller, []string{store.PayoutCaller, "*"}
	paid := check.Value(db.Create(t.Context(), payout, 10))(t)
	elsewhere := post(t, db, bob, "elsewhere")
	acceptRestored(t, db)

	for range 2 { // the second changes nothing
		if out, err := db.Proceed(t.Context(), all[3].TxID, "ann", "wanted"); err != nil || out.State != txmanager.Queued || out.SubState != "" {
			t.Errorf("proceed: got %+v, %v", out, err)
		}
	}
	check.Equal(t, "decisions on record", value[int](t, db, `select count(*) from tx_decision where tx_id = $1 and by = 'ann' and reason = 'wanted'`, all[3].TxID), 1)
	check.Err(t, "proceed of a payout", store.ErrCoordinators)(db.Proceed(t.Context(), paid.TxID, "ann", "wanted"))
	if _, err := db.Create(t.Context(), payout, 10); err != nil || !value[bool](t, db, `select held from managed_tx where tx_id = $1`, paid.TxID) {
		t.Errorf("a payout that is posted again: got error %v, and it goes on; want it held", err)
	}
	want := []store.ProceededAll{{Proceeded: 3, Remaining: 1, Payouts: 1}, {Proceeded: 1, Payouts: 1}, {Payouts: 1}}
	for _, w := range want {
		check.Equal(t, "proceed all", check.Value(db.ProceedAll(t.Context(), alice, all[4].TxID, "ann", "reconciled", 3))(t), w)
	}
	check.Equal(t, "decisions on record", value[int](t, db, `select count(*) from tx_decision where action = 'PROCEED' and by = 'ann' and reason = 'reconciled'`), 4)
	check.Equal(t, "another submitter's intent", subState(t, db, elsewhere.TxID), "HELD")
	fresh := post(t, db, alice, "fresh")
	check.Err(t, "proceed of what is not held", store.ErrNotHeld)(db.Proceed(t.Context(), fresh.TxID, "ann", "wanted"))
	check.Err(t, "proceed all of nobody", store.ErrUnknownSubmitter)(db.ProceedAll(t.Context(), numbered(9), all[4].TxID, "ann", "wanted", 3))
}

// A held intent is cancelled at once, by its caller or an operator, and for good.
func TestHeldIntentIsCancelled(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	p := post(t, db, alice, "one")
	acceptRestored(t, db)
	check.Equal(t, "cancel", cancelledAs(t, db, p.TxID, shop), "FAILED/CANCELLED")
	check.Equal(t, "queued when posted again", check.Value(db.Create(t.Context(), intent(alice, "one"), 10))(t).Queued, false)
}

// A held intent takes no room in a bounded queue.
func TestHeldIntentsLeaveTheQueueItsRoom(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	postAll(t, db, alice, "one", "two")
	acceptRestored(t, db)
	db = reopened(t, db, func(*store.Options) {}) // this process remembers the queue of before
	check.Equal(t, "a new intent is new", check.Value(db.Create(t.Context(), intent(alice, "three"), 1))(t).New, true)
	check.Err(t, "one more", store.ErrQueueFull)(db.Create(t.Context(), intent(alice, "four"), 1))
}

// More intents than one statement holds are all held, and an acceptance of a database
// that is the accepted database holds nothing.
func TestAcceptanceHoldsManyQueues(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, numbers(3)...)
	for _, sub := range numbers(3) {
		fill(t, db, sub, "r", 700)
	}
	check.Err(t, "accept the authority", store.ErrDatabaseAccepted)(db.AcceptDatabase(t.Context(), "ann", "again"))
	check.Equal(t, "held in the authority", value[int](t, db, `select count(*) from managed_tx where held`), 0)
	acceptRestored(t, db)
	check.Equal(t, "not held", value[int](t, db, `select count(*) from managed_tx where queued and not held`), 0)
}

// A bulk call lets no intent proceed that was stored after the one that the operator names,
// because the operator has not seen it. Intents that their caller cancelled stay held too.
func TestInBulkOnlyWhatAnOperatorHasSeenProceeds(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	seen, parked, again := post(t, db, alice, "seen"), post(t, db, alice, "parked"), post(t, db, alice, "again")
	last, newer, elsewhere := post(t, db, alice, "last"), post(t, db, alice, "newer"), post(t, db, bob, "elsewhere")
	db.Run(t, openIncident, alice)
	for _, p := range []store.StoredIntent{parked, again} {
		out, err := decide(t, db, p.TxID, shop, txmanager.ActionCancel)
		if err != nil || out.State != txmanager.Queued || !out.Recorded {
			t.Fatalf("cancel in PROTECT: got %+v, %v; want it parked", out, err)
		}
	}
	check.OK(t)(db.Create(t.Context(), intent(alice, "again"), 10))
	acceptRestored(t, db)
	for _, through := range []string{elsewhere.TxID, uuid.NewString()} {
		if out, err := db.ProceedAll(t.Context(), alice, through, "ann", "reconciled", 10); !errors.Is(err, store.ErrNoSuchIntent) || out.Proceeded != 0 {
			t.Errorf("through another's: got %+v, %v; want ErrNoSuchIntent", out, err)
		}
	}
	want := store.ProceededAll{Proceeded: 3, Newer: 1, Cancelled: 1}
	check.Equal(t, "proceed all", check.Value(db.ProceedAll(t.Context(), alice, last.TxID, "ann", "reconciled", 10))(t), want)
	for name, c := range map[string]struct{ txID, sub string }{"seen": {seen.TxID, ""}, "parked": {parked.TxID, "HELD"}, "again": {again.TxID, ""}, "newer": {newer.TxID, "HELD"}} {
		check.Equal(t, name, subState(t, db, c.txID), c.sub)
	}
	check.Equal(t, "by itself", check.Value(db.Proceed(t.Context(), parked.TxID, "ann", "its caller was asked"))(t).SubState, "")
}
