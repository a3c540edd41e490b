package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H8: a caller of a restored database must get no definite answer from a cancel,
// and no "not found", before a named person has accepted the database.
func TestH08CancelAndQueryInARestoredDatabase(t *testing.T) {
	t.Parallel()
	db, cluster := ownCluster(t)
	db.Register(t, alice, 1)
	held, queued, ran := post(t, db, alice, "held"), post(t, db, alice, "queued"), post(t, db, alice, "ran")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1], LeaseEnd: txmanager.ReleaseUnlessRerun})
	recoverElsewhere(t, db, cluster)
	await(t, "connections from before the restart are gone", func() bool { return db.Ping(t.Context()) == nil })

	unknown := uuid.NewString()
	for _, id := range []string{held.TxID, queued.TxID} {
		before := contents(t, db, "managed_tx", "tx_decision")
		if d, err := decide(t, db, id, shop, txmanager.ActionCancel); !errors.Is(err, store.ErrInDoubt) {
			t.Errorf("cancel by a caller: got %+v, %v; want in doubt", d, err)
		}
		if diff := cmp.Diff(before, contents(t, db, "managed_tx", "tx_decision")); diff != "" {
			t.Errorf("a cancel in doubt wrote (-before +after):\n%s", diff)
		}
	}
	if _, err := db.Tx(t.Context(), unknown, shop); !errors.Is(err, store.ErrInDoubt) {
		t.Errorf("a txId that may be lost: got %v, want in doubt", err)
	}
	if r, err := db.Tx(t.Context(), queued.TxID, shop); err != nil || r.State != txmanager.Queued {
		t.Errorf("a txId that is stored: got %+v, %v; want it as it is stored", r, err)
	}
	if d, err := decide(t, db, ran.TxID, operator, txmanager.ActionCancel); err != nil || d.SubState != txmanager.Cancelled {
		t.Errorf("cancel by an operator, who reconciles: got %+v, %v; want it cancelled", d, err)
	}
	if d, err := decide(t, db, ran.TxID, shop, txmanager.ActionCancel); !errors.Is(err, store.ErrInDoubt) {
		t.Errorf("cancel by a caller of what an operator cancelled because it ran: got %+v, %v; want in doubt", d, err)
	}

	if err := db.AcceptDatabase(t.Context(), "operator", "reconciled"); err != nil {
		t.Fatal(err)
	}
	if d, err := decide(t, db, queued.TxID, shop, txmanager.ActionCancel); err != nil || d.State != txmanager.Queued {
		t.Errorf("cancel in the queue, accepted and in PROTECT: got %+v, %v; want it to wait until the release", d, err)
	}
	if d, err := decide(t, db, held.TxID, shop, txmanager.ActionCancel); err != nil || d.RequestedAction != txmanager.ActionCancel {
		t.Errorf("cancel of what has a nonce, once accepted: got %+v, %v; want the order", d, err)
	}
	if _, err := db.Tx(t.Context(), unknown, shop); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a txId that nobody has, once accepted: got %v, want not found", err)
	}
	if _, err := db.TxByRequest(t.Context(), alice, "lost", shop); !errors.Is(err, store.ErrInDoubt) {
		t.Errorf("a request that may be lost, accepted and in PROTECT: got %v, want in doubt until the release", err)
	}
	run(t, db, releaseAll)
	if d, err := decide(t, db, queued.TxID, shop, txmanager.ActionCancel); err != nil || d.SubState != txmanager.Cancelled {
		t.Errorf("cancel in the queue, once released: got %+v, %v; want it cancelled", d, err)
	}
}
