package store_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// waitsFor makes the head of sub's queue wait for a cause.
func waitsFor(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, cause txmanager.WaitCause) {
	t.Helper()
	w := take(t, db, sub, "a/1")
	to := w.Queue[0]
	to.Explain(cause, string(cause))
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Queued, To: to}}, LeaseEnd: txmanager.ReleaseUnlessRerun})
}

// A cause is stored with the time at which it began, which stays while the cause does. It comes with
// the load, and an allocation or a cancel clears both.
func TestCauseIsStoredSinceItBegan(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	for _, s := range []txmanager.Submitter{alice, bob} {
		post(t, db, s, "1")
	}
	since := func() time.Time {
		return value[time.Time](t, db, `select waiting_since from managed_tx where submitter = $1`, alice)
	}
	waitsFor(t, db, alice, txmanager.WaitBalance)
	began := since()
	waitsFor(t, db, alice, txmanager.WaitBalance)
	check.Equal(t, "the same cause again: since", since(), began)
	waitsFor(t, db, alice, txmanager.WaitNodes)
	if changed := since(); !changed.After(began) {
		t.Errorf("another cause: got since %s, want later than %s", changed, began)
	}
	w := take(t, db, alice, "a/2")
	check.Equal(t, "loaded", w.Queue[0].Cause, txmanager.WaitNodes)
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	waitsFor(t, db, bob, txmanager.WaitBalance)
	id := value[string](t, db, `select tx_id::text from managed_tx where submitter = $1`, bob)
	check.Value(db.RecordDecision(t.Context(), store.Decision{TxID: id, By: operator, Action: txmanager.ActionCancel, Reason: "test"}))(t)
	check.Equal(t, "rows with a cause", value[int](t, db, `select count(*)::int from managed_tx where wait_cause is not null or waiting_since is not null`), 0)
}

// why is the wait of a request as v sees it.
func why(t *testing.T, db storetest.Bundle, requestID string, v store.Viewer) *store.Waiting {
	t.Helper()
	id := value[string](t, db, `select tx_id::text from managed_tx where submitter = $1 and request_id = $2`, alice, requestID)
	_, w, err := db.TxWaiting(t.Context(), id, v)
	check.OK(t)(err)
	return w
}

// Each transaction of a queue shows its position, its cause and what blocks it, as its submitter and
// the transactions before it change.
func TestWaitIsDerived(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	postAll(t, db, alice, "1", "2", "3")
	is := func(what, requestID string, cause txmanager.WaitCause, position int, by txmanager.WaitCause) {
		t.Helper()
		w := why(t, db, requestID, operator)
		got := struct {
			Cause    txmanager.WaitCause
			Position int
			By       txmanager.WaitCause
		}{Cause: w.Cause}
		if w.Position != nil {
			got.Position = *w.Position
		}
		if w.BlockedBy != nil {
			got.By = w.BlockedBy.Cause
		}
		if got.Cause != cause || got.Position != position || got.By != by || w.Since.IsZero() || w.Since.After(w.Now) {
			t.Errorf("%s: got %+v since %s, want %s at %d, blocked by %q", what, got, w.Since, cause, position, by)
		}
	}
	is("the head", "1", txmanager.WaitNext, 1, "")
	is("behind it", "2", txmanager.WaitEarlier, 2, txmanager.WaitNext)
	waitsFor(t, db, alice, txmanager.WaitBalance)
	is("a poor head", "1", txmanager.WaitBalance, 1, "")
	is("behind the poor head", "3", txmanager.WaitEarlier, 3, txmanager.WaitBalance)
	run(t, db, `update submitter set status = 'SUSPENDED'`)
	is("suspended", "2", txmanager.WaitSuspended, 2, "")
	run(t, db, `update submitter set status = 'ACTIVE'`)
	w := take(t, db, alice, "a/2")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	is("sent", "1", txmanager.WaitBroadcast, 0, "")
	is("the next head", "2", txmanager.WaitWindowFull, 1, txmanager.WaitBroadcast)
	is("behind the full window", "3", txmanager.WaitEarlier, 2, txmanager.WaitWindowFull)
	run(t, db, `update managed_tx set state = 'TRACKING', sub_state = 'PENDING' where open`)
	is("acknowledged", "1", txmanager.WaitInclusion, 0, "")
	run(t, db, `update managed_tx set held = true where request_id = '2'`)
	is("held", "2", txmanager.WaitHeld, 0, "")
	run(t, db, `update managed_tx set deferred_at = now(), blocked_since = now(), wait_cause = 'OWN_BOUNDS', waiting_since = now(), held = false where request_id = '2'`)
	is("deferred", "2", txmanager.WaitOwnBounds, 1, "")
	is("behind its caller's deferred intent", "3", txmanager.WaitEarlier, 2, txmanager.WaitOwnBounds)
	run(t, db, openIncident, alice)
	is("in PROTECT", "3", txmanager.WaitProtect, 2, "")
	run(t, db, `update managed_tx set state = 'FAILED', sub_state = 'REVERTED', receipt = '{}', confirmed_at = now() where open`)
	if w := why(t, db, "1", operator); w != nil {
		t.Errorf("ended: got %+v, want nothing", w)
	}
}

