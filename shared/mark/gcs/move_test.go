package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
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
	check.OK(t)(mover(o, db).Advance(t.Context(), "test"))
	check.OK(t)(post(t.Context(), db, "before", 1))
	return o, db, check.Value(mover(o, db).Expect(t.Context(), said))(t)
}

// another returns a copy of the database on another server than its rows record.
func another(t *testing.T, db storetest.Bundle) (old, moved storetest.Bundle) {
	t.Helper()
	moved = storetest.Copy(t, db)
	check.OK(t)(moved.DB.Exec(t.Context(), `update database_identity set system_identifier = 1`))
	check.OK(t)(moved.DB.Exec(t.Context(), `update database_move set from_system = 1 where ended_at is null`))
	return storetest.At(t, db.URL, storetest.Rules), moved
}

func count(t *testing.T, db storetest.Bundle, query string) (n int) {
	t.Helper()
	check.OK(t)(db.DB.QueryRow(t.Context(), query).Scan(&n))
	return n
}

// While a move is expected, the database accepts nothing, grants no lease and writes no mark, for any
// caller. Expecting the move again changes nothing.
func TestExpectedMoveStopsWrites(t *testing.T) {
	t.Parallel()
	o, db, last := expected(t)
	check.Equal(t, "the object", check.Value(o.Read(t.Context()))(t).ID, last.ID)
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
	writer := check.Value(db.DB.Begin(t.Context()))(t)
	defer func() { _ = writer.Rollback(context.Background()) }()
	check.OK(t)(writer.Exec(t.Context(), `update submitter_nonce_cursor set next_nonce = next_nonce`))
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
	check.Err(t, "the writer", nil)(writer.Commit(t.Context()))
	check.Err(t, "expect-move", nil)(<-done)
	if _, err := db.DB.Exec(t.Context(), `update submitter_nonce_cursor set next_nonce = next_nonce`); !store.IsMoving(err) {
		t.Errorf("a later writer: got %v, want it refused", err)
	}
}

// A confirmed move puts each submitter into PROTECT, holds nothing and puts nothing in doubt. Writes
// continue, and the old server is foreign.
func TestConfirmedMoveOpensProtectAndAllowsWrites(t *testing.T) {
	t.Parallel()
	o, db, _ := expected(t)
	check.Err(t, "confirmed where nothing moved", mark.ErrNotMoved)(mover(o, db).Confirm(t.Context(), said))
	old, moved := another(t, db)
	check.Err(t, "release before the confirmation", store.ErrNotPlanned)(moved.Moved(t.Context(), "", 10))
	if err := moved.AcceptDatabase(t.Context(), "operator", "impatient"); !store.IsMoving(err) {
		t.Errorf("accepted meanwhile as a restored one: got %v, want it refused for the move", err)
	}
	check.OK(t)(mover(o, moved).Confirm(t.Context(), said))
	check.Err(t, "again", mark.ErrNoMove)(mover(o, moved).Confirm(t.Context(), said))
	check.Equal(t, "the moved database is the accepted one", ours(t, moved), true)
	check.Equal(t, "changes of the database's identity that put payouts in doubt", count(t, moved, `select count(*) from identity_change`), 0)
	check.Equal(t, "held intents", count(t, moved, `select count(*) from managed_tx where held`), 0)
	check.Equal(t, "halts", count(t, moved, `select count(*) from transfer_halt where resumed_at is null`), 0)
	page, err := moved.Moved(t.Context(), "", 10)
	if err != nil || len(page) != 1 || page[0].Submitter != alice {
		t.Errorf("in PROTECT because of the move: got %v, %v; want %s", page, err, alice)
	}
	check.Err(t, "a lease after the move", nil)(moved.Acquire(t.Context(), alice, "node", true))
	check.Err(t, "the next mark", nil)(mover(o, moved).Advance(t.Context(), "test"))
	if err := mover(o, old).Cancel(t.Context(), said); !errors.Is(err, mark.ErrCancelledForeign) || ours(t, old) {
		t.Errorf("the server that was left goes on: got %v, believed %v; want %v", err, ours(t, old), mark.ErrCancelledForeign)
	}
}

