package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const alice txmanager.Submitter = "eip155:1:0x00000000000000000000000000000000000a11ce"

var said = mark.OperatorReason{By: "ada", Reason: "upgrade"}

func mover(o *gcs.Object, db storetest.Bundle) mark.Mover {
	return mark.Mover{Keeper: mark.Keeper{Object: o, Book: db.Store}, Moves: db.Store}
}

// post stores an intent, as a caller does.
func post(ctx context.Context, db storetest.Bundle, id string, n int) error {
	_, err := db.Create(ctx, store.Intent{TxID: fmt.Sprintf("0190a0b0-0000-7000-8000-%012d", n), Submitter: alice, RequestID: id,
		Caller: "c", Payload: []byte(`{}`), Fingerprint: [32]byte{byte(n)}}, 1000)
	return err
}

// expected returns a database whose move is expected, with the object of its mark.
func expected(t *testing.T) (*gcs.Object, storetest.Bundle, mark.Mark) {
	t.Helper()
	o, db := open(t), storetest.New(t)
	db.Register(t, alice, 8)
	if err := mover(o, db).Advance(t.Context(), "test"); err != nil {
		t.Fatalf("the first mark: %v", err)
	}
	if err := post(t.Context(), db, "before", 1); err != nil {
		t.Fatalf("an intent before the move: %v", err)
	}
	last, err := mover(o, db).Expect(t.Context(), said)
	if err != nil {
		t.Fatalf("expect the move: %v", err)
	}
	return o, db, last
}

// another returns a copy of the database on another server than its rows record.
func another(t *testing.T, db storetest.Bundle) (old, moved storetest.Bundle) {
	t.Helper()
	moved = storetest.Copy(t, db)
	run(t, moved, `update database_identity set system_identifier = 1`)
	run(t, moved, `update database_move set from_system = 1 where ended_at is null`)
	return storetest.Again(t, db), moved
}

