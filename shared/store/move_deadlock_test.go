package store_test

import (
	"context"
	"testing"
	"time"

	moves "github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// A transaction at work holds one table of a move and wants another, which the move has
// locked already. Postgres ends the move's transaction; the move is tried again, and
// succeeds once the other has ended.
func TestExpectedMoveOutlivesADeadlock(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db := storetest.New(t)
	work, err := db.DB.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = work.Rollback(context.Background()) }()
	for _, statement := range []string{`set local deadlock_timeout = '1min'`, `lock table managed_tx in row exclusive mode`} {
		if _, err := work.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := db.Expect(ctx, moves.Observed{}, moves.OperatorReason{By: "ada", Reason: "test"})
		ended <- err
	}()
	for waits := false; !waits; {
		err := db.DB.QueryRow(ctx, `
select exists (select from pg_locks where relation = 'managed_tx'::regclass and not granted and database = (select oid from pg_database where datname = current_database()))`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := work.Exec(ctx, `lock table submitter_lease in row exclusive mode`); err != nil {
		t.Fatalf("the transaction at work: %v", err)
	}
	if err := work.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the move: got %v, want it to be expected", err)
	}
}
