package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// fill puts intents into the queue of sub behind the store's back.
func fill(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, prefix string, intents int) {
	t.Helper()
	db.Run(t, withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint)
		select gen_random_uuid(), $1, $2 || n, 'shop', sha256('') from generate_series(1, $3::int) as n`), sub, prefix, intents)
}

// bind has intents of fill leave alice's queue and get the next nonces, without a window. It does not
// read the queue.
func bind(t testing.TB, db storetest.Bundle, from, to int) {
	t.Helper()
	db.Run(t, `update submitter_nonce_cursor set next_nonce = next_nonce + $2 where submitter = $1`, alice, to-from+1)
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', updated_at = clock_timestamp()
		where submitter = $1 and request_id in (select 'filled-' || n from generate_series($2::int, $3::int) as n)`, alice, from, to)
}

// oneConnection is a store of one connection, whose rows read from the queue can be counted.
func oneConnection(t testing.TB, db storetest.Bundle) (storetest.Bundle, func() int) {
	t.Helper()
	db = reopened(t, db, func(o *store.Options) { o.MaxConns = 1 })
	return db, func() int {
		conn := check.Value(db.Raw(t.Context()))(t)
		defer conn.Release()
		check.OK(t)(conn.Exec(t.Context(), `select pg_stat_force_next_flush()`))
		return value[int](t, db, `select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where indexrelname like 'tx_queue%'`)
	}
}

// creates posts new intents of alice, and counts the accepted ones and those refused by the bound.
func creates(t testing.TB, db storetest.Bundle, prefix string, intents, bound int) (accepted, full int) {
	t.Helper()
	for i := range intents {
		switch _, err := db.Create(t.Context(), intent(alice, fmt.Sprint(prefix, i)), bound); {
		case errors.Is(err, store.ErrQueueFull):
			full++
		case err != nil:
			t.Fatal(err)
		default:
			accepted++
		}
	}
	return accepted, full
}

// Within a second, a process refuses creates for a full queue by one query for their requestIds, which
// reads no row of the queue and begins no transaction. A known requestId gets its answer.
func TestRefusedCreatesDoNotReadAFullQueue(t *testing.T) {
	t.Parallel()
	const bound = 2000
	db, queueRows := oneConnection(t, registered(t, 1, alice))
	known := post(t, db, alice, "known")
	fill(t, db, alice, "filled-", bound-1)
	db = reopened(t, db, func(o *store.Options) { o.MaxConns = 1 }) // it knows nothing of the queue
	began := time.Now()
	creates(t, db, "first-", 20, bound) // the first of them measures the queue
	ctx := telemetry.WithMeter(t.Context())
	before := queueRows()
	for i := range 100 {
		if _, err := db.Create(ctx, intent(alice, fmt.Sprint("refused-", i)), bound); !errors.Is(err, store.ErrQueueFull) {
			t.Fatalf("create %d at a full queue: got %v, want ErrQueueFull", i, err)
		}
	}
	retry, err := db.Create(ctx, intent(alice, "known"), bound)
	if err != nil || retry.TxID != known.TxID || retry.New {
		t.Errorf("a known requestId at a full queue: got %+v, %v; want %s, known", retry, err, known.TxID)
	}
	rows := queueRows() - before
	// A slow machine measures once more for each further second: up to two batches of rows each time.
	if limit := 2500 * int(time.Since(began)/time.Second); rows > limit {
		t.Errorf("rows of the queue read by 101 creates: got %d, want at most %d", rows, limit)
	}
	cost := telemetry.MeterFrom(ctx).Cost()
	if limit := 101 + 2*int64(time.Since(began)/time.Second); cost.SQLRoundTrips > limit || cost.SQLStatements > 3*limit-202 {
		t.Errorf("cost of 101 creates: got %d statements, %d round trips; want 101", cost.SQLStatements, cost.SQLRoundTrips)
	}
}

// A full queue that becomes shorter takes intents again within about a second: one create that finds
// its memory expired measures the queue and is accepted at once.
func TestQueueThatEmptiesIsAcceptedAgain(t *testing.T) {
	t.Parallel()
	const bound = 3000
	for name, leave := range map[string]func(t testing.TB, db storetest.Bundle){
		"from its head": func(t testing.TB, db storetest.Bundle) { bind(t, db, 1, 100) },
		"entirely, by cancels": func(t testing.TB, db storetest.Bundle) {
			db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', updated_at = clock_timestamp() where submitter = $1 and queued`, alice)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			fill(t, db, alice, "filled-", bound)
			creates(t, db, "first-", 20, bound)
			if _, full := creates(t, db, "full-", 5, bound); full != 5 {
				t.Fatalf("refused at a full queue: got %d of 5", full)
			}
			leave(t, db)
			began := time.Now()
			for n, accepted := 0, 0; accepted == 0; n++ {
				if accepted, _ = creates(t, db, fmt.Sprint("again-", n, "-"), 1, bound); time.Since(began) > 5*time.Second {
					t.Fatal("5 s after the queue became shorter: got a refusal, want creates accepted after one")
				}
			}
		})
	}
}

