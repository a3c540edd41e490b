package store_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A final state never changes, whichever role writes.
func TestFinalNeverChanges(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	post(t, db, alice, "r")
	run(t, db, cancelled, alice)
	for _, statement := range []string{
		`update managed_tx set state = 'QUEUED', sub_state = null`,
		`update managed_tx set sub_state = 'REJECTED'`,
		`update managed_tx set last_error = 'another reason'`,
	} {
		if _, err := db.DB.Exec(t.Context(), statement); violated(err) != "final_never_changes" {
			t.Errorf("%s: got %v, want it refused by final_never_changes", statement, err)
		}
	}
}

// Every change of a transaction is kept with its token. A write that only plans the next check
// is none.
func TestHistoryKeepsEveryChange(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	post(t, db, alice, "r")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	w, err := db.BeginIteration(t.Context(), w.Lease, true)
	if err != nil {
		t.Fatal(err)
	}
	tracked := w.Open[0]
	tracked.State, tracked.Sub = txmanager.Tracking, txmanager.Pending
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: tracked}}})
	tracked.NextCheckAt = &w.Now
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Tracking, To: tracked}}})
	const changes = `
select string_agg(concat_ws(' ', coalesce(from_state, '-'), state, sub_state, nonce, attempts, fencing_token), '; ' order by id)
  from tx_history`
	want := "- QUEUED 0; QUEUED SUBMITTED 0 1 1; SUBMITTED TRACKING PENDING 0 1 2"
	if diff := cmp.Diff(strings.Split(want, "; "), strings.Split(value[string](t, db, changes), "; ")); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// A request that is posted again leaves one line of history: the repetition stores nothing.
func TestHistoryOfWhatIsStoredAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	for range 3 {
		post(t, db, alice, "r")
	}
	if n := value[int](t, db, `select count(*) from tx_history`); n != 1 {
		t.Errorf("history after one request posted three times: got %d lines, want 1", n)
	}
}
