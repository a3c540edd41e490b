package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// until is an intent of the caller that is valid until then.
func until(caller, request string, at *time.Time) store.Intent {
	in := intent(alice, request)
	in.Caller, in.ValidUntil = caller, at
	in.Fingerprint = txmanager.FingerprintUntil("", in.Payload, at)
	return in
}

// dbClock is the database's clock, to the microsecond.
func dbClock(t testing.TB, db storetest.Bundle) time.Time {
	t.Helper()
	return value[time.Time](t, db, `select clock_timestamp()`)
}

// A validUntil that has passed is refused where the intent is new, with a policy and without,
// alone and in a batch. A known request gets its stored answer. Another time conflicts.
func TestValidUntilAtTheCreate(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]bool{"without a policy": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 9, alice)
			if policy {
				limit(t, db, store.Policy{MaxPerMinute: new(2)})
			}
			past, soon, late := dbClock(t, db), dbClock(t, db).Add(time.Second), dbClock(t, db).Add(time.Hour)
			over := until("shop", "past", &past)
			check.Err(t, "its time has passed", store.ErrPast)(db.Store.Create(t.Context(), over, 1000))
			check.Equal(t, "rows of what has passed", stored(t, db, over), 0)
			first := until("shop", "soon", &soon)
			id := create(t, db, first).TxID
			storetest.Await(t, "the time has passed", func() bool { return dbClock(t, db).After(soon) })
			all, err := db.CreateAll(t.Context(), []store.Intent{until("shop", "past", &past), until("shop", "soon", &soon), until("shop", "late", &late)}, 1000)
			if err != nil || !errors.Is(all[0].Err, store.ErrPast) || all[1].Err != nil || all[1].TxID != id || all[1].New || all[2].Err != nil || !all[2].New {
				t.Errorf("got %+v, %v; want the first refused, the second as it is stored, the third taken", all, err)
			}
			for what, again := range map[string]store.Intent{"none": until("shop", "soon", nil), "another": until("shop", "soon", &late)} {
				check.Err(t, fmt.Sprintf("again with %s", what), store.ErrRequestConflict)(db.Store.Create(t.Context(), again, 1000))
			}
			if r, _, err := db.TxWaiting(t.Context(), id, shop); err != nil || r.ValidUntil == nil || !r.ValidUntil.Equal(soon) {
				t.Errorf("shown: got %v, %v; want %v", r.ValidUntil, err, soon)
			}
			page, _, err := db.List(t.Context(), store.ListQuery{Submitter: alice, Size: 10}, shop)
			if err != nil || len(page) != 2 || !page[1].ValidUntil.Equal(soon) {
				t.Errorf("listed: got %+v, %v; want both, the older with its time", page, err)
			}
		})
	}
}

