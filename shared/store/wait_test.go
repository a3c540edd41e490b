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
