package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A create and an iteration never miss each other: either the load sees the intent, or the
// create reads the token of a later iteration.
func TestH22SnapshotsInOrder(t *testing.T) {
	t.Parallel()
	t.Run("a create while the take waits", createWhileTakeWaits)
	t.Run("the token of a create is read after its commit", tokenAfterCommit)
	t.Run("the token of a look is committed before it loads", tokenBeforeLoad)
}

// looks are the calls that load a state, where the lease may be held.
var looks = map[string]func(context.Context, storetest.Bundle, lease.Lease) (txmanager.SubmitterState, error){
	"take": func(ctx context.Context, db storetest.Bundle, _ lease.Lease) (txmanager.SubmitterState, error) {
		taken, err := db.Acquire(ctx, alice, "b/1", true)
		return taken.State, err
	},
	"go round again": func(ctx context.Context, db storetest.Bundle, l lease.Lease) (txmanager.SubmitterState, error) {
		return db.BeginIteration(ctx, l, true)
	},
}

// createWhileTakeWaits (a): the load is a later statement than the lock.
func createWhileTakeWaits(t *testing.T) {
	t.Parallel()
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 10, alice)
			l := take(t, db, alice, "a/1").Lease
			if name == "take" {
				write(t, db, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
			}
			other := db.Holding(t, `select from submitter_lease where submitter = $1 for update`, alice)
			looking := storetest.Blocked(t, db, "submitter_lease", func() (txmanager.SubmitterState, error) { return look(t.Context(), db, l) })
			created := post(t, db, alice, "meanwhile") // and it did not wait for the lease
			other.Do("commit")
			got := <-looking
			if got.Err != nil || !hasQueued(got.Got, created.TxID) {
				t.Errorf("look: got queue %v, %v; want %s in it", got.Got.Queue, got.Err, created.TxID)
			}
			if got.Got.Lease.Token <= created.Token {
				t.Errorf("token of the look: got %d, want above the create's %d", got.Got.Lease.Token, created.Token)
			}
		})
	}
}

func hasQueued(w txmanager.SubmitterState, id string) bool {
	return slices.ContainsFunc(w.Queue, func(q txmanager.Tx) bool { return q.ID == id })
}

// tokenAfterCommit (b): a deferred trigger delays the commit of a create. Meanwhile there is
// an iteration, which does not see it.
func tokenAfterCommit(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	l := take(t, db, alice, "a/1").Lease
	goOn := holdCommits(t, db, "insert on managed_tx")
	creating := storetest.Blocked(t, db, "commit", func() (store.StoredIntent, error) { return db.Create(t.Context(), intent(alice, "r"), 100) })
	look, err := db.BeginIteration(t.Context(), l, true)
	if err != nil || len(look.Queue) != 0 || look.Lease.Token != 2 {
		t.Fatalf("look before the commit: got %d queued under %d, %v; want none under 2", len(look.Queue), look.Lease.Token, err)
	}
	goOn()
	if got := <-creating; got.Err != nil || got.Got.Token != 2 || !got.Got.New {
		t.Errorf("create: got %+v, %v; want it new, with the token 2 of the look that missed it", got.Got, got.Err)
	}
}

// tokenBeforeLoad: while an iteration still loads, others read its token.
func tokenBeforeLoad(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"take": 1, "go round again": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 10, alice, bob)
			take(t, db, bob, "a/1") // prepares the statements, for which the table must not be locked
			var l lease.Lease
			if name != "take" {
				l = take(t, db, alice, "a/1").Lease
			}
			other := db.Holding(t, `lock table tx_version in access exclusive mode`)
			looking := storetest.Blocked(t, db, "m.request_id", func() (txmanager.SubmitterState, error) { return looks[name](t.Context(), db, l) })
			check.Equal(t, "token that others read during the load", value[int64](t, db, `select coalesce(max(fencing_token), 0) from submitter_lease where submitter = $1`, alice), want)
			created := post(t, db, alice, "meanwhile")
			check.Equal(t, "token of a create during the load", created.Token, want)
			other.Do("commit")
			if got := <-looking; got.Err != nil || got.Got.Lease.Token != want {
				t.Errorf("look: got token %d, %v; want %d", got.Got.Lease.Token, got.Err, want)
			}
		})
	}
}

// Each iteration has a separate token: a create that commits after it reads another task name
// than one before.
func TestH23EachIterationHasItsOwnToken(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	before := post(t, db, alice, "before the first tenure")
	w := take(t, db, alice, "a/1")
	given := []int64{before.Token, w.Lease.Token}
	for _, request := range []string{"C2", "C3"} {
		c := post(t, db, alice, request)
		check.Equal(t, request, c.Token, w.Lease.Token)
		// Its task meets the holder and is burnt; the mark stops the release.
		check.Equal(t, "token of the holder that the task of "+request+" meets", meet(t, db, "b/1").Token, c.Token)
		marked := write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
		check.Equal(t, "released with the mark of "+request+" set", marked.Released, false)
		next, err := db.BeginIteration(t.Context(), w.Lease, true)
		if err != nil || !hasQueued(next, c.TxID) {
			t.Fatalf("next look: got %d queued, %v; want %s among them", len(next.Queue), err, request)
		}
		w = next
		given = append(given, w.Lease.Token)
	}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "last release", done, txmanager.CommitResult{Released: true, Queued: 3, Token: w.Lease.Token})
	given = append(given, take(t, db, alice, "c/1").Lease.Token, take(t, db, alice, "c/1").Lease.Token)
	check.Same(t, "tokens of the looks", given, []int64{0, 1, 2, 3, 4, 5})
}

