package store_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A create that sees the lease held asks for no advance, and the release finds
// its intent. One whose lease has run out may be dead: then an advance is due, and
// so it is for a create that is repeated.
func TestCreateUnderALeaseIsSeenByItsRelease(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	w := take(t, db, alice, "a/1")
	if got := post(t, db, alice, "held"); !got.New || got.Queued {
		t.Errorf("under a lease: got %+v, want it new, and no advance due", got)
	}
	if got := post(t, db, alice, "held"); got.New || !got.Queued {
		t.Errorf("once more: got %+v, want it known, and an advance due", got)
	}
	if done := write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}); !done.Released || done.Queued != 1 || done.Token != w.Lease.Token {
		t.Errorf("release: got %+v, want released under %d, and somebody queued", done, w.Lease.Token)
	}
	take(t, db, alice, "a/2")
	run(t, db, `update submitter_lease set expires_at = clock_timestamp() - interval '1 second' where submitter = $1`, alice)
	if got := post(t, db, alice, "run out"); !got.New || !got.Queued {
		t.Errorf("under a lease that has run out: got %+v, want it new, and an advance due", got)
	}
}

// A create that sees the window full enqueues no advance, and the invocation that frees the
// window finds its intent.
func TestCreateBehindAFullWindowIsSeenByWhoFreesIt(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	post(t, db, alice, "first")
	w := take(t, db, alice, "a/1")
	if done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun}); !done.Released || done.Queued != 0 {
		t.Fatalf("release of an empty queue: got %+v, want released, and nobody queued", done)
	}
	if got := post(t, db, alice, "second"); !got.New || got.Queued {
		t.Errorf("behind a full window: got %+v, want it new, and no advance due", got)
	}
	w = take(t, db, alice, "a/2")
	from, to := w.Open[0].State, w.Open[0]
	to.State, to.Sub = txmanager.Stuck, ""
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: from, To: to}}, LeaseEnd: txmanager.ReleaseUnlessRerun})
	if !done.Released || done.Queued != 1 {
		t.Errorf("release: got %+v, want released, and somebody queued", done)
	}
}

// A create that commits after the release's queue check sees the lease free.
func TestCreateThatTheReleaseMissesIsDue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	l := take(t, db, alice, "a/1").Lease
	run(t, db, `create function hold_up() returns trigger language plpgsql as
		$$ begin perform pg_advisory_xact_lock(1); return null; end $$`)
	run(t, db, `create constraint trigger hold_up after insert on managed_tx
		deferrable initially deferred for each row execute function hold_up()`)
	other := connect(t, db)
	other.do(`select pg_advisory_lock(1)`)
	creating := start(func() (store.StoredIntent, error) { return db.Create(t.Context(), intent(alice, "r"), 100) })
	awaitBlocked(t, db, "commit")
	if done := write(t, db, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun}); !done.Released || done.Queued != 0 {
		t.Errorf("release before the commit: got %+v, want released, and nobody queued", done)
	}
	other.do(`select pg_advisory_unlock(1)`)
	if got := <-creating; got.err != nil || !got.got.Queued || got.got.Token != l.Token {
		t.Errorf("create: got %+v, %v; want an advance due under %d", got.got, got.err, l.Token)
	}
}

// A create that commits before the release does still sees the lease held, and asks
// for no advance. The release reads the queue behind its own commit, so it finds the
// intent. A reading before that commit would miss it, and the intent would wait for the sweep.
func TestReleaseReadsTheQueueBehindItsCommit(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	l := take(t, db, alice, "a/1").Lease
	run(t, db, `create function hold_up() returns trigger language plpgsql as
		$$ begin perform pg_advisory_xact_lock(1); return null; end $$`)
	run(t, db, `create constraint trigger hold_up after update on submitter_lease
		deferrable initially deferred for each row execute function hold_up()`)
	other := connect(t, db)
	other.do(`select pg_advisory_lock(1)`)
	releasing := start(func() (txmanager.CommitResult, error) {
		return db.Commit(t.Context(), txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
	})
	awaitBlocked(t, db, "commit")
	if got := post(t, db, alice, "r"); !got.New || got.Queued {
		t.Errorf("create before the release's commit: got %+v, want it new, and no advance due", got)
	}
	other.do(`select pg_advisory_unlock(1)`)
	if done := <-releasing; done.err != nil || !done.got.Released || done.got.Queued != 1 {
		t.Errorf("release: got %+v, %v; want released, and one queued", done.got, done.err)
	}
}

// The release reports a submitter that was resumed since it was loaded, because intents queued
// since enqueued no task.
func TestReleaseTellsOfASuspensionThatEnded(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
	run(t, db, suspended, alice)
	w := take(t, db, alice, "a/1")
	run(t, db, `update submitter set status = 'ACTIVE' where submitter = $1`, alice)
	if got := post(t, db, alice, "r"); got.Queued {
		t.Errorf("under a lease: got %+v, want no advance due", got)
	}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	if !w.Suspended || done.Suspended || done.Queued != 1 {
		t.Errorf("loaded as suspended %t, released as %+v; want it suspended before, and not any more", w.Suspended, done)
	}
}
