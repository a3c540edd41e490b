package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store"
)

// The commands of a planned move.
const (
	expectMove  = "expect-move"
	confirmMove = string(mark.Confirms)
	cancelMove  = string(mark.Cancels)
)

var errNoMark = errors.New("only the mark distinguishes a move from a restore: set FENCEPOST_MARK_BUCKET as for " +
	"the functions; if they have no mark, set mark.bucket for them first, and wait for a sweep")

// openMark opens the mark's object with the functions' settings; nil: they have none.
func openMark(ctx context.Context) (*gcs.Object, error) {
	bucket := os.Getenv("FENCEPOST_MARK_BUCKET")
	if bucket == "" {
		return nil, nil
	}
	return gcs.Open(ctx, bucket, mark.ObjectName, os.Getenv("FENCEPOST_MARK_ENDPOINT"))
}

func move(ctx context.Context, c call, dial pgconn.DialFunc) (err error) {
	object, err := openMark(ctx)
	if err != nil {
		return err
	}
	if object == nil {
		return errNoMark
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	// The lock timeout is longer than a frozen client can keep a lock.
	s, err := store.Open(ctx, store.Options{URL: c.databaseURL, Dial: dial, MaxConns: 2,
		StatementTimeout: time.Minute, LockTimeout: 50 * time.Second, IdleInTransactionTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer s.Close()
	mover := mark.Mover{Keeper: mark.Keeper{Object: object, Book: s}, Moves: s}
	said := mark.OperatorReason{By: c.by, Reason: c.reason}
	switch c.command {
	case expectMove:
		return expect(ctx, mover, said)
	case confirmMove:
		return confirm(ctx, s, mover, said)
	}
	return cancelled(ctx, s, mover, said)
}

func expect(ctx context.Context, mover mark.Mover, said mark.OperatorReason) error {
	last, err := mover.Expect(ctx, said)
	if err != nil {
		return fmt.Errorf("%w\nif writes were stopped already they still are: run it again, or migrate cancel-move", err)
	}
	fmt.Printf(`writes are stopped; the last mark is %s
next: make the last copy of the database, or wait until the replica has everything, and stop this server.
then, on the new server: migrate confirm-move. To call the move off, on this server: migrate cancel-move.
`, last.ID)
	return nil
}

func confirm(ctx context.Context, s *store.Store, mover mark.Mover, said mark.OperatorReason) error {
	switch err := endedAs(ctx, s, "CONFIRMED", mover.Confirm(ctx, said)); {
	case errors.Is(err, mark.ErrForeign):
		return fmt.Errorf("%w: this copy lacks the last commits, or the move was ended elsewhere; use the copy that has the last mark, or migrate cancel-move here and accept the database as a restored one", err)
	case err != nil:
		return err
	}
	fmt.Print(`the database is taken over, and writes go on; every submitter is in PROTECT.
next: POST /admin/v1/database/release-untouched until remaining stays as it is, then release the rest one by one.
`)
	return nil
}

func cancelled(ctx context.Context, s *store.Store, mover mark.Mover, said mark.OperatorReason) error {
	switch err := endedAs(ctx, s, "CANCELLED", mover.Cancel(ctx, said)); {
	case errors.Is(err, mark.ErrCancelledForeign):
		fmt.Println(err)
		return nil
	case err != nil:
		return fmt.Errorf("%w\nwrites are still stopped. Where the mark is lost for good: migrate distrust, then migrate cancel-move, then accept the database as a restored one", err)
	}
	fmt.Println("the move is cancelled, and the database accepts writes again; copies that were made meanwhile are foreign")
	return nil
}

// endedAs returns failed, the error of an attempt to end a move. It is nil if the attempt succeeded. It is also nil if no move was
// open and the last one already has this outcome.
func endedAs(ctx context.Context, s *store.Store, outcome string, failed error) error {
	if !errors.Is(failed, mark.ErrNoMove) {
		return failed
	}
	last, err := s.EndedMove(ctx)
	switch {
	case err != nil:
		return err
	case last == outcome:
		return nil
	case last != "":
		return fmt.Errorf("%w: the last one is %s", failed, last)
	}
	return failed
}
