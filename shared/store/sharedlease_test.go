package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// sharing is db with a store whose acquires wait for each other.
func sharing(t *testing.T, db storetest.Bundle) storetest.Bundle {
	t.Helper()
	return reopened(t, db, func(o *store.Options) { o.AcquireWait = 300 * time.Millisecond })
}

// together acquires the leases of all at once, in one round trip, and returns what each was
// answered, and the round trips.
func together(t *testing.T, db storetest.Bundle, owner string, wide bool, all ...txmanager.Submitter) ([]storetest.Outcome[txmanager.AcquireResult], int64) {
	t.Helper()
	got, calls := make([]storetest.Outcome[txmanager.AcquireResult], len(all)), sync.WaitGroup{}
	var trips atomic.Int64
	for i, sub := range all {
		calls.Go(func() {
			ctx := telemetry.WithMeter(store.WithPatience(t.Context()))
			got[i].Got, got[i].Err = db.Acquire(ctx, sub, owner, wide)
			trips.Add(telemetry.MeterFrom(ctx).Cost().SQLRoundTrips)
		})
	}
	calls.Wait()
	return got, trips.Load()
}

// wantHeld checks that the lease was taken under the token.
func wantHeld(t *testing.T, what string, got storetest.Outcome[txmanager.AcquireResult], token int64) {
	t.Helper()
	if got.Err != nil || !got.Got.Held || got.Got.State.Lease.Token != token {
		t.Fatalf("%s: got held %t under token %d, %v; want it held under %d", what, got.Got.Held, got.Got.State.Lease.Token, got.Err, token)
	}
}

// Simultaneous acquires share their round trips, those of new submitters too. Each gets its own
// token and state.
func TestAcquiresShareRoundTrips(t *testing.T) {
	t.Parallel()
	const many = 50
	all := numbers(many)
	db := registered(t, 1, all...)
	for i, sub := range all {
		post(t, db, sub, fmt.Sprint("r-", i))
	}
	db = sharing(t, db)
	for token := range int64(3) {
		got, trips := together(t, db, "a/1", true, all...)
		if trips < 1 || trips > many/5 {
			t.Errorf("round trips of %d acquires at once: got %d, want 1 to %d", many, trips, many/5)
		}
		for i, sub := range all {
			wantHeld(t, string(sub), got[i], token+1)
			w := got[i].Got.State
			if w.Submitter() != sub || w.Lease.Owner != "a/1" || !slices.Equal(inQueue(w), []string{fmt.Sprint("r-", i)}) || w.Queue[0].Submitter != sub {
				t.Errorf("%s: got lease %+v and queue %v, want its own", sub, w.Lease, inQueue(w))
			}
			if left := w.Lease.Left(); left > storetest.Rules.Duration || left < storetest.Rules.Duration/2 {
				t.Errorf("%s: got %v left, want at most %v", sub, left, storetest.Rules.Duration)
			}
		}
	}
}

// A lease row that another session has locked delays no other submitter.
func TestALockedLeaseIsAcquiredAlone(t *testing.T) {
	t.Parallel()
	carol := numbered(7)
	db := sharing(t, registered(t, 1, alice, bob, carol))
	together(t, db, "a/1", true, alice, bob, carol)
	other := db.Holding(t, `select from submitter_lease where submitter = $1 for update`, bob)
	waiting := storetest.Start(func() (txmanager.AcquireResult, error) {
		return db.Acquire(store.WithPatience(t.Context()), bob, "a/1", true)
	})
	got, trips := together(t, db, "a/1", true, alice, carol)
	wantHeld(t, "alice", got[0], 2)
	wantHeld(t, "carol", got[1], 2)
	if trips > 1 {
		t.Errorf("round trips of alice and carol: got %d, want only the one that bob shares", trips)
	}
	db.AwaitBlocked(t, "insert into submitter_lease")
	other.Do("commit")
	wantHeld(t, "bob, unlocked", <-waiting, 2)
}

