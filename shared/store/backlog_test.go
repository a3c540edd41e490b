package store_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The backlog counts all submitters, and the longest queue separately. A nonce is as old as
// its first signature.
func TestBacklog(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 4)
	db.Register(t, bob, 1)
	check := func(what string, want store.Backlog, least time.Duration) {
		t.Helper()
		got, err := db.Backlog(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got.OldestHeld < least || got.OldestHeld > least+time.Hour {
			t.Errorf("%s: oldest nonce held for %v, want %v or a little more", what, got.OldestHeld, least)
		}
		got.OldestHeld = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("nothing", store.Backlog{}, 0)
	for _, request := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		post(t, db, alice, request)
	}
	post(t, db, bob, "1")
	check("two queues", store.Backlog{Queued: 8, Fullest: 7}, 0)
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:4], LeaseEnd: txmanager.ReleaseUnlessRerun})
	run(t, db, `alter table tx_version disable trigger user`)
	run(t, db, `update tx_version set created_at = created_at - nonce * interval '1 day'`) // above the lowest: not asked
	run(t, db, `update tx_version set created_at = created_at - interval '2 h' where nonce = 0`)
	w = take(t, db, alice, "a/2")
	states := []func(*txmanager.Tx){
		func(x *txmanager.Tx) { x.State = txmanager.Stuck },
		func(x *txmanager.Tx) { x.State = txmanager.Stuck },
		func(x *txmanager.Tx) { x.State, x.Sub = txmanager.Tracking, txmanager.Pending },
	}
	var moves []txmanager.Transition
	for i, change := range states {
		x := w.Open[i]
		change(&x)
		moves = append(moves, txmanager.Transition{From: txmanager.Submitted, To: x})
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: moves, LeaseEnd: txmanager.ReleaseUnlessRerun})
	run(t, db, openIncident, bob)
	check("some sent", store.Backlog{Queued: 4, Fullest: 3, Stuck: 2, NoReceipt: 2, Protected: 1}, 2*time.Hour)
}

// The trace of an intent is stored with it at no further round trip, and is loaded with the
// submitter's state. A repeat in another trace changes nothing.
func TestTraceIsKept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	traced, origin := intent(alice, "traced"), bytes.Repeat([]byte{7}, 25)
	traced.Trace = origin
	if _, err := db.Create(t.Context(), traced, 100); err != nil {
		t.Fatal(err)
	}
	again := intent(alice, "traced")
	again.Trace = bytes.Repeat([]byte{8}, 25)
	if _, err := db.CreateAll(t.Context(), []store.Intent{again, intent(alice, "untraced")}, 100); err != nil {
		t.Fatal(err)
	}
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
	decided, err := db.RecordDecision(t.Context(), store.Decision{TxID: traced.TxID, By: operator, Action: txmanager.ActionPlaceholder, Reason: "r"})
	if err != nil || !decided.Recorded || !bytes.Equal(decided.Trace, origin) {
		t.Errorf("a decision: got %+v, %v; want it recorded, with the trace", decided, err)
	}
	if decided, err = db.RecordDecision(t.Context(), store.Decision{TxID: traced.TxID, By: operator, Action: txmanager.ActionPlaceholder, Reason: "r"}); err != nil || decided.Recorded {
		t.Errorf("the decision again: got recorded %v, %v; want it there already", decided.Recorded, err)
	}
}
