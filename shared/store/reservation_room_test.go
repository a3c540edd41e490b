package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A recyclable nonce is room in a full window. A create then enqueues an advance, and the
// sweep finds a queue without one.
func TestGivenBackIsRoom(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	id := reserve(t, db, "x", 0)[0]
	if a := post(t, db, alice, "window full"); a.Queued {
		t.Errorf("create while the window is full: got a look asked for, want none: whoever frees it looks")
	}
	says(t, db, backMark(id, "x"))
	if a := post(t, db, alice, "given back"); !a.Queued {
		t.Errorf("create while a nonce was given back: got no look asked for, want one")
	}
	run(t, db, `update managed_tx set created_at = clock_timestamp() - interval '1 minute' where state = 'QUEUED'`)
	overdue := func() int {
		found, _, err := db.Overdue(t.Context(), 5*time.Second, 10, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	run(t, db, `update managed_tx set next_check_at = lock_until where tx_id = $1`, id)
	if got := overdue(); got != 1 {
		t.Errorf("overdue: got %d submitters, want 1", got)
	}
}

// The sweep finds an unmarked reservation once its time is over.
func TestSweepFindsReservationsWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	all := bookings("x", 10*time.Millisecond, 0)
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: all, LeaseEnd: txmanager.ReleaseAnyway})
	await(t, "the sweep finds it", func() bool {
		found, _, err := db.Overdue(t.Context(), 100*time.Millisecond, 10, time.Time{})
		return err == nil && len(found) == 1
	})
}

// Nothing that its owner signed is replaced by a higher fee: what it does is not known.
func TestNoReplacementOfAReservation(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	id := reserve(t, db, "x", 0)[0]
	says(t, db, usedMark(id, "x", 0))
	if d, err := db.RecordDecision(t.Context(), store.Decision{TxID: id, By: operator, Action: txmanager.ActionReplace, Reason: "r"}); !errors.Is(err, store.ErrTooLate) {
		t.Errorf("replace: got %+v, %v; want it too late", d, err)
	}
	if d, err := db.RecordDecision(t.Context(), store.Decision{TxID: id, By: operator, Action: txmanager.ActionPlaceholder, Reason: "r"}); err != nil || d.RequestedAction != txmanager.ActionPlaceholder {
		t.Errorf("placeholder: got %+v, %v; want the order", d, err)
	}
}

// Reservations are read by request and by txId.
func TestReservationsOnRecord(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 4)
	all := bookings("x", time.Hour, 0, 1, 2)
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: all, LeaseEnd: txmanager.ReleaseAnyway})
	says(t, db, usedMark(all[1].Tx.ID, "x", 1))
	says(t, db, backMark(all[2].Tx.ID, "x"))
	post(t, db, alice, "intent")
	got, err := db.Reservations(t.Context(), alice, []string{all[2].Tx.RequestID, "intent", "nobody's", all[0].Tx.RequestID, all[1].Tx.RequestID})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, r := range got {
		told = append(told, fmt.Sprint(r.State, " ", r.Owner, " ", r.Over, " ", r.FirstHash != ""))
	}
	if diff := cmp.Diff([]string{"RECYCLABLE x true false", "  true false", "RESERVED x false false", "USED x true true"}, told); diff != "" {
		t.Errorf("on record (-want +got):\n%s", diff)
	}
	if r, err := db.Reservation(t.Context(), all[1].Tx.ID); err != nil || *r.Nonce != 1 || r.FirstHash != storetest.Signed(alice, 1, all[1].Tx.ID).Hash.String() {
		t.Errorf("by txId: got %+v, %v; want nonce 1 and the owner's bytes", r, err)
	}
	if r, err := db.Reservation(t.Context(), got[1].TxID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an intent's txId: got %+v, %v; want not found", r, err)
	}
}