// A blocker's txId is shown only to its caller and to operators.
func TestBlockerOfAnotherCallerIsNotShown(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	run(t, db, `update submitter set callers = '{email:a@x,email:b@x}'`)
	for i, caller := range []string{"email:a@x", "email:b@x", "email:b@x"} {
		in := intent(alice, string(rune('1'+i)))
		in.Caller = caller
		check.Value(db.Create(t.Context(), in, 100))(t)
	}
	b := store.Viewer{Caller: "email:b@x", Names: []string{"email:b@x", "*"}}
	if got := why(t, db, "3", b).BlockedBy; got == nil || got.TxID != nil {
		t.Errorf("behind another's: got %+v, want a cause and no txId", got)
	}
	if got := why(t, db, "3", operator).BlockedBy; got == nil || got.TxID == nil {
		t.Errorf("an operator: got %+v, want its txId", got)
	}
	run(t, db, `update managed_tx set held = true where request_id = '1'`)
	if got := why(t, db, "3", b).BlockedBy; got == nil || got.TxID == nil {
		t.Errorf("behind its own: got %+v, want its txId", got)
	}
}

// A position is exact up to MaxPosition. Behind 1,500 intents no more rows are read than that.
func TestPositionIsBounded(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	for first := range 3 {
		var intents []store.Intent
		for i := range 500 {
			intents = append(intents, intent(alice, string(rune('a'+first))+time.Duration(i).String()))
		}
		check.OK(t)(db.CreateAll(t.Context(), intents, 10_000))
	}
	for requestID, want := range map[string]struct {
		position int
		more     bool
	}{"a0s": {1, false}, "b499ns": {1000, false}, "c0s": {1000, true}, "c499ns": {1000, true}} {
		if w := why(t, db, requestID, operator); *w.Position != want.position || w.PositionMore != want.more {
			t.Errorf("%s: got %d, more %t; want %d, %t", requestID, *w.Position, w.PositionMore, want.position, want.more)
		}
	}
}

// The past of a sent transaction has its changes with their tokens, and its versions with their fees.
func TestPastOfATransaction(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "1")
	sendAll(t, db, alice)
	id := value[string](t, db, `select tx_id::text from managed_tx`)
	changes, err := db.TxHistory(t.Context(), id, -1, 1)
	if err != nil || len(changes) != 1 || changes[0].State != txmanager.Queued {
		t.Fatalf("first page: got %+v, %v; want QUEUED", changes, err)
	}
	changes, err = db.TxHistory(t.Context(), id, changes[0].Number(), 2)
	if err != nil || len(changes) != 1 || changes[0].State != txmanager.Submitted || changes[0].TxHash == nil || changes[0].FencingToken == nil {
		t.Errorf("last page: got %+v, %v; want SUBMITTED with hash and token", changes, err)
	}
	versions, err := db.TxVersions(t.Context(), id, 0, 10)
	if err != nil || len(versions) != 1 || versions[0].TxHash != *changes[0].TxHash || len(versions[0].Fees) == 0 {
		t.Errorf("versions: got %+v, %v; want the one that was sent", versions, err)
	}
	if later, err := db.TxVersions(t.Context(), id, 1, 10); err != nil || len(later) != 0 {
		t.Errorf("versions above 1: got %+v, %v; want none", later, err)
	}
	if _, err := db.TxVersions(t.Context(), "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", 0, 10); err == nil {
		t.Error("an unknown transaction: got no error")
	}
}

// Each queue has one head with its cause, and deferred intents are listed beside it.
func TestBlockedHeads(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	for _, s := range []txmanager.Submitter{alice, bob} {
		postAll(t, db, s, "1", "2", "3")
	}
	sendAll(t, db, bob)
	run(t, db, `update managed_tx set deferred_at = now(), blocked_since = now(), wait_cause = 'OWN_BOUNDS', waiting_since = now() - interval '1 hour' where submitter = $1 and request_id = '1'`, alice)
	heads := func() map[string]time.Duration {
		t.Helper()
		found := make(map[string]time.Duration)
		for _, h := range check.Value(db.BlockedHeads(t.Context()))(t) {
			found[string(h.Cause)+" "+string(h.Submitter)] = h.For
		}
		return found
	}
	found := heads()
	if full, ok := found["WINDOW_FULL "+string(bob)]; !ok || full > time.Minute || found["OWN_BOUNDS "+string(alice)] < time.Hour || len(found) != 2 {
		t.Errorf("got %v, want a full window and a deferred intent, behind which its caller's others wait", found)
	}
	run(t, db, `update managed_tx set deferred_at = null, blocked_since = null, wait_cause = 'BALANCE' where submitter = $1 and request_id = '1'`, alice)
	if found := heads(); found["BALANCE "+string(alice)] < time.Hour || len(found) != 2 {
		t.Errorf("got %v, want a head without money for an hour", found)
	}
	run(t, db, `update managed_tx set wait_cause = null, waiting_since = null, created_at = now() - interval '1 hour' where submitter = $1`, alice)
	if found := heads(); found["NEXT "+string(alice)] < time.Hour || len(found) != 2 {
		t.Errorf("got %v, want a head that waits for an hour", found)
	}
	run(t, db, `update managed_tx set created_at = now() - interval '1 hour' where submitter = $1 and queued`, bob)
	run(t, db, `update submitter set max_in_flight = 2 where submitter = $1`, bob)
	if found := heads(); found["NEXT "+string(bob)] > time.Minute || len(found) != 2 {
		t.Errorf("got %v, want a head that waits since the queue moved", found)
	}
	run(t, db, openIncident, alice)
	if found := heads(); found["PROTECT "+string(alice)] > time.Minute || len(found) != 2 {
		t.Errorf("got %v, want PROTECT since now", found)
	}
}
