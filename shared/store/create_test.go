package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// holdingCreate is a session whose open transaction has stored the intent.
func holdingCreate(t *testing.T, db storetest.Bundle, in store.Intent) storetest.Session {
	t.Helper()
	return db.Holding(t, insertIntent, in.TxID, in.Submitter, in.RequestID, in.Fingerprint[:])
}

// A create that waits for a lock delays no other create, and simultaneous creates share their
// round trips.
func TestCreatesGoTogetherButNotBehindASlowOne(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	other := holdingCreate(t, db, intent(alice, "held"))
	slow := storetest.Blocked(t, db, "insert into managed_tx", func() (store.StoredIntent, error) {
		return db.Create(t.Context(), intent(alice, "held"), 1000)
	})
	const many = 200
	ctx := telemetry.WithMeter(t.Context())
	var all sync.WaitGroup
	for i, in := range intents(alice, "", many) {
		all.Go(func() {
			got, err := db.Create(ctx, in, 1000)
			if err != nil || !got.New || !got.Queued {
				t.Errorf("create %d: got %+v, %v; want it new and queued", i, got, err)
			}
		})
	}
	all.Wait()
	if trips := telemetry.MeterFrom(ctx).Cost().SQLRoundTrips; trips == 0 || trips > many/2 {
		t.Errorf("round trips of %d creates at once: got %d, want 1 to %d", many, trips, many/2)
	}
	select {
	case got := <-slow:
		t.Errorf("the slow create: got %+v; want it still to wait", got)
	default:
	}
	other.Do("rollback")
	if got := <-slow; got.Err != nil || !got.Got.New {
		t.Errorf("the slow create, once it could: got %+v, %v; want it new", got.Got, got.Err)
	}
}

// If the database refuses one create, the others of the same round trip succeed.
func TestRefusedDataIsRefusedAlone(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	good, poison, stranger, known := intent(alice, "good"), intent(alice, strings.Repeat("r", 129)), intent(bob, "r"), intent(alice, "good")
	stranger.Caller = `another "shop" \\ of, {ours}`
	stranger.Names = []string{stranger.Caller, "*"}
	got := db.CreateTogether(t.Context(), []store.Intent{good, poison, stranger, known}, 100)
	check.Equal(t, "a requestId of 129 bytes", outcomeOf(got[1].Err), "managed_tx_request_id_check")
	check.Equal(t, "its neighbour", got[0], store.Created{StoredIntent: store.StoredIntent{TxID: good.TxID, New: true, Queued: true}})
	check.Equal(t, "another caller's", got[2], store.Created{StoredIntent: store.StoredIntent{TxID: stranger.TxID, New: true, Queued: true}})
	check.Equal(t, "the same request once more", got[3], store.Created{StoredIntent: store.StoredIntent{TxID: good.TxID, Queued: true}})
	check.Equal(t, "caller on record", value[string](t, db, `select caller from managed_tx where submitter = $1`, bob), stranger.Caller)
}

// A lock that is not given up in time is the trouble of whom it belongs to.
func TestLockedRowIsRefusedAlone(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	holdingCreate(t, db, intent(alice, "held"))
	got := db.CreateTogether(t.Context(), []store.Intent{intent(alice, "held"), intent(alice, "free")}, 100)
	check.Equal(t, "the locked one", outcomeOf(got[0].Err), "55P03") // lock_timeout's
	if got[1].Err != nil || !got[1].New {
		t.Errorf("its neighbour: got %+v, want it new", got[1])
	}
}

// A lock that another session holds for longer than creates of one round trip wait for it delays only
// the creates that need it, and refuses no create.
func TestLockedRowDelaysItsCreateAlone(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	other := holdingCreate(t, db, intent(alice, "held"))
	began := time.Now()
	answers := storetest.Start(func() ([]store.Created, error) {
		return db.CreateTogether(t.Context(), []store.Intent{intent(bob, "free"), intent(alice, "held")}, 100), nil
	})
	storetest.Await(t, "the free one is stored", func() bool {
		return value[int](t, db, `select count(*) from managed_tx where request_id = 'free'`) == 1
	})
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the free one: got it stored after %v, want less than the 3 s for which a session waits", took)
	}
	db.AwaitBlocked(t, "insert into managed_tx")
	other.Do("rollback")
	for i, got := range (<-answers).Got {
		if got.Err != nil || !got.New {
			t.Errorf("create %d: got %+v, want it new", i, got)
		}
	}
}