// A create that sees the lease held asks for no advance, and the release finds
// its intent. One whose lease has run out may be dead: then an advance is due, and
// so it is for a create that is repeated.
func TestCreateUnderALeaseIsSeenByItsRelease(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	w := take(t, db, alice, "a/1")
	if got := post(t, db, alice, "held"); !got.New || got.Queued {
		t.Errorf("under a lease: got %+v, want it new, and no advance due", got)
	}
	if got := post(t, db, alice, "held"); got.New || !got.Queued {
		t.Errorf("once more: got %+v, want it known, and an advance due", got)
	}
	released := write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "release", released, txmanager.CommitResult{Released: true, Queued: 1, Token: w.Lease.Token})
	take(t, db, alice, "a/2")
	db.Run(t, `update submitter_lease set expires_at = clock_timestamp() - interval '1 second' where submitter = $1`, alice)
	if got := post(t, db, alice, "run out"); !got.New || !got.Queued {
		t.Errorf("under a lease that has run out: got %+v, want it new, and an advance due", got)
	}
}

// A create that sees the window full enqueues no advance, and the invocation that frees the
// window finds its intent.
func TestCreateBehindAFullWindowIsSeenByWhoFreesIt(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "first")
	w := take(t, db, alice, "a/1")
	sent := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "release of an empty queue", sent, txmanager.CommitResult{Allocated: 1, Released: true, Token: 1})
	if got := post(t, db, alice, "second"); !got.New || got.Queued {
		t.Errorf("behind a full window: got %+v, want it new, and no advance due", got)
	}
	w = take(t, db, alice, "a/2")
	from, to := w.Open[0].State, w.Open[0]
	to.State, to.Sub = txmanager.Stuck, ""
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: from, To: to}}, LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "release", done, txmanager.CommitResult{Transitioned: 1, Released: true, Queued: 1, Token: 2})
}

// A create that commits after the release's queue check sees the lease free.
func TestCreateThatTheReleaseMissesIsDue(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	l := take(t, db, alice, "a/1").Lease
	goOn := holdCommits(t, db, "insert on managed_tx")
	creating := storetest.Blocked(t, db, "commit", func() (store.StoredIntent, error) { return db.Create(t.Context(), intent(alice, "r"), 100) })
	released := write(t, db, txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "release before the commit", released, txmanager.CommitResult{Released: true, Token: l.Token})
	goOn()
	if got := <-creating; got.Err != nil || !got.Got.Queued || got.Got.Token != l.Token {
		t.Errorf("create: got %+v, %v; want an advance due under %d", got.Got, got.Err, l.Token)
	}
}

// A create that commits before the release does still sees the lease held, and asks
// for no advance. The release reads the queue behind its own commit, so it finds the
// intent. A reading before that commit would miss it, and the intent would wait for the sweep.
func TestReleaseReadsTheQueueBehindItsCommit(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	l := take(t, db, alice, "a/1").Lease
	goOn := holdCommits(t, db, "update on submitter_lease")
	releasing := storetest.Blocked(t, db, "commit", func() (txmanager.CommitResult, error) {
		return db.Commit(t.Context(), txmanager.Commit{Lease: l, LeaseEnd: txmanager.ReleaseUnlessRerun})
	})
	if got := post(t, db, alice, "r"); !got.New || got.Queued {
		t.Errorf("create before the release's commit: got %+v, want it new, and no advance due", got)
	}
	goOn()
	check.Equal(t, "release", <-releasing, storetest.Outcome[txmanager.CommitResult]{Got: txmanager.CommitResult{Released: true, Queued: 1, Token: l.Token}})
}

// The release reports a submitter that was resumed since it was loaded, because intents queued
// since enqueued no task.
func TestReleaseTellsOfASuspensionThatEnded(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	db.Run(t, suspended, alice)
	w := take(t, db, alice, "a/1")
	db.Run(t, `update submitter set status = 'ACTIVE' where submitter = $1`, alice)
	check.Equal(t, "advance due under a lease", post(t, db, alice, "r").Queued, false)
	done := write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	if !w.Suspended || done.Suspended || done.Queued != 1 {
		t.Errorf("loaded as suspended %t, released as %+v; want it suspended before, and not any more", w.Suspended, done)
	}
}

// holdCommits makes the commits of transactions with such a change wait until goOn is called.
func holdCommits(t *testing.T, db storetest.Bundle, change string) (goOn func()) {
	t.Helper()
	db.Run(t, `create function hold_up() returns trigger language plpgsql as
		$$ begin perform pg_advisory_xact_lock(1); return null; end $$`)
	db.Run(t, `create constraint trigger hold_up after `+change+`
		deferrable initially deferred for each row execute function hold_up()`)
	other := db.Connect(t)
	other.Do(`select pg_advisory_lock(1)`)
	return func() { other.Do(`select pg_advisory_unlock(1)`) }
}