// A held lease is marked and not taken, and an unregistered submitter has none, also in a round
// trip with others.
func TestSharedAcquiresAreAnsweredEach(t *testing.T) {
	t.Parallel()
	carol, ghost := numbered(7), numbered(8)
	db := sharing(t, registered(t, 1, alice, bob, carol))
	take(t, db, bob, "b/1")
	take(t, db, carol, "b/1")
	db.Run(t, `update submitter_lease set expires_at = clock_timestamp() - interval '1 h' where submitter = $1`, carol)
	got, _ := together(t, db, "a/1", true, alice, bob, carol, ghost)
	wantHeld(t, "alice", got[0], 1)
	check.Equal(t, "alice: taken over", got[0].Got.TakenOver, false)
	if bob := got[1]; bob.Err != nil || bob.Got.Held || bob.Got.Token != 1 || !bob.Got.TakeoverAt.After(bob.Got.ExpiresAt) {
		t.Errorf("bob: got %+v, want it held by another under token 1", bob)
	}
	wantHeld(t, "carol", got[2], 2)
	check.Equal(t, "carol: taken over", got[2].Got.TakenOver, true)
	check.Err(t, "ghost", store.ErrUnknownSubmitter)(got[3].Got, got[3].Err)
	check.Equal(t, "owners, tokens and flags",
		value[string](t, db, `select string_agg(owner_node || ' ' || fencing_token || ' ' || rerun_requested, ', ' order by submitter) from submitter_lease`),
		"a/1 2 false, b/1 1 true, a/1 1 false")
}

// watched is a context that reports that a caller waits for its end.
type watched struct {
	context.Context
	waits func()
}

// Done implements [context.Context].
func (w *watched) Done() <-chan struct{} {
	w.waits()
	return w.Context.Done()
}

// An iteration begins in a round trip with an acquire. A fenced one fails alone.
func TestIterationsBeginInSharedRoundTrips(t *testing.T) {
	t.Parallel()
	db := sharing(t, registered(t, 1, alice, bob))
	l := take(t, db, alice, "a/1").Lease
	db.Run(t, `update submitter_lease set rerun_requested = true`)
	for i, want := range []struct {
		token int64
		err   error
	}{{2, nil}, {0, lease.ErrFenced}} {
		joined := make(chan struct{})
		waiting := storetest.Start(func() (txmanager.AcquireResult, error) {
			return db.Acquire(store.WithPatience(&watched{t.Context(), sync.OnceFunc(func() { close(joined) })}), bob, "a/1", true)
		})
		<-joined
		ctx := telemetry.WithMeter(t.Context())
		w, err := db.BeginIteration(ctx, l, true)
		if !errors.Is(err, want.err) || w.Lease.Token != want.token {
			t.Errorf("iteration under token %d: got token %d, %v; want %d, %v", l.Token, w.Lease.Token, err, want.token, want.err)
		}
		wantHeld(t, "bob", <-waiting, int64(i+1))
	}
	check.Equal(t, "rerun flag", value[bool](t, db, `select rerun_requested from submitter_lease where submitter = $1`, alice), false)
}