// After a restore that follows a move, nothing is released in bulk.
func TestRestoreAfterAMoveReleasesNothingInBulk(t *testing.T) {
	t.Parallel()
	o, db, _ := expected(t)
	_, moved := another(t, db)
	check.OK(t)(mover(o, moved).Confirm(t.Context(), said))
	check.OK(t)(moved.DB.Exec(t.Context(), `update database_identity set timeline_id = -1`))
	check.Err(t, "a foreign database", store.ErrNotPlanned)(moved.Moved(t.Context(), "", 10))
	check.OK(t)(moved.AcceptDatabase(t.Context(), "operator", "restored"))
	check.Err(t, "an accepted restore", store.ErrNotPlanned)(moved.Moved(t.Context(), "", 10))
	check.Equal(t, "because of the move", check.Value(moved.CountMoved(t.Context()))(t), 0)
}

// A backup from before the last mark is refused. So is a copy whose move was cancelled on the old
// server.
func TestConfirmRequiresTheLastMark(t *testing.T) {
	t.Parallel()
	o, db := open(t), storetest.New(t)
	db.Register(t, alice, 8)
	check.OK(t)(mover(o, db).Advance(t.Context(), "test"))
	backup := storetest.Copy(t, db)
	db = storetest.At(t, db.URL, storetest.Rules)
	check.OK(t)(mover(o, db).Expect(t.Context(), said))
	check.Err(t, "a backup from before the move was expected", mark.ErrNoMove)(mover(o, backup).Confirm(t.Context(), said))
	db, moved := another(t, db)
	check.OK(t)(mover(o, db).Cancel(t.Context(), said))
	check.Err(t, "create after the move was called off", nil)(post(t.Context(), db, "after", 2))
	if !ours(t, db) || count(t, db, `select count(*) from protect_incident`) != 0 {
		t.Error("after the move was called off: want the same authority, and nothing in PROTECT")
	}
	check.Err(t, "the copy", mark.ErrForeign)(mover(o, moved).Confirm(t.Context(), said))
	if err := post(t.Context(), moved, "elsewhere", 3); !store.IsMoving(err) {
		t.Errorf("create in the copy: got %v, want it refused", err)
	}
	check.Err(t, "called off in the copy", mark.ErrCancelledForeign)(mover(o, moved).Cancel(t.Context(), said))
	check.Err(t, "create in the copy after that", store.ErrProtected)(post(t.Context(), moved, "elsewhere", 3))
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
	check.Err(t, "a confirmation that dies", context.Canceled)(m.Confirm(dying, said))
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
		check.OK(t)(keeper.Advance(t.Context(), store.MarkOfSweep))
		seen := check.Value(o.Read(t.Context()))(t)
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
	before := check.Value(o.Read(t.Context()))(t)
	check.OK(t)(keeper.Advance(t.Context(), "accepted"))
	if now, err := o.Read(t.Context()); err != nil || now.Generation <= before.Generation {
		t.Errorf("a change of the database's identity: got %+v, %v; want a new mark", now, err)
	}
	check.OK(t)(db.DB.Exec(t.Context(), `update database_mark set at = at - interval '1 minute'`))
	check.OK(t)(keeper.Advance(t.Context(), store.MarkOfSweep))
	check.Equal(t, "a minute later", check.Value(o.Read(t.Context()))(t).Reason, store.MarkOfSweep)
}

// If writes were stopped and the last mark was not written, the move is not confirmed, although the
// copy holds the current mark.
func TestConfirmRequiresTheLastMarkWritten(t *testing.T) {
	t.Parallel()
	o, db := open(t), storetest.New(t)
	db.Register(t, alice, 8)
	check.OK(t)(mover(o, db).Advance(t.Context(), "test"))
	m := mover(o, db)
	m.Object = readable{o}
	check.Err(t, "expect-move that cannot write", errUnwritten)(m.Expect(t.Context(), said))
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
