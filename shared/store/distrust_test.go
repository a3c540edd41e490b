package store_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// H8: an operator distrusts a copy that kept its server's identity. It accepts and serves
// nothing until an operator has accepted it, and each submitter is in PROTECT.
func TestH08ADistrustedDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	post(t, db, alice, "before")
	for range 2 {
		if err := migrations.Distrust(t.Context(), db.URL, "a clone of the 21st"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Create(t.Context(), intent(alice, "after"), 100); !errors.Is(err, store.ErrProtected) {
		t.Errorf("create: got %v, want %v", err, store.ErrProtected)
	}
	if _, err := db.Tx(t.Context(), "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", shop); !errors.Is(err, store.ErrInDoubt) {
		t.Errorf("what may be lost: got %v, want %v", err, store.ErrInDoubt)
	}
	if err := db.AcceptDatabase(t.Context(), "operator", "reconciled"); err != nil {
		t.Fatal(err)
	}
	if w := take(t, db, alice, "a/1"); !w.Protected {
		t.Errorf("accepted: got %+v, want it in PROTECT until the release", w)
	}
}
