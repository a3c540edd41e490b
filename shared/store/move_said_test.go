package store_test

import (
	"testing"

	moves "github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Where another operator expects a move again, and it gets another mark by that, both are on
// record, each once. While a move is expected no copy is accepted, so that it can be called
// off only before that.
func TestEachOperatorWhoExpectsAMoveIsOnRecord(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	expect := func(by, reason string) moves.Mark {
		t.Helper()
		m, _, err := db.Expect(t.Context(), moves.Observed{}, moves.OperatorReason{By: by, Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	expect("ann", "postgres 16")
	expect("ann", "postgres 16")
	expect("bob", "ann's run broke off")
	last := expect("bob", "ann's run broke off")
	said := `select by || ' | ' || reason from database_move where ended_at is null`
	want := "ann, bob | postgres 16; bob: ann's run broke off"
	if got := value[string](t, db, said); got != want {
		t.Errorf("who and why: got %q, want %q", got, want)
	}
	if _, done, err := db.Expect(t.Context(), moves.Observed{Mark: last}, moves.OperatorReason{By: "cid", Reason: "once more"}); err != nil || !done || value[string](t, db, said) != want {
		t.Errorf("what changed nothing: got done %v, %v, and %q on record; want %q", done, err, value[string](t, db, said), want)
	}
	distrusted(t, db)
	if err := db.AcceptDatabase(t.Context(), "ann", "restored"); !store.IsMoving(err) {
		t.Errorf("an acceptance meanwhile: got %v, want it refused for the move", err)
	}
}