// The database binds no nonce to an intent that expires between the load and the write, also
// where another session holds the row until then.
func TestNothingExpiredIsBound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expires   int  // which of three
		locked    bool // somebody holds the row until it has expired
		withBytes bool
	}{
		"the first": {expires: 0}, "the second": {expires: 1, withBytes: true}, "the last": {expires: 2},
		"while it waits for the row": {expires: 1, locked: true}, "the first, while it waits": {expires: 0, locked: true, withBytes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 3, alice)
			at := dbClock(t, db).Add(1500 * time.Millisecond)
			var ids []string
			for i := range 3 {
				in := intent(alice, fmt.Sprint("r-", i))
				if i == c.expires {
					in = until("shop", in.RequestID, &at)
				}
				ids = append(ids, create(t, db, in).TxID)
			}
			w := take(t, db, alice, "a/1")
			if len(w.Queue) != 3 || w.NextExpiry == nil || !w.NextExpiry.Equal(at) {
				t.Fatalf("got %d, the next expiry at %v; want 3, and %v", len(w.Queue), w.NextExpiry, at)
			}
			passed := func() bool { return dbClock(t, db).After(at) }
			write := txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, c.withBytes)}
			var done txmanager.CommitResult
			var err error
			if c.locked {
				r := db.Holding(t, `select from managed_tx where tx_id = $1 for update`, ids[c.expires])
				writing := storetest.Blocked(t, db, "with want as", func() (txmanager.CommitResult, error) { return db.Commit(t.Context(), write) })
				storetest.Await(t, "the time has passed", passed)
				r.Do("rollback")
				o := <-writing
				done, err = o.Got, o.Err
			} else {
				storetest.Await(t, "the time has passed", passed)
				done, err = db.Commit(t.Context(), write)
			}
			if err != nil || done.Allocated != c.expires {
				t.Fatalf("got %+v, %v; want %d bound", done, err, c.expires)
			}
			check.Equal(t, "its state", value[string](t, db, `select state from managed_tx where tx_id = $1`, ids[c.expires]), "QUEUED")
			next, err := db.BeginIteration(t.Context(), w.Lease, true)
			if err != nil || len(next.Expired) != 1 || next.Expired[0].ID != ids[c.expires] || next.ExpiredMore || len(next.Queue) != 2-c.expires {
				t.Fatalf("got %d expired, %d in the queue, %v; want it alone expired, and %d", len(next.Expired), len(next.Queue), err, 2-c.expires)
			}
			x := next.Expired[0]
			x.State, x.Sub, x.LastError = txmanager.Failed, txmanager.Expired, "why"
			if done, err := db.Commit(t.Context(), txmanager.Commit{Lease: next.Lease, Transitions: []txmanager.Transition{{From: txmanager.Queued, To: x}}, Allocations: allocations(next, false)}); err != nil || done.Transitioned != 1 || done.Allocated != 2-c.expires {
				t.Errorf("end it: got %+v, %v; want it ended, and the rest bound", done, err)
			}
		})
	}
}

// A recyclable nonce is not allocated to an expired intent.
func TestAGivenBackNonceIsNotForWhatExpired(t *testing.T) {
	t.Parallel()
	db := registered(t, 3, alice)
	from := reserve(t, db, "x", 0)[0]
	check.Equal(t, "give back", says(t, db, backMark(from, "x")), true)
	at := dbClock(t, db).Add(500 * time.Millisecond)
	create(t, db, until("shop", "r", &at))
	w := take(t, db, alice, "a/1")
	storetest.Await(t, "the time has passed", func() bool { return dbClock(t, db).After(at) })
	check.Equal(t, "bound", write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: givenOn(w, 0, from, true)}).Allocated, 0)
	wantHolders(t, db, 1, "0 x IN_FLIGHT RECYCLABLE")
}

// Expired intents are loaded wherever they stand, some at a time, also of a suspended submitter.
// Held ones are not, and none is in PROTECT.
func TestExpiredIntentsAreLoaded(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	create(t, db, intent(alice, "head"))
	at := dbClock(t, db).Add(time.Second)
	var all []store.Intent
	for i := range 502 {
		all = append(all, until("shop", fmt.Sprint("r-", i), &at))
	}
	check.OK(t)(db.CreateAll(t.Context(), all, 1000))
	storetest.Await(t, "the time has passed", func() bool { return dbClock(t, db).After(at) })
	loaded := func(want int, more bool) txmanager.SubmitterState {
		t.Helper()
		w := take(t, db, alice, "a/1")
		if len(w.Expired) != want || w.ExpiredMore != more || len(w.Queue) > 1 || len(w.Queue) == 1 && w.Queue[0].RequestID != "head" {
			t.Errorf("got %d expired, more %v, queue %v; want %d, %v, and the head alone", len(w.Expired), w.ExpiredMore, inQueue(w), want, more)
		}
		return w
	}
	db.Run(t, `update submitter set status = 'SUSPENDED' where submitter = $1`, alice)
	w := loaded(500, true)
	if late, _, err := db.Overdue(t.Context(), 0, 10, time.Time{}); err != nil || !slices.Contains(late, alice) {
		t.Errorf("sweep: got %v, %v; want it found, also while suspended", late, err)
	}
	ends := txmanager.Commit{Lease: w.Lease}
	for _, x := range w.Expired {
		x.State, x.Sub, x.LastError = txmanager.Failed, txmanager.Expired, "why"
		ends.Transitions = append(ends.Transitions, txmanager.Transition{From: txmanager.Queued, To: x})
	}
	check.Equal(t, "ended", write(t, db, ends).Transitioned, 500)
	loaded(2, false)
	db.Run(t, `update managed_tx set held = true where queued and request_id = 'r-501'`)
	loaded(1, false)
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, alice)
	loaded(0, false)
}

