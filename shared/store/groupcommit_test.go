package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// blockedCreate is a create that waits for a row which other holds, until other
// ends its transaction.
func blockedCreate(t *testing.T, ctx context.Context, db storetest.Bundle) (other rival, creating <-chan outcome[store.StoredIntent]) {
	t.Helper()
	held := intent(alice, "held")
	other = connect(t, db)
	other.do("begin")
	other.do(insertIntent, held.TxID, alice, held.RequestID, held.Fingerprint[:])
	creating = start(func() (store.StoredIntent, error) { return db.Create(ctx, intent(alice, "held"), 1000) })
	awaitBlocked(t, db, "insert into managed_tx")
	return other, creating
}

// A create that waits for a lock delays no other create, and simultaneous creates share their
// round trips.
func TestCreatesGoTogetherButNotBehindASlowOne(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	other, slow := blockedCreate(t, t.Context(), db)
	const many = 200
	meters := make([]context.Context, many)
	var all sync.WaitGroup
	for i := range meters {
		meters[i] = telemetry.WithMeter(t.Context())
		all.Go(func() {
			got, err := db.Create(meters[i], intent(alice, fmt.Sprint(i)), 1000)
			if err != nil || !got.New || !got.Queued {
				t.Errorf("create %d: got %+v, %v; want it new and queued", i, got, err)
			}
		})
	}
	all.Wait()
	trips := int64(0)
	for _, ctx := range meters {
		trips += telemetry.MeterFrom(ctx).Cost().SQLRoundTrips
	}
	if trips == 0 || trips > many/2 {
		t.Errorf("round trips of %d creates at once: got %d, want 1 to %d", many, trips, many/2)
	}
	select {
	case got := <-slow:
		t.Errorf("the slow create: got %+v; want it still to wait", got)
	default:
	}
	other.do("rollback")
	if got := <-slow; got.err != nil || !got.got.New {
		t.Errorf("the slow create, once it could: got %+v, %v; want it new", got.got, got.err)
	}
}

// The context of a caller does not end a round trip that it makes for others too. It ends one
// that the caller makes for itself alone.
func TestCallerThatLeavesTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	left, leave := context.WithCancel(t.Context())
	leave()
	for i, got := range db.CreateLedBy(left, []store.Intent{intent(alice, "leader"), intent(alice, "other")}, 100) {
		if got.Err != nil || !got.New {
			t.Errorf("create %d of two: got %+v, want it new", i, got)
		}
	}
	if got := db.CreateLedBy(left, []store.Intent{intent(alice, "alone")}, 100)[0]; !errors.Is(got.Err, context.Canceled) {
		t.Errorf("a create alone: got %+v, want %v", got, context.Canceled)
	}
}

// If the database refuses one create, the others of the same round trip succeed.
func TestRefusedDataIsRefusedAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	good, poison, stranger, known := intent(alice, "good"), intent(alice, strings.Repeat("r", 129)), intent(bob, "r"), intent(alice, "good")
	stranger.Caller = `another "shop" \\ of, {ours}`
	stranger.Names = []string{stranger.Caller, "*"}
	got := db.CreateTogether(t.Context(), []store.Intent{good, poison, stranger, known}, 100)
	var refusal *pgconn.PgError
	if !errors.As(got[1].Err, &refusal) || refusal.Code != "23514" {
		t.Errorf("a requestId of 129 bytes: got %v, want a check violation", got[1].Err)
	}
	if got[0].Err != nil || got[0].TxID != good.TxID || !got[0].New {
		t.Errorf("its neighbour: got %+v, want %s, new", got[0], good.TxID)
	}
	if got[2].Err != nil || got[2].TxID != stranger.TxID || !got[2].New {
		t.Errorf("another caller's: got %+v, want %s, new", got[2], stranger.TxID)
	}
	if got[3].Err != nil || got[3].TxID != good.TxID || got[3].New {
		t.Errorf("the same request once more: got %+v, want %s, known", got[3], good.TxID)
	}
	if caller := value[string](t, db, `select caller from managed_tx where submitter = $1`, bob); caller != stranger.Caller {
		t.Errorf("caller on record: got %s, want %s", caller, stranger.Caller)
	}
}

// A lock that is not given up in time is the trouble of whom it belongs to.
func TestLockedRowIsRefusedAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	held := intent(alice, "held")
	other := connect(t, db)
	other.do("begin")
	other.do(insertIntent, held.TxID, alice, held.RequestID, held.Fingerprint[:])
	got := db.CreateTogether(t.Context(), []store.Intent{intent(alice, "held"), intent(alice, "free")}, 100)
	var refusal *pgconn.PgError
	if !errors.As(got[0].Err, &refusal) || refusal.Code != "55P03" {
		t.Errorf("the locked one: got %+v, want lock_timeout's error", got[0])
	}
	if got[1].Err != nil || !got[1].New {
		t.Errorf("its neighbour: got %+v, want it new", got[1])
	}
}

// The permission to use a submitter is checked separately for each create.
func TestCallersOfOneRoundTripAreSeparated(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for sub, caller := range map[txmanager.Submitter]string{alice: "shop", bob: "bank"} {
		if _, err := db.Store.Register(t.Context(), store.Registration{
			Submitter: sub, Signer: "local", MaxInFlight: 1, Callers: []string{caller}, CreatedBy: "test",
		}); err != nil {
			t.Fatal(err)
		}
	}
	theirs, foreign, own := intent(bob, "r"), intent(alice, "r"), intent(alice, "s")
	theirs.Caller, foreign.Caller, own.Caller = "bank", "bank", "shop"
	got := db.CreateTogether(t.Context(), []store.Intent{theirs, foreign, own}, 100)
	if got[0].Err != nil || got[2].Err != nil || !errors.Is(got[1].Err, store.ErrUnknownSubmitter) {
		t.Errorf("got %v; want the second refused as an unknown submitter, the others stored", got)
	}
	if rows := value[int](t, db, `select count(*) from managed_tx`); rows != 2 {
		t.Errorf("rows: got %d, want 2", rows)
	}
}