// A member that the database refuses, or whose state cannot be loaded, fails alone.
func TestSharedAcquiresFailAlone(t *testing.T) {
	t.Parallel()
	db := sharing(t, registered(t, 1, alice, bob, numbered(7)))
	post(t, db, alice, "open")
	sendAll(t, db, alice)
	db.Run(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`)
	db.Run(t, fmt.Sprintf(`create trigger refuse before update on submitter_lease for each row when (new.submitter = '%s') execute function refuse()`, alice))
	db.Run(t, fmt.Sprintf(`create trigger refuse_new before insert on submitter_lease for each row when (new.submitter = '%s') execute function refuse()`, alice))
	got, _ := together(t, db, "a/1", true, alice, bob, numbered(7))
	check.Equal(t, "alice, of what the trigger raised", outcomeOf(got[0].Err), "P0001")
	wantHeld(t, "bob", got[1], 1)
	wantHeld(t, "the third", got[2], 1)

	db.Run(t, `drop trigger refuse on submitter_lease; drop trigger refuse_new on submitter_lease; alter table tx_document disable trigger user; delete from tx_document`)
	got, trips := together(t, db, "a/1", true, alice, bob, numbered(7))
	if got[0].Err == nil || got[0].Got.Held {
		t.Errorf("without its documents: got %+v, want an error", got[0])
	}
	wantHeld(t, "bob", got[1], 2)
	wantHeld(t, "the third", got[2], 2)
	if trips > 2 {
		t.Errorf("round trips: got %d, want one for all and one for the load that failed", trips)
	}
}

// Large states are loaded in round trips of their own.
func TestLargeStatesAreLoadedAlone(t *testing.T) {
	t.Parallel()
	const many = 2100 // two of them exceed the limit of a shared load
	db := registered(t, many, alice, bob, numbered(7))
	for _, sub := range []txmanager.Submitter{alice, bob} {
		fill(t, db, sub, "", many)
	}
	db = sharing(t, db)
	got, trips := together(t, db, "a/1", true, alice, bob, numbered(7))
	for i, want := range []int{many, many, 0} {
		wantHeld(t, fmt.Sprint(i), got[i], 1)
		if w := got[i].Got.State; len(w.Queue) != want || w.QueueMore || w.Window != many || w.Lease.Left() <= 0 {
			t.Errorf("%d: got %d queued, more %t, window %d; want %d, false, %d", i, len(w.Queue), w.QueueMore, w.Window, want, many)
		}
	}
	if trips < 2 || trips > 4 {
		t.Errorf("round trips: got %d, want one for all and one for each load beyond the limit", trips)
	}
}

// Of the acquires in one context only the first waits for others.
func TestAnAdvanceWaitsOnce(t *testing.T) {
	t.Parallel()
	db := reopened(t, registered(t, 1, alice, bob), func(o *store.Options) { o.AcquireWait = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ctx = store.WithPatience(ctx)
	first := storetest.Start(func() (txmanager.AcquireResult, error) { return db.Acquire(ctx, alice, "a/1", true) })
	var got storetest.Outcome[txmanager.AcquireResult]
	storetest.Await(t, "another acquire ends the wait of the first", func() bool {
		check.OK(t)(db.Acquire(t.Context(), bob, "a/1", true))
		select {
		case got = <-first:
			return true
		default:
			return false
		}
	})
	wantHeld(t, "first", got, 1)
	second, err := db.Acquire(ctx, alice, "a/1", true)
	wantHeld(t, "second", storetest.Outcome[txmanager.AcquireResult]{Got: second, Err: err}, 2)
}

// slowLoad makes each load of sub take four seconds.
func slowLoad(t *testing.T, db storetest.Bundle, sub txmanager.Submitter) {
	t.Helper()
	db.Run(t, `alter table submitter_policy rename to all_policies`)
	db.Run(t, fmt.Sprintf(`create view submitter_policy as
		select * from all_policies where case when submitter = '%s' then pg_sleep(4) is not null else true end`, sub))
	db.Run(t, `insert into all_policies (submitter) values ($1) on conflict do nothing`, sub)
}

// A submitter whose load is slow delays those of its round trip once, for as long as a shared statement may take.
// Its next loads go alone.
func TestACostlyLoadDelaysNoOther(t *testing.T) {
	t.Parallel()
	carol := numbered(7)
	db := registered(t, 1, alice, bob, carol)
	slowLoad(t, db, bob)
	db = sharing(t, db)
	for token := range int64(2) {
		slow := storetest.Start(func() (txmanager.AcquireResult, error) {
			return db.Acquire(store.WithPatience(t.Context()), bob, "a/1", true)
		})
		began := time.Now()
		got, _ := together(t, db, "a/1", true, alice, carol)
		took := time.Since(began)
		wantHeld(t, "alice", got[0], token+1)
		wantHeld(t, "carol", got[1], token+1)
		if took > 3500*time.Millisecond {
			t.Errorf("acquires beside a slow load: got %v, want less than the load of 4 s", took)
		}
		wantHeld(t, "bob, alone", <-slow, token+1)
		check.Equal(t, "bob goes alone", store.IsCostly(db.Store, bob), true)
	}
	db.Run(t, `drop view submitter_policy; alter table all_policies rename to submitter_policy`)
	storetest.Await(t, "bob shares again once his load is fast", func() bool {
		check.OK(t)(db.Acquire(t.Context(), bob, "a/1", true))
		return !store.IsCostly(db.Store, bob)
	})
}

// A round trip whose answer does not come in time is repeated alone.
func TestAnOverdueRoundTripIsRepeatedAlone(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	other := db.Holding(t, "lock table submitter_lease")
	db = reopened(t, db, func(o *store.Options) {
		o.AcquireWait, o.Lease.RenewBelow = 300*time.Millisecond, o.Lease.Duration-100*time.Millisecond
	})
	answers := storetest.Start(func() (got [2]storetest.Outcome[txmanager.AcquireResult], _ error) {
		all, _ := together(t, db, "a/1", true, alice, bob)
		return [2]storetest.Outcome[txmanager.AcquireResult](all), nil
	})
	storetest.Await(t, "two lone acquires wait", func() bool {
		return value[int](t, db, `select count(*) from pg_stat_activity where application_name = 'fencepost' and datname = current_database() and wait_event_type = 'Lock'`) == 2
	})
	other.Do("commit")
	for i, got := range (<-answers).Got {
		wantHeld(t, fmt.Sprint(i), got, 1)
	}
}

var sameAmount = cmp.Comparer(func(a, b *big.Int) bool { return a == b || a != nil && b != nil && a.Cmp(b) == 0 })

// A shared load returns the states that lone loads return.
func TestSharedLoadsEqualLoneLoads(t *testing.T) {
	t.Parallel()
	open, deferred, expired, limited, protected, idle := numbered(1), numbered(2), numbered(3), numbered(4), numbered(5), numbered(6)
	all := []txmanager.Submitter{open, deferred, expired, limited, protected, idle}
	db := reopened(t, registered(t, 3, all...), func(o *store.Options) { o.GasBumpAfter, o.StuckAfter = time.Minute, time.Hour })
	for _, sub := range []txmanager.Submitter{open, limited, protected} {
		postAll(t, db, sub, "o-1", "o-2", "o-3")
		sendAll(t, db, sub)
	}
	for _, sub := range all[:5] {
		for i := range 5 {
			create(t, db, of([]string{"shop", "bank"}[i%2], intent(sub, fmt.Sprint("q-", i+1))))
		}
	}
	db.Run(t, `update managed_tx set state = 'TRACKING', sub_state = 'PENDING', next_resubmit_at = clock_timestamp() + interval '1 h' where submitter = $1 and request_id <> 'o-1' and open`, open)
	db.Run(t, `update managed_tx set blocked_since = clock_timestamp(), deferred_at = clock_timestamp(), next_check_at = clock_timestamp() + interval '1 h' where submitter = $1 and request_id = 'q-2'`, deferred)
	other := db.Connect(t)
	other.Do(`set session_replication_role = replica`) // triggers keep the validUntil
	other.Do(`update managed_tx set valid_until = clock_timestamp() - interval '1 s' where submitter = $1 and request_id in ('q-1', 'q-4')`, expired)
	other.Do(`update managed_tx set valid_until = clock_timestamp() + interval '1 d' where submitter = $1 and request_id = 'q-2'`, expired)
	check.OK(t)(db.PutPolicy(t.Context(), store.PolicyChange{Submitter: limited, By: "olga", Reason: "a test", Policy: store.Policy{
		MaxValue: new("5"), MaxFeesPerDay: new("9"), PerCaller: map[string]store.CallerLimits{"shop": {MaxValue: new("4")}},
	}}))
	db.Run(t, openIncident, protected)
	db.Store.Close()
	shared := reopened(t, db, func(o *store.Options) {
		o.GasBumpAfter, o.StuckAfter, o.AcquireWait = time.Minute, time.Hour, 300*time.Millisecond
	})
	for _, wide := range []bool{false, true} {
		for order := range 2 {
			slices.Reverse(all)
			got, trips := together(t, shared, "a/1", wide, all...)
			check.Equal(t, "round trips", trips, 1)
			for i, sub := range all {
				lone, err := shared.Acquire(t.Context(), sub, "a/1", wide)
				if err != nil || got[i].Err != nil {
					t.Fatalf("%s: got %v, %v", sub, err, got[i].Err)
				}
				if diff := cmp.Diff(lone.State, got[i].Got.State, cmpopts.IgnoreUnexported(txmanager.SubmitterState{}), cmpopts.IgnoreFields(txmanager.SubmitterState{}, "Now", "Lease"), sameAmount); diff != "" {
					t.Errorf("%s, wide %t, order %d (-alone +shared):\n%s", sub, wide, order, diff)
				}
			}
		}
	}
	state := func(sub txmanager.Submitter) txmanager.SubmitterState { return take(t, shared, sub, "a/1") }
	check.Equal(t, "what was compared", fmt.Sprint(len(state(open).Open), len(state(expired).Expired), state(limited).Bounds.ValueWei,
		state(protected).Protected, state(idle).BumpBudgetUsedWei), "3 2 5 true 0")
	check.Equal(t, "the deferred queue", fmt.Sprint(inQueue(take(t, shared, deferred, "a/1"))), "[q-1 q-3 q-5]")
}

// Two processes that acquire the same leases at once, in opposite orders, neither deadlock nor
// both hold one.
func TestTwoProcessesShareNoLease(t *testing.T) {
	t.Parallel()
	const rounds, each = 12, 8
	db := registered(t, 1, numbers(rounds*each)...)
	before := value[int64](t, db, deadlocks)
	var mu sync.Mutex
	var all sync.WaitGroup
	holders, held, marked := make(map[txmanager.Submitter]string), 0, 0
	for p := range 2 {
		process := reopened(t, db, func(o *store.Options) { o.AcquireWait = 5 * time.Millisecond })
		session := func(sub txmanager.Submitter, owner string) error {
			taken, err := process.Acquire(store.WithPatience(t.Context()), sub, owner, false)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !taken.Held {
				marked++
				return err
			}
			if other := holders[sub]; other != "" {
				return fmt.Errorf("%s is held by %s, and was given to %s", sub, other, owner)
			}
			holders[sub] = owner
			held++
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			delete(holders, sub)
			mu.Unlock()
			_, err = process.Commit(t.Context(), txmanager.Commit{Lease: taken.State.Lease, LeaseEnd: txmanager.ReleaseAnyway})
			mu.Lock()
			return err
		}
		all.Go(func() {
			for round := range rounds * 10 {
				var calls sync.WaitGroup
				for i := range each {
					if p == 1 {
						i = each - 1 - i
					}
					calls.Go(func() {
						sub := numbered(round/10*each + i)
						if err := session(sub, fmt.Sprintf("%d/%d", p, round)); err != nil {
							t.Errorf("%s: %v", sub, err)
						}
					})
				}
				calls.Wait()
			}
		})
	}
	all.Wait()
	if held == 0 || marked == 0 {
		t.Errorf("got %d leases held and %d marked, want some of each", held, marked)
	}
	check.Equal(t, "deadlocks", value[int64](t, db, deadlocks)-before, 0)
	t.Logf("%d held, %d marked", held, marked)
}

const deadlocks = `select deadlocks from pg_stat_database where datname = current_database()`
