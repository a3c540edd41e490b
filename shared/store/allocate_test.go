package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// An allocation that meets a cancel binds an unbroken run of nonces, moves the
// cursor by as many, and leaves the rest of the queue without a nonce.
func TestH05BulkAllocationBesideCancel(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		queued, cancelled int
		rollback          bool // the cancel does not happen after all
		withBytes         bool
		bound             int
	}{
		"in the middle":                {queued: 3, cancelled: 1, bound: 1},
		"in the middle, with bytes":    {queued: 3, cancelled: 1, withBytes: true, bound: 1},
		"the first":                    {queued: 3, cancelled: 0, bound: 0},
		"the last, with bytes":         {queued: 3, cancelled: 2, withBytes: true, bound: 2},
		"the only one":                 {queued: 1, cancelled: 0, bound: 0},
		"the only one, with bytes":     {queued: 1, cancelled: 0, withBytes: true, bound: 0},
		"a cancel that is rolled back": {queued: 3, cancelled: 1, rollback: true, withBytes: true, bound: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			db.Register(t, alice, 3)
			for i := range test.queued {
				post(t, db, alice, string(rune('a'+i)))
			}
			w := take(t, db, alice, "a/1")
			canceller := connect(t, db)
			canceller.do("begin")
			canceller.do(cancel, w.Queue[test.cancelled].ID)
			writing := start(func() (txmanager.CommitResult, error) {
				return db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, test.withBytes)})
			})
			awaitBlocked(t, db, "with want as")
			end, left := "commit", test.queued-1
			if test.rollback {
				end, left = "rollback", test.queued
			}
			canceller.do(end)
			if done := <-writing; done.err != nil || done.got.Allocated != test.bound {
				t.Fatalf("allocate: got %+v, %v; want %d allocated", done.got, done.err, test.bound)
			}
			checkRun(t, db, test.bound, test.withBytes)

			// The remaining intents get the nonces that follow.
			next, err := db.BeginIteration(t.Context(), w.Lease, true)
			if err != nil {
				t.Fatalf("go round again: %v", err)
			}
			write(t, db, txmanager.Commit{Lease: next.Lease, Allocations: allocations(next, test.withBytes)})
			checkRun(t, db, left, test.withBytes)
		})
	}
}

// checkRun checks that alice's nonces are 0 … bound-1 in the order of the queue, and that no
// other row holds one.
func checkRun(t *testing.T, db storetest.Bundle, bound int, withBytes bool) {
	t.Helper()
	rows, err := db.DB.Query(t.Context(), `select nonce from managed_tx where nonce is not null order by seq`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	want := []int{}
	for n := range bound {
		want = append(want, n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nonces in the order of the queue (-want +got):\n%s", diff)
	}
	if got := value[int](t, db, `select next_nonce from submitter_nonce_cursor`); got != bound {
		t.Errorf("next nonce: got %d, want %d", got, bound)
	}
	shown := value[string](t, db, `select in_flight_state || coalesce(' ' || in_flight_nonce, '') from submitter_nonce_cursor`)
	if want := map[bool]string{true: "IN_FLIGHT 0", false: "IDLE"}[bound > 0]; shown != want {
		t.Errorf("cursor shows: got %s, want %s", shown, want)
	}
	state, versions := "IN_FLIGHT", 0
	if withBytes {
		state, versions = "SUBMITTED", bound
	}
	if got := value[int](t, db, `select count(*) from managed_tx where nonce is not null and state = $1`, state); got != bound {
		t.Errorf("%s: got %d, want %d", state, got, bound)
	}
	if got := value[int](t, db, `select count(*) from tx_version`); got != versions {
		t.Errorf("stored versions: got %d, want %d", got, versions)
	}
	if got := value[int](t, db, `select count(*) from managed_tx where nonce is null and state not in ('QUEUED', 'FAILED')`); got != 0 {
		t.Errorf("rows without a nonce that are neither QUEUED nor cancelled: got %d, want 0", got)
	}
}

// A cursor that was changed by hand allocates nothing: the constraint refuses any nonce but
// the last bound + 1.
func TestAllocationAfterTheCursorWasMovedByHand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		bound  int
		cursor int
		want   string
	}{
		"ahead, nothing bound": {bound: 0, cursor: 5, want: "follows_the_last_nonce"},
		"ahead":                {bound: 2, cursor: 3, want: "follows_the_last_nonce"},
		"back":                 {bound: 2, cursor: 1, want: "one_tx_per_nonce"},
		"back to the start":    {bound: 2, cursor: 0, want: "one_tx_per_nonce"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			db.Register(t, alice, 10)
			for i := range test.bound {
				post(t, db, alice, string(rune('a'+i)))
			}
			w := take(t, db, alice, "a/1")
			write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
			post(t, db, alice, "next")
			run(t, db, `alter table submitter_nonce_cursor disable trigger guard_cursor_update`)
			run(t, db, `update submitter_nonce_cursor set in_flight_state = 'IDLE', in_flight_nonce = null, in_flight_tx_id = null, next_nonce = $1`, test.cursor)
			w = take(t, db, alice, "a/1")
			before := contents(t, db, written...)
			_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
			if got := violated(err); got != test.want {
				t.Errorf("allocate from %d: got refused by %s, want by %s", test.cursor, got, test.want)
			}
			if diff := cmp.Diff(before, contents(t, db, written...)); diff != "" {
				t.Errorf("the refused allocation wrote (-before +after):\n%s", diff)
			}
		})
	}
}

// Nothing is allocated while a PROTECT incident is open, even if the holder had loaded the
// state before.
func TestNoAllocationInProtect(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 3)
	post(t, db, alice, "one")
	w := take(t, db, alice, "a/1")
	run(t, db, openIncident, alice)
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	if done.Allocated != 0 {
		t.Errorf("allocated: got %d, want 0", done.Allocated)
	}
	got := value[string](t, db, `select c.in_flight_state || ' ' || c.next_nonce || ' ' || m.state from submitter_nonce_cursor c join managed_tx m using (submitter)`)
	if want := "PROTECT 0 QUEUED"; got != want {
		t.Errorf("cursor and row: got %s, want %s", got, want)
	}
}