// The permission to use a submitter is checked separately for each create. A caller without it gets the same
// answer as for an unregistered submitter.
func TestCallersOfOneRoundTripAreSeparated(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1, "shop")
	db.Register(t, bob, 1, "bank")
	got := db.CreateTogether(t.Context(), []store.Intent{of("bank", intent(bob, "r")), of("bank", intent(alice, "r")), intent(alice, "s")}, 100)
	if got[0].Err != nil || got[2].Err != nil || !errors.Is(got[1].Err, store.ErrUnknownSubmitter) {
		t.Errorf("got %v; want the second refused as an unknown submitter, the others stored", got)
	}
	for _, in := range []store.Intent{intent(bob, "r"), intent(bob, "s"), intent(numbered(1), "r")} {
		check.Err(t, fmt.Sprintf("%s of %s", in.RequestID, in.Submitter), store.ErrUnknownSubmitter)(db.Create(t.Context(), in, 100))
	}
	check.Equal(t, "rows", value[int](t, db, `select count(*) from managed_tx`), 2)
}

// A stored intent is returned even if a new one would be refused. A concurrent duplicate gets
// it too.
func TestH16RetryIsAnsweredByWhatIsStored(t *testing.T) {
	t.Parallel()
	refusals := map[string]struct {
		then  string // happens to the submitter after the first request
		bound int
		want  error
	}{
		"in PROTECT":     {openIncident, 100, store.ErrProtected},
		"suspended":      {suspended, 100, store.ErrSuspended},
		"the queue full": {`select $1::text`, 1, store.ErrQueueFull},
	}
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			stored, err := db.Create(t.Context(), intent(alice, "known"), test.bound)
			if err != nil || !stored.New || !stored.Queued {
				t.Fatalf("first: got %+v, %v; want it new and queued", stored, err)
			}
			db.Run(t, test.then, alice)
			retry := check.Value(db.Create(t.Context(), intent(alice, "known"), test.bound))(t)
			check.Equal(t, "retry", retry, store.StoredIntent{TxID: stored.TxID, Queued: true})
			before := contents(t, db, "managed_tx")
			check.Err(t, "new request", test.want)(db.Create(t.Context(), intent(alice, "new"), test.bound))
			check.Same(t, "the refused request stored something", contents(t, db, "managed_tx"), before)
		})
	}
	t.Run("a duplicate at the same time", duplicateMeetsInsert)
	t.Run("many duplicates at once", manyDuplicates)
}

// duplicateMeetsInsert arranges the one moment that matters: the row is
// inserted by another connection and not yet committed.
func duplicateMeetsInsert(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			first, second := intent(alice, "r"), intent(alice, "r")
			other := holdingCreate(t, db, first)
			creating := storetest.Blocked(t, db, "insert into managed_tx", func() (store.StoredIntent, error) { return db.Create(t.Context(), second, 100) })
			other.Do(end)
			want := store.StoredIntent{TxID: first.TxID, Queued: true}
			if end == "rollback" {
				want = store.StoredIntent{TxID: second.TxID, New: true, Queued: true}
			}
			check.Equal(t, "duplicate", <-creating, storetest.Outcome[store.StoredIntent]{Got: want})
		})
	}
}

var insertIntent = withPayload(`
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values ($1, $2, $3, 'shop', $4)`)

