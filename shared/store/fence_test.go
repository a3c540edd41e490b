package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
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
			db.Run(t, how)
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
			check.Err(t, "renew", lease.ErrFenced)(db.Renew(t.Context(), w.Lease))
			check.Err(t, "go round again", lease.ErrFenced)(db.BeginIteration(t.Context(), w.Lease, true))
			check.Same(t, "a fenced write wrote", contents(t, db, tables...), before)
		})
	}
	t.Run("moved before", movedBefore)
	t.Run("moved meanwhile", movedMeanwhile)
}

// twoQueued is the work of a/1, who has just taken the lease of alice.
func twoQueued(t *testing.T, db storetest.Bundle) txmanager.SubmitterState {
	t.Helper()
	db.Register(t, alice, 2)
	postAll(t, db, alice, "one", "two")
	return take(t, db, alice, "a/1")
}

func movedBefore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	db.Run(t, cancel, w.Queue[0].ID)
	moves := []txmanager.Transition{remark(w.Queue[0], "waits"), remark(w.Queue[1], "waits")}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: moves})
	check.Equal(t, "moved", done.Transitioned, 1)
	done = write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1]})
	check.Equal(t, "allocated", done.Allocated, 0)
	checkCancelled(t, db, w)
}

func movedMeanwhile(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	other := holding(t, db, cancel, w.Queue[0].ID)
	moves := []txmanager.Transition{remark(w.Queue[0], "waits"), remark(w.Queue[1], "waits")}
	writing := storetest.Blocked(t, db, "update managed_tx m", func() (txmanager.CommitResult, error) {
		return db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Transitions: moves})
	})
	other.do("commit")
	if done := <-writing; done.Err != nil || done.Got.Transitioned != 1 {
		t.Errorf("move: got %+v, %v; want 1 of 2 moved", done.Got, done.Err)
	}
	checkCancelled(t, db, w)
}

// checkCancelled checks that the first stayed cancelled, the second was moved, and the lease
// is still held under the same token.
func checkCancelled(t *testing.T, db storetest.Bundle, w txmanager.SubmitterState) {
	t.Helper()
	const row = `select state || coalesce(' ' || last_error, '') from managed_tx where tx_id = $1`
	check.Equal(t, "the cancelled", value[string](t, db, row, w.Queue[0].ID), "FAILED")
	check.Equal(t, "the other", value[string](t, db, row, w.Queue[1].ID), "QUEUED waits")
	check.Err(t, "renew", nil)(db.Renew(t.Context(), w.Lease))
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
			taker := holding(t, db, `update submitter_lease set owner_node = 'b/1', fencing_token = fencing_token + 1 where submitter = $1`, alice)
			writing := storetest.Blocked(t, db, "require_lease", func() (txmanager.CommitResult, error) { return db.Commit(t.Context(), everything(w)) })
			taker.do(end)
			done := <-writing
			after := contents(t, db, written...)
			if end == "rollback" {
				if done.Err != nil || done.Got.Transitioned != 1 || !done.Got.Released || slices.Equal(before, after) {
					t.Errorf("write after a takeover that did not happen: got %+v, %v; want it done", done.Got, done.Err)
				}
				return
			}
			if !errors.Is(done.Err, lease.ErrFenced) {
				t.Errorf("write: got %+v, %v; want %v", done.Got, done.Err, lease.ErrFenced)
			}
			check.Same(t, "the fenced write wrote", after, before)
		})
	}
}

func writeUnderWay(t *testing.T) {
	t.Parallel()
	db := storetest.NewWith(t, lease.Rules{Duration: 500 * time.Millisecond, ClockSkewAllowance: time.Millisecond})
	w := twoQueued(t, db)
	writer := holding(t, db, `select require_lease($1, $2, $3)`, w.Lease.Submitter, w.Lease.Owner, w.Lease.Token)
	writer.do(`update managed_tx set last_error = 'written before the takeover' where tx_id = $1`, w.Queue[0].ID)
	storetest.Await(t, "the lease has run out", func() bool {
		return value[bool](t, db, `select expires_at + interval '1 ms' < clock_timestamp() from submitter_lease`)
	})
	taking := storetest.Blocked(t, db, "insert into submitter_lease", func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	writer.do("commit")
	taken := <-taking
	wantHeld(t, "takeover", taken, 2)
	check.Equal(t, "what the taker loaded", taken.Got.State.Queue[0].LastError, "written before the takeover")
}
