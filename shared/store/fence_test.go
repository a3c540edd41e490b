package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// everything is a write that uses each part of a fenced write: w has two or
// more queued, of which the first is moved and the second allocated.
func everything(w txmanager.SubmitterState) txmanager.Commit {
	rest := w
	rest.Queue = w.Queue[1:2]
	return txmanager.Commit{
		Lease: w.Lease, Transitions: []txmanager.Transition{remark(w.Queue[0], "waits")}, Allocations: allocations(rest, true),
		Cursor:   txmanager.CursorChange{FinalHead: 7, Suspect: &txmanager.Violation{Description: "test"}},
		LeaseEnd: txmanager.ReleaseUnlessRerun,
	}
}

// Without the lease a write returns ErrFenced and writes nothing. With it, a row that another
// session moved lowers the count and is no error.
func TestH19FencedIsNotAMovedRow(t *testing.T) {
	t.Parallel()
	const ofAlice = `update submitter_lease set `
	lost := map[string]string{
		"taken over":             ofAlice + `owner_node = 'b/1', fencing_token = fencing_token + 1`,
		"taken by another owner": ofAlice + `owner_node = 'b/1'`,
		"under a newer token":    ofAlice + `fencing_token = fencing_token + 1`,
		"released":               ofAlice + `owner_node = ''`,
		"run out":                ofAlice + `expires_at = clock_timestamp()`,
		"never there at all":     `truncate submitter_lease`,
	}
	for name, how := range lost {
		t.Run("fenced: "+name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			w := twoQueued(t, db)
			run(t, db, how)
			tables := append([]string{"submitter_lease"}, written...)
			before := contents(t, db, tables...)
			for kind, wr := range map[string]txmanager.Commit{
				"everything": everything(w),
				"release":    {Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun},
				"abandon":    {Lease: w.Lease, LeaseEnd: txmanager.ReleaseAnyway},
			} {
				if done, err := db.Commit(t.Context(), wr); !errors.Is(err, lease.ErrFenced) || done != (txmanager.CommitResult{}) {
					t.Errorf("write %s: got %+v, %v; want nothing and %v", kind, done, err, lease.ErrFenced)
				}
			}
			if _, err := db.Renew(t.Context(), w.Lease); !errors.Is(err, lease.ErrFenced) {
				t.Errorf("renew: got %v, want %v", err, lease.ErrFenced)
			}
			if _, err := db.BeginIteration(t.Context(), w.Lease, true); !errors.Is(err, lease.ErrFenced) {
				t.Errorf("go round again: got %v, want %v", err, lease.ErrFenced)
			}
			if diff := cmp.Diff(before, contents(t, db, tables...)); diff != "" {
				t.Errorf("a fenced write wrote (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("moved before", movedBefore)
	t.Run("moved meanwhile", movedMeanwhile)
}

// twoQueued is the work of a/1, who has just taken the lease of alice.
func twoQueued(t *testing.T, db storetest.Bundle) txmanager.SubmitterState {
	t.Helper()
	db.Register(t, alice, 2)
	post(t, db, alice, "one")
	post(t, db, alice, "two")
	return take(t, db, alice, "a/1")
}

func movedBefore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	run(t, db, cancel, w.Queue[0].ID)
	moves := []txmanager.Transition{remark(w.Queue[0], "waits"), remark(w.Queue[1], "waits")}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: moves})
	if done.Transitioned != 1 {
		t.Errorf("moved: got %d, want 1 of 2", done.Transitioned)
	}
	done = write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1]})
	if done.Allocated != 0 {
		t.Errorf("allocated: got %d, want 0", done.Allocated)
	}
	checkCancelled(t, db, w)
}

func movedMeanwhile(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	other := connect(t, db)
	other.do("begin")
	other.do(cancel, w.Queue[0].ID)
	moves := []txmanager.Transition{remark(w.Queue[0], "waits"), remark(w.Queue[1], "waits")}
	writing := start(func() (txmanager.CommitResult, error) {
		return db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Transitions: moves})
	})
	awaitBlocked(t, db, "update managed_tx m")
	other.do("commit")
	if done := <-writing; done.err != nil || done.got.Transitioned != 1 {
		t.Errorf("move: got %+v, %v; want 1 of 2 moved", done.got, done.err)
	}
	checkCancelled(t, db, w)
}

// checkCancelled checks that the first stayed cancelled, the second was moved, and the lease
// is still held under the same token.
func checkCancelled(t *testing.T, db storetest.Bundle, w txmanager.SubmitterState) {
	t.Helper()
	const row = `select state || coalesce(' ' || last_error, '') from managed_tx where tx_id = $1`
	if got, want := value[string](t, db, row, w.Queue[0].ID), "FAILED"; got != want {
		t.Errorf("the cancelled: got %s, want %s", got, want)
	}
	if got, want := value[string](t, db, row, w.Queue[1].ID), "QUEUED waits"; got != want {
		t.Errorf("the other: got %s, want %s", got, want)
	}
	if _, err := db.Renew(t.Context(), w.Lease); err != nil {
		t.Errorf("renew: got %v, want the lease still held", err)
	}
}

// A fenced write that meets a takeover comes wholly before it or not at all.
func TestFencedWriteMeetsTakeover(t *testing.T) {
	t.Parallel()
	t.Run("a takeover is under way", takeoverUnderWay)
	t.Run("a write is under way", writeUnderWay)
}

func takeoverUnderWay(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			w := twoQueued(t, db)
			before := contents(t, db, written...)
			taker := connect(t, db)
			taker.do("begin")
			taker.do(`update submitter_lease set owner_node = 'b/1', fencing_token = fencing_token + 1 where submitter = $1`, alice)
			writing := start(func() (txmanager.CommitResult, error) { return db.Commit(t.Context(), everything(w)) })
			awaitBlocked(t, db, "require_lease")
			taker.do(end)
			done := <-writing
			after := contents(t, db, written...)
			if end == "rollback" {
				if done.err != nil || done.got.Transitioned != 1 || !done.got.Released || slices.Equal(before, after) {
					t.Errorf("write after a takeover that did not happen: got %+v, %v; want it done", done.got, done.err)
				}
				return
			}
			if !errors.Is(done.err, lease.ErrFenced) {
				t.Errorf("write: got %+v, %v; want %v", done.got, done.err, lease.ErrFenced)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the fenced write wrote (-before +after):\n%s", diff)
			}
		})
	}
}

func writeUnderWay(t *testing.T) {
	t.Parallel()
	db := storetest.NewWith(t, lease.Rules{Duration: 500 * time.Millisecond, ClockSkewAllowance: time.Millisecond})
	w := twoQueued(t, db)
	writer := connect(t, db)
	writer.do("begin")
	writer.do(`select require_lease($1, $2, $3)`, w.Lease.Submitter, w.Lease.Owner, w.Lease.Token)
	writer.do(`update managed_tx set last_error = 'written before the takeover' where tx_id = $1`, w.Queue[0].ID)
	await(t, "the lease has run out", func() bool {
		return value[bool](t, db, `select expires_at + interval '1 ms' < clock_timestamp() from submitter_lease`)
	})
	taking := start(func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	awaitBlocked(t, db, "insert into submitter_lease")
	writer.do("commit")
	taken := <-taking
	if taken.err != nil || !taken.got.Held || taken.got.Token != 2 {
		t.Fatalf("takeover: got %+v, %v; want held under token 2", taken.got, taken.err)
	}
	if got, want := taken.got.State.Queue[0].LastError, "written before the takeover"; got != want {
		t.Errorf("what the taker loaded: got %q, want %q", got, want)
	}
}