func manyDuplicates(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	for _, request := range []string{"one", "two", "three", "four", "five"} {
		got := make([]storetest.Outcome[store.StoredIntent], 40)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				got[i].Got, got[i].Err = db.Create(t.Context(), intent(alice, request), 100)
			})
		}
		all.Wait()
		isNew := 0
		for _, g := range got {
			if g.Err != nil || g.Got.TxID == "" || g.Got.TxID != got[0].Got.TxID {
				t.Fatalf("duplicates of %s: got %+v, %v and %+v, %v; want one txId", request, got[0].Got, got[0].Err, g.Got, g.Err)
			}
			if g.Got.New {
				isNew++
			}
		}
		rows := value[int](t, db, `select count(*) from managed_tx where request_id = $1`, request)
		check.Equal(t, request+": new", isNew, 1)
		check.Equal(t, request+": rows", rows, 1)
	}
}

// A requestId stands for one payload for ever, in PROTECT too.
func TestRequestIDWithAnotherPayload(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "r")
	before := contents(t, db, "managed_tx")
	other := intent(alice, "r")
	other.Payload, other.Fingerprint = []byte(`{"to":"0x00000000000000000000000000000000000000b0","value":"2"}`), [32]byte{2}
	for _, then := range []string{`select $1::text`, openIncident} {
		db.Run(t, then, alice)
		check.Err(t, "another payload", store.ErrRequestConflict)(db.Create(t.Context(), other, 100))
		check.Same(t, "the stored row changed", contents(t, db, "managed_tx"), before)
	}
}

// The requestId is compared byte for byte, separately for each submitter.
func TestRequestIDIsComparedByteForByte(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	seen := map[string]string{}
	for _, id := range []string{"r", "R", "r ", "é", "e\u0301"} {
		for _, sub := range []txmanager.Submitter{alice, bob} {
			a := post(t, db, sub, id)
			if was, ok := seen[a.TxID]; ok || !a.New {
				t.Errorf("%q of %s: got the transaction of %q, want one of its own", id, sub, was)
			}
			seen[a.TxID] = string(sub) + " " + id
		}
	}
}

// One caller never learns another's txId, nor whether the payloads are the same.
func TestAnotherCallersRequestIsAConflict(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	first := intent(alice, "r")
	check.OK(t)(db.Create(t.Context(), first, 100))
	second := intent(alice, "r")
	second.Caller, second.Names = "somebody else", []string{"somebody else", "*"}
	if got, err := db.Create(t.Context(), second, 100); !errors.Is(err, store.ErrRequestConflict) || got.TxID != "" {
		t.Errorf("the same request of another caller: got %+v, %v; want a conflict without a txId", got, err)
	}
}

// Of many simultaneous intents, as many are accepted as there is room for, in order.
func TestQueueBoundBindsABatch(t *testing.T) {
	t.Parallel()
	const bound = 10
	db := registered(t, 1, alice, bob)
	post(t, db, alice, "before")
	var all []store.Intent
	for i := range 2 * bound {
		all = append(all, intent(alice, fmt.Sprint(i)), intent(bob, fmt.Sprint(i)))
	}
	got := check.Value(db.CreateAll(t.Context(), all, bound))(t)
	places := map[txmanager.Submitter]int{alice: bound - 1, bob: bound}
	for i, in := range all {
		want := error(nil)
		if places[in.Submitter]--; places[in.Submitter] < 0 {
			want = store.ErrQueueFull
		}
		if !errors.Is(got[i].Err, want) || (want == nil && !got[i].New) {
			t.Errorf("intent %s of %s: got %+v, want %v", in.RequestID, in.Submitter, got[i], want)
		}
	}
}

// What moves at once may be a window of the largest size, in a session that moved
// a single row before: within statement_timeout.
func TestLargestWindowMovesInOneStatement(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	conn := check.Value(db.Raw(t.Context()))(t)
	defer conn.Release()
	fill(t, db, alice, "one", 1)
	fill(t, db, alice, "many", 10_000)
	for rows, prefix := range map[int]string{1: "one", 10_000: "many"} {
		tag, err := conn.Exec(t.Context(), `update managed_tx set last_error = 'waits' where request_id like $1 || '%'`, prefix)
		if err != nil || int(tag.RowsAffected()) != rows {
			t.Fatalf("move of %d rows at once: got %s, %v", rows, tag, err)
		}
	}
	check.Equal(t, "history", value[int](t, db, `select count(*) from tx_history where reason = 'waits'`), 10_001)
}