func run(t *testing.T, db storetest.Bundle, statement string) {
	t.Helper()
	if _, err := db.DB.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, db storetest.Bundle, query string) (n int) {
	t.Helper()
	if err := db.DB.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// While a move is expected, the database accepts nothing, grants no lease and writes no mark, for any
// caller. Expecting the move again changes nothing.
func TestExpectedMoveStopsWrites(t *testing.T) {
	t.Parallel()
	o, db, last := expected(t)
	if seen, err := o.Read(t.Context()); err != nil || seen.ID != last.ID {
		t.Errorf("the object: got %+v, %v; want the mark %s", seen, err, last.ID)
	}
	if err := post(t.Context(), db, "meanwhile", 2); !store.IsMoving(err) {
		t.Errorf("create: got %v, want it refused for the move", err)
	}
	if err := post(t.Context(), db, "before", 1); err != nil && !store.IsMoving(err) {
		t.Errorf("create of what is known: got %v", err)
	}
	if taken, err := db.Acquire(t.Context(), alice, "node", true); !store.IsMoving(err) {
		t.Errorf("lease: got %+v, %v; want it refused for the move", taken.Held, err)
	}
	if _, err := db.Prepare(t.Context(), last.Sequence, store.MarkOfSweep); !store.IsMoving(err) {
		t.Errorf("a mark: got %v, want it refused for the move", err)
	}
	again, err := mover(o, db).Expect(t.Context(), said)
	if err != nil || again.ID != last.ID {
		t.Errorf("again: got %s, %v; want the same mark %s", again.ID, err, last.ID)
	}
}

// The last mark is later than every write: a running write is awaited, and a later one is refused.
func TestExpectedMoveWaitsForWriters(t *testing.T) {
	t.Parallel()
	o, db := open(t), storetest.New(t)
	db.Register(t, alice, 8)
	writer, err := db.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback(context.Background()) }()
	if _, err := writer.Exec(t.Context(), `update submitter_nonce_cursor set next_nonce = next_nonce`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := mover(o, db).Expect(t.Context(), said)
		done <- err
	}()
	for waiting := 0; waiting == 0; {
		waiting = count(t, db, `select count(*) from pg_locks where not granted and mode = 'ShareRowExclusiveLock' and database = (select oid from pg_database where datname = current_database())`)
		select {
		case err := <-done:
			t.Fatalf("expect-move with a writer at work: got %v, want it to wait", err)
		default:
		}
	}
	if err := writer.Commit(t.Context()); err != nil {
		t.Errorf("the writer: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("expect-move: %v", err)
	}
	if _, err := db.DB.Exec(t.Context(), `update submitter_nonce_cursor set next_nonce = next_nonce`); !store.IsMoving(err) {
		t.Errorf("a later writer: got %v, want it refused", err)
	}
}

// A confirmed move puts each submitter into PROTECT, holds nothing and puts nothing in doubt. Writes
// continue, and the old server is foreign.
func TestConfirmedMoveOpensProtectAndAllowsWrites(t *testing.T) {
	t.Parallel()
	o, db, _ := expected(t)
	if err := mover(o, db).Confirm(t.Context(), said); !errors.Is(err, mark.ErrNotMoved) {
		t.Errorf("confirmed where nothing moved: got %v, want %v", err, mark.ErrNotMoved)
	}
	old, moved := another(t, db)
	if _, err := moved.Moved(t.Context(), "", 10); !errors.Is(err, store.ErrNotPlanned) {
		t.Errorf("release before the confirmation: got %v, want %v", err, store.ErrNotPlanned)
	}
	if err := moved.AcceptDatabase(t.Context(), "operator", "impatient"); !store.IsMoving(err) {
		t.Errorf("accepted meanwhile as a restored one: got %v, want it refused for the move", err)
	}
	if err := mover(o, moved).Confirm(t.Context(), said); err != nil {
		t.Fatalf("confirm: %v", err)
	}
	if err := mover(o, moved).Confirm(t.Context(), said); !errors.Is(err, mark.ErrNoMove) {
		t.Errorf("again: got %v, want %v", err, mark.ErrNoMove)
	}
	if !ours(t, moved) {
		t.Error("the moved database is not the accepted database")
	}
	if n := count(t, moved, `select count(*) from identity_change`); n != 0 {
		t.Errorf("changes of the database's identity that put payouts in doubt: got %d, want none", n)
	}
	if n := count(t, moved, `select count(*) from managed_tx where held`); n != 0 {
		t.Errorf("held intents: got %d, want none", n)
	}
	if n := count(t, moved, `select count(*) from transfer_halt where resumed_at is null`); n != 0 {
		t.Errorf("halts: got %d, want none", n)
	}
	page, err := moved.Moved(t.Context(), "", 10)
	if err != nil || len(page) != 1 || page[0].Submitter != alice {
		t.Errorf("in PROTECT because of the move: got %v, %v; want %s", page, err, alice)
	}
	if _, err := moved.Acquire(t.Context(), alice, "node", true); err != nil {
		t.Errorf("a lease after the move: %v", err)
	}
	if err := mover(o, moved).Advance(t.Context(), "test"); err != nil {
		t.Errorf("the next mark: %v", err)
	}
	if err := mover(o, old).Cancel(t.Context(), said); !errors.Is(err, mark.ErrCancelledForeign) || ours(t, old) {
		t.Errorf("the server that was left goes on: got %v, believed %v; want %v", err, ours(t, old), mark.ErrCancelledForeign)
	}
}

// After a restore that follows a move, nothing is released in bulk.
func TestRestoreAfterAMoveReleasesNothingInBulk(t *testing.T) {
	t.Parallel()
	o, db, _ := expected(t)
	_, moved := another(t, db)
	if err := mover(o, moved).Confirm(t.Context(), said); err != nil {
		t.Fatalf("confirm: %v", err)
	}
	run(t, moved, `update database_identity set timeline_id = -1`)
	if _, err := moved.Moved(t.Context(), "", 10); !errors.Is(err, store.ErrNotPlanned) {
		t.Errorf("a foreign database: got %v, want %v", err, store.ErrNotPlanned)
	}
	if err := moved.AcceptDatabase(t.Context(), "operator", "restored"); err != nil {
		t.Fatal(err)
	}
	if _, err := moved.Moved(t.Context(), "", 10); !errors.Is(err, store.ErrNotPlanned) {
		t.Errorf("an accepted restore: got %v, want %v", err, store.ErrNotPlanned)
	}
	if n, err := moved.CountMoved(t.Context()); err != nil || n != 0 {
		t.Errorf("because of the move: got %d, %v; want none: what the restore lost may be theirs", n, err)
	}
}

// A backup from before the last mark is refused. So is a copy whose move was cancelled on the old
// server.
func TestConfirmRequiresTheLastMark(t *testing.T) {
	t.Parallel()
	o, db := open(t), storetest.New(t)
	db.Register(t, alice, 8)
	if err := mover(o, db).Advance(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	backup := storetest.Copy(t, db)
	db = storetest.Again(t, db)
	if _, err := mover(o, db).Expect(t.Context(), said); err != nil {
		t.Fatal(err)
	}
	if err := mover(o, backup).Confirm(t.Context(), said); !errors.Is(err, mark.ErrNoMove) {
		t.Errorf("a backup from before the move was expected: got %v, want %v", err, mark.ErrNoMove)
	}
	db, moved := another(t, db)
	if err := mover(o, db).Cancel(t.Context(), said); err != nil {
		t.Fatalf("cancel: %v", err)
	}
	if err := post(t.Context(), db, "after", 2); err != nil {
		t.Errorf("create after the move was called off: %v", err)
	}
	if !ours(t, db) || count(t, db, `select count(*) from protect_incident`) != 0 {
		t.Error("after the move was called off: want the same authority, and nothing in PROTECT")
	}
	if err := mover(o, moved).Confirm(t.Context(), said); !errors.Is(err, mark.ErrForeign) {
		t.Errorf("the copy: got %v, want %v", err, mark.ErrForeign)
	}
	if err := post(t.Context(), moved, "elsewhere", 3); !store.IsMoving(err) {
		t.Errorf("create in the copy: got %v, want it refused", err)
	}
	if err := mover(o, moved).Cancel(t.Context(), said); !errors.Is(err, mark.ErrCancelledForeign) {
		t.Errorf("called off in the copy: got %v, want %v", err, mark.ErrCancelledForeign)
	}
	if err := post(t.Context(), moved, "elsewhere", 3); !errors.Is(err, store.ErrProtected) {
		t.Errorf("create in the copy after that: got %v, want %v", err, store.ErrProtected)
	}
}

// Of two copies that both have the last mark only one is confirmed.
func TestOneOfTwoCopiesIsConfirmed(t *testing.T) {
	t.Parallel()
	o, db, _ := expected(t)
	db, one := another(t, db)
	_, two := another(t, db)
	var errs [2]error
	var all sync.WaitGroup
	for i, copied := range []storetest.Bundle{one, two} {
		all.Go(func() { errs[i] = mover(o, copied).Confirm(t.Context(), said) })
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("confirmed: got %v and %v, want one", errs[0], errs[1])
	}
	if ours(t, one) == ours(t, two) {
		t.Errorf("believed: got %v and %v, want one", ours(t, one), ours(t, two))
	}
}

// A confirmation that stopped after its mark was written is completed by the next one.
func TestConfirmIsFinishedAfterACrash(t *testing.T) {
	t.Parallel()
	o, db, _ := expected(t)
	_, moved := another(t, db)
	dying, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := mover(o, moved)
	m.Moves = dies{moved.Store, cancel}
	if err := m.Confirm(dying, said); !errors.Is(err, context.Canceled) {
		t.Fatalf("a confirmation that dies: got %v, want %v", err, context.Canceled)
	}
	if err := mover(o, moved).Confirm(t.Context(), said); err != nil || !ours(t, moved) {
		t.Errorf("the next one: got %v, believed %v; want it confirmed", err, ours(t, moved))
	}
}

// dies stops before the confirmation.
type dies struct {
	*store.Store
	die context.CancelFunc
}

func (d dies) Confirm(ctx context.Context, m mark.Move, s mark.OperatorReason) error {
	d.die()
	return d.Store.Confirm(ctx, m, s)
}

// Sweeps write at most one mark in each minute of the database's clock. A change of the database
// identity does not wait.
func TestSweepWritesOnceAMinute(t *testing.T) {
	t.Parallel()
	o, db := open(t), storetest.New(t)
	keeper := mark.Keeper{Object: o, Book: db.Store}
	minutes := map[time.Time]int{}
	generations := map[int64]bool{}
	for range 20 {
		if err := keeper.Advance(t.Context(), store.MarkOfSweep); err != nil {
			t.Fatalf("a sweep: %v", err)
		}
		seen, err := o.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !generations[seen.Generation] {
			minutes[seen.At.Truncate(time.Minute)]++
		}
		generations[seen.Generation] = true
	}
	for minute, n := range minutes {
		if n > 1 {
			t.Errorf("marks of the minute %s: got %d, want 1", minute, n)
		}
	}
	before, err := o.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Advance(t.Context(), "accepted"); err != nil {
		t.Fatal(err)
	}
	if now, err := o.Read(t.Context()); err != nil || now.Generation <= before.Generation {
		t.Errorf("a change of the database's identity: got %+v, %v; want a new mark", now, err)
	}
	run(t, db, `update database_mark set at = at - interval '1 minute'`)
	if err := keeper.Advance(t.Context(), store.MarkOfSweep); err != nil {
		t.Fatal(err)
	}
	if now, err := o.Read(t.Context()); err != nil || now.Reason != store.MarkOfSweep {
		t.Errorf("a minute later: got %+v, %v; want the sweep's mark", now, err)
	}
}

// If writes were stopped and the last mark was not written, the move is not confirmed, although the
// copy holds the current mark.
func TestConfirmRequiresTheLastMarkWritten(t *testing.T) {
	t.Parallel()
	o, db := open(t), storetest.New(t)
	db.Register(t, alice, 8)
	if err := mover(o, db).Advance(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	m := mover(o, db)
	m.Object = readable{o}
	if _, err := m.Expect(t.Context(), said); !errors.Is(err, errUnwritten) {
		t.Fatalf("expect-move that cannot write: got %v, want %v", err, errUnwritten)
	}
	if err := post(t.Context(), db, "meanwhile", 2); !store.IsMoving(err) {
		t.Errorf("create after it: got %v, want it refused: writes are stopped", err)
	}
	_, moved := another(t, db)
	if err := mover(o, moved).Confirm(t.Context(), said); !errors.Is(err, mark.ErrNotLast) || ours(t, moved) {
		t.Errorf("confirm: got %v, believed %v; want %v", err, ours(t, moved), mark.ErrNotLast)
	}
}

// readable can be read and not written.
type readable struct{ *gcs.Object }

var errUnwritten = errors.New("not written")

func (readable) Write(context.Context, mark.Mark, int64) error { return errUnwritten }