// defers marks the queued request as deferred, with its next check after so long.
func defers(t testing.TB, db storetest.Bundle, request, again string) {
	t.Helper()
	db.Run(t, `update managed_tx set blocked_since = clock_timestamp(), deferred_at = clock_timestamp(), next_check_at = clock_timestamp() + $2::interval where request_id = $1`, request, again)
}

// A load skips deferred intents that are not due, and later ones of their callers by the
// present names. It has the caller's earlier intents and all of other callers. Once the
// deferred intent is due or cancelled, it has all, in order.
func TestTheQueueIsLoadedPastDeferredIntents(t *testing.T) {
	t.Parallel()
	db := registered(t, 9, alice)
	db.Run(t, `update submitter set callers = '{sub:a,sub:b,sub:a2}' where submitter = $1`, alice)
	for _, request := range []string{"a-0", "b-1", "a-2", "a-3", "b-4", "a2-5"} {
		create(t, db, of("sub:"+request[:len(request)-2], intent(alice, request)))
	}
	loads := func(what string, wide bool, want ...string) txmanager.SubmitterState {
		t.Helper()
		taken := check.Value(db.Acquire(t.Context(), alice, "a/1", wide))(t)
		check.Same(t, what, inQueue(taken.State), want)
		return taken.State
	}
	all := []string{"a-0", "b-1", "a-2", "a-3", "b-4", "a2-5"}
	loads("nothing deferred", true, all...)
	defers(t, db, "a-2", "1 h")
	if w := loads("a-2 deferred", true, "a-0", "b-1", "b-4", "a2-5"); w.DeferredUntil == nil || w.QueueMore {
		t.Errorf("got the next look at %v, more %v; want it in an hour, and no more", w.DeferredUntil, w.QueueMore)
	}
	defers(t, db, "b-1", "1 h")
	loads("b-1 too", true, "a-0", "a2-5")
	check.Equal(t, "more behind the head alone", loads("the head alone", false, "a-0").QueueMore, true)
	db.Run(t, `update submitter set succeeded = '{"sub:a": "sub:a2"}', callers = '{sub:a2,sub:b}' where submitter = $1`, alice)
	loads("a2 has succeeded a", true, "a-0")
	done := write(t, db, txmanager.Commit{Lease: take(t, db, alice, "a/1").Lease, LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "queued that could go, at the release", done.Queued, 1)
	db.Run(t, `update managed_tx set next_check_at = clock_timestamp() where request_id = 'b-1'`)
	if w := loads("b-1 is due", true, "a-0", "b-1", "b-4"); w.Queue[1].DeferredAt == nil || w.Queue[1].PresentCaller != "sub:b" || w.Queue[0].PresentCaller != "sub:a2" {
		t.Errorf("got %+v, want b-1 deferred, and present names", w.Queue)
	}
	loads("the head, and what is due", false, "a-0", "b-1")
	db.Run(t, cancel, value[string](t, db, `select tx_id::text from managed_tx where request_id = 'a-2'`))
	loads("a-2 is cancelled", true, "a-0", "b-1", "a-3", "b-4", "a2-5")
	db.Run(t, `update managed_tx set held = true where request_id = 'a-0'`)
	defers(t, db, "a-3", "1 h")
	loads("a-0 is held, a-3 deferred", true, "b-1", "b-4")
	db.Run(t, `update managed_tx set held = false where request_id = 'a-0'`)
	loads("a-0 goes on", true, "a-0", "b-1", "b-4")
	db.Run(t, `update managed_tx set updated_at = clock_timestamp() + interval '1 d' where request_id = 'a-3'`)
	loads("the clock was set back", true, "a-0", "b-1", "a-3", "b-4", "a2-5")
}

// One load has at most a hundred due deferred intents, and reports that there are more.
func TestManyDeferredIntentsAreDue(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	seed(t, db, 300, 300)
	db.Run(t, `update managed_tx set blocked_since = clock_timestamp(), deferred_at = clock_timestamp(), next_check_at = clock_timestamp() where seq <= 250`)
	w := take(t, db, alice, "a/1")
	if len(w.Queue) != 102 || !w.QueueMore || w.Queue[0].Seq != 1 {
		t.Errorf("got %d from %d on, more %v; want 102 of the first, and more", len(w.Queue), w.Queue[0].Seq, w.QueueMore)
	}
}

// seed queues n intents of so many callers, one after the other, behind the store's back.
func seed(t testing.TB, db storetest.Bundle, n, callers int) {
	t.Helper()
	conn := db.Connect(t)
	conn.Do(`set session_replication_role = replica`) // triggers of each row take most of the time
	conn.Do(`
		with put as (
		  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint)
		  select ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1, 's-' || n, 'sub:' || lpad((n % $3::int)::text, 6, '0'), sha256('x')
		    from generate_series(1, $2::int) as n order by n
		  returning tx_id
		)
		insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from put`, alice, n, callers)
}

// A caller that has 100,000 intents behind a deferred one costs each load no more than its
// others' heads, and so do many callers with a deferred one each.
func TestLoadsPastALongQueueAreCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("it queues 100,000 intents")
	}
	t.Parallel()
	_, cluster := ownCluster(t) // what runs in other databases keeps old rows, whose pages are read
	for _, c := range []struct {
		callers  int
		deferred []int // of them, one after the other
		most     int   // pages
	}{
		{2, []int{0, 1}, 60}, {100, []int{99}, 2_000}, {1000, []int{1, 999}, 20_000},
	} {
		db := storetest.NewIn(t, cluster)
		db.Register(t, alice, 1)
		seed(t, db, 100_000, c.callers)
		db.Run(t, `analyze managed_tx`)
		for _, n := range c.deferred {
			if n > 0 {
				db.Run(t, `update managed_tx set blocked_since = clock_timestamp(), deferred_at = clock_timestamp(), next_check_at = clock_timestamp() + interval '1 h' where seq <= $1`, n)
			}
			w := take(t, db, alice, "a/1")
			pages := loadCost(t, db)
			t.Logf("%d callers, %d deferred: %d pages", c.callers, n, pages)
			if pages > c.most {
				t.Errorf("%d callers, %d deferred: got %d pages read, want %d at most", c.callers, n, pages, c.most)
			}
			if want := int64(n + 1); len(w.Queue) != 1 || w.Queue[0].Seq != want {
				t.Errorf("%d callers, %d deferred: got %v, want the one with seq %d", c.callers, n, inQueue(w), want)
			}
		}
	}
}

// loadCost is how many pages a load of alice's queue reads.
func loadCost(t testing.TB, db storetest.Bundle) int {
	t.Helper()
	conn := check.Value(db.Raw(t.Context()))(t)
	defer conn.Release()
	check.OK(t)(conn.Exec(t.Context(), `prepare load as `+store.HotStatements["loadQueue"]))
	defer func() { check.OK(t)(conn.Exec(t.Context(), `deallocate load`)) }()
	return storetest.Blocks(t, conn, `execute load('{`+string(alice)+`}', '{false}', false, null, null)`, pgx.QueryExecModeSimpleProtocol)
}