// A process that knows nothing of the queue stores a whole batch of it in two round trips, if there is
// room. The first stores what a process may without a measurement.
func TestABatchForAnUnmeasuredQueueIsStored(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	ctx := telemetry.WithMeter(t.Context())
	for i, got := range check.Value(db.CreateAll(ctx, intents(alice, "", 50), 100))(t) {
		if got.Err != nil || !got.New {
			t.Errorf("intent %d of a batch: got %+v, want it new", i, got)
		}
	}
	check.Equal(t, "round trips", telemetry.MeterFrom(ctx).Cost().SQLRoundTrips, 2)
}

// Processes that store in one queue at once exceed its bound by at most a hundredth of it for each,
// and by their round trips under way.
func TestQueueBoundHoldsForProcessesTogether(t *testing.T) {
	t.Parallel()
	const bound, processes = 3000, 2
	db := registered(t, 1, alice)
	fill(t, db, alice, "filled-", bound-200)
	done := make(chan int, processes)
	for p := range processes {
		other := reopened(t, db, func(*store.Options) {})
		go func() {
			accepted := 0
			for i := range 300 {
				if _, err := other.Create(context.WithoutCancel(t.Context()), intent(alice, fmt.Sprint(p, "-", i)), bound); err == nil {
					accepted++
				}
			}
			done <- accepted
		}()
	}
	for range processes {
		if accepted := <-done; accepted == 0 {
			t.Error("a process stored nothing")
		}
	}
	queued := value[int](t, db, `select count(*) from managed_tx where submitter = $1 and queued`, alice)
	if limit := bound + processes*bound/100 + processes; queued < bound || queued > limit {
		t.Errorf("queued when all were refused: got %d, want %d to %d", queued, bound, limit)
	}
}

// A queue with little room, which intents leave as fast as others come, refuses none. Its creates read a bounded number
// of rows. The whole queue is counted once in two seconds. Further measurements read the newest 1,000 rows and
// the added ones: one in a second, and one for each half of the room.
func TestCreatesBesideLittleRoom(t *testing.T) {
	t.Parallel()
	const bound, each = 20_000, 20
	for _, c := range []struct {
		room, rounds int
		half         int // of the room, at least
	}{{200, 50, 90}, {40, 20, 10}} {
		t.Run(fmt.Sprint("room for ", c.room), func(t *testing.T) {
			t.Parallel()
			db, queueRows := oneConnection(t, registered(t, 1, alice))
			fill(t, db, alice, "filled-", bound-c.room-1)
			creates(t, db, "first-", 1, bound)
			before, began := queueRows(), time.Now()
			for i := range c.rounds {
				bind(t, db, each*i+1, each*i+each)
				if _, full := creates(t, db, fmt.Sprint(i, "-"), each, bound); full > 0 {
					t.Errorf("round %d: got %d of %d creates refused; want none", i, full, each)
				}
			}
			rows, seconds := queueRows()-before, 1+int(time.Since(began)/time.Second)
			if limit := bound*(seconds+1)/2 + 1200*seconds + 1200*c.rounds*each/c.half + 100; rows > limit {
				t.Errorf("rows of the queue read by %d creates in %d s: got %d, want at most %d", c.rounds*each, seconds, rows, limit)
			}
		})
	}
}

// What gets no place beside a measured queue is refused at once, and not tried in a second transaction.
func TestABatchBesideLittleRoomIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	const bound, room = 100, 4
	db := registered(t, 1, alice)
	fill(t, db, alice, "filled-", bound-room-1)
	began := time.Now()
	creates(t, db, "first-", 1, bound) // measures the queue
	ctx := telemetry.WithMeter(t.Context())
	for i, got := range check.Value(db.CreateAll(ctx, intents(alice, "", room+3), bound))(t) {
		if isFull := errors.Is(got.Err, store.ErrQueueFull); isFull != (i >= room) {
			t.Errorf("intent %d beside room for %d: got %v", i, room, got.Err)
		}
	}
	// A slow machine may have to measure again, and then tries what got no place a second time.
	if trips, limit := telemetry.MeterFrom(ctx).Cost().SQLRoundTrips, 1+int64(time.Since(began)/time.Second); trips > limit {
		t.Errorf("round trips: got %d, want at most %d", trips, limit)
	}
}

// BenchmarkCreate compares a create that is accepted with one that a full queue refuses.
func BenchmarkCreate(b *testing.B) {
	const full = 100_000
	b.Run("accepted", func(b *testing.B) {
		db := registered(b, 1, alice)
		for i := 0; b.Loop(); i++ {
			check.OK(b)(db.Create(b.Context(), intent(alice, fmt.Sprint(i)), 100*full))
		}
	})
	b.Run("refused", func(b *testing.B) {
		db := registered(b, 1, alice)
		fill(b, db, alice, "filled-", full)
		creates(b, db, "first-", 1500, full)
		for i := 0; b.Loop(); i++ {
			check.Err(b, "at a full queue", store.ErrQueueFull)(db.Create(b.Context(), intent(alice, fmt.Sprint(i)), full))
		}
	})
}

// Intents that others store are counted, at the latest after a hundredth of the bound.
func TestRoomThatOthersUseIsMeasuredAgain(t *testing.T) {
	t.Parallel()
	const bound = 1000
	db := registered(t, 1, alice)
	creates(t, db, "first-", 10, bound)
	fill(t, db, alice, "filled-", bound-60)
	creates(t, db, "then-", 150, bound)
	if queued := value[int](t, db, `select count(*) from managed_tx`); queued < bound || queued > bound+bound/100 {
		t.Errorf("queued: got %d, want %d to %d", queued, bound, bound+bound/100)
	}
}
