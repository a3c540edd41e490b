package mark

import (
	"context"
	"errors"
	"fmt"
)

// Move is a planned move of the database to another server, which has not ended.
type Move struct {
	ID    int64
	Mark  string // the id of the mark that stopped writes
	Moved bool   // the database is on another server than the old one
	Left  bool   // the old server is still the trusted one: the database was neither distrusted nor accepted since
}

// Errors of [Mover]. After each but [ErrCancelledForeign] nothing was changed.
var (
	// ErrNoMove reports that no move is expected.
	ErrNoMove = errors.New("no move is expected")
	// ErrNotMoved reports a confirmation on the old server.
	ErrNotMoved = errors.New("the database is still on the old server")
	// ErrNotLeft reports a confirmation of a database that was distrusted meanwhile.
	ErrNotLeft = errors.New("the database was distrusted since the move was expected: cancel the move, then POST /admin/v1/database/accept")
	// ErrNotLast reports that the current mark is not the mark of the planned move.
	ErrNotLast = errors.New("the current mark is not the mark of the planned move")
	// ErrCancelledForeign reports a cancelled move of a database that is not the one written last: it
	// stays in PROTECT until an operator accepts it.
	ErrCancelledForeign = errors.New("the move is cancelled, and the database is not the one written last: every submitter stays in PROTECT until an operator accepts it by POST /admin/v1/database/accept")
)

// MoveEnd is how a move ends.
type MoveEnd string

// The ways. Each is the prefix of the reason of the mark that ends the move.
const (
	Confirms MoveEnd = "confirm-move"
	Cancels  MoveEnd = "cancel-move"
)

// OperatorReason holds the operator's name and reason.
type OperatorReason struct{ By, Reason string }

// Moves is the port to the database's side of a move. Each method is one transaction.
type Moves interface {
	// Expect stops all writes after the running ones, and commits the id of the last mark, for a write
	// over that generation. If a move is already expected whose mark is current, it returns that mark,
	// and true.
	Expect(ctx context.Context, current Observed, s OperatorReason) (m Mark, done bool, err error)
	// Expected returns the move that has not ended; the error wraps [ErrNoMove].
	Expected(context.Context) (Move, error)
	// PrepareEnd commits the id of the mark that ends the move in this way, for a write over that
	// generation.
	PrepareEnd(ctx context.Context, m Move, over int64, w MoveEnd) (Mark, error)
	// Ends returns how the mark with that id ends the move; "": it does not.
	Ends(ctx context.Context, m Move, id string) (MoveEnd, error)
	// Confirm makes this database the trusted one and allows writes again. Each submitter is in
	// PROTECT.
	Confirm(context.Context, Move, OperatorReason) error
	// Cancel allows writes again. The database stays trusted or distrusted as it is.
	Cancel(context.Context, Move, OperatorReason) error
}

// Mover carries out a planned move of the database. Each step can be repeated until it succeeds.
type Mover struct {
	Keeper
	Moves Moves
}

// expectTimes bounds the attempts to write the last mark. A mark that another process had prepared
// before writes were stopped can interfere; no further one can be prepared.
const expectTimes = 5

// Expect stops writes and writes the last mark.
func (v Mover) Expect(ctx context.Context, s OperatorReason) (Mark, error) {
	for range expectTimes {
		seen, err := v.Compare(ctx)
		if err != nil && !errors.Is(err, ErrNone) {
			return Mark{}, err
		}
		last, done, err := v.Moves.Expect(ctx, seen, s)
		if err != nil || done {
			return last, err
		}
		written := v.Object.Write(ctx, last, seen.Generation)
		if seen, err = v.Compare(ctx); err != nil {
			return Mark{}, errors.Join(err, written)
		}
		if seen.ID == last.ID {
			return last, nil
		}
		if written != nil && !errors.Is(written, ErrMoved) {
			return Mark{}, fmt.Errorf("write the last mark: %w", written)
		}
	}
	return Mark{}, errors.New("another process writes marks: run it again")
}

// Confirm requires exactly the mark of [Mover.Expect], in the object and in the database. It writes a
// mark over it, and only then trusts the new server. Of two copies with that mark one succeeds; the
// other is foreign from then on.
func (v Mover) Confirm(ctx context.Context, s OperatorReason) error {
	m, err := v.Moves.Expected(ctx)
	switch {
	case err != nil:
		return err
	case !m.Moved:
		return ErrNotMoved
	case !m.Left:
		return ErrNotLeft
	}
	seen, err := v.Compare(ctx)
	if err != nil {
		return err
	}
	if err := v.end(ctx, m, seen, Confirms); err != nil {
		return err
	}
	return v.Moves.Confirm(ctx, m, s)
}

// Cancel cancels the move. On the old server work continues as before, under a new mark: a copy that
// was made meanwhile is foreign from then on. A database that is not the one written last stays so: the
// error is [ErrCancelledForeign].
func (v Mover) Cancel(ctx context.Context, s OperatorReason) error {
	m, err := v.Moves.Expected(ctx)
	if err != nil {
		return err
	}
	seen, err := v.Compare(ctx)
	foreign := errors.Is(err, ErrForeign) || m.Moved || !m.Left
	switch {
	case foreign:
		if err := v.Moves.Cancel(ctx, m, s); err != nil {
			return err
		}
		return ErrCancelledForeign
	case err != nil && !errors.Is(err, ErrNone):
		return err
	}
	if err := v.end(ctx, m, seen, Cancels); err != nil {
		return err
	}
	return v.Moves.Cancel(ctx, m, s)
}

// end writes the mark that ends the move over the one that was read, unless that one is such a mark. A move is
// confirmed only over its own mark.
func (v Mover) end(ctx context.Context, m Move, over Observed, w MoveEnd) error {
	switch way, err := v.Moves.Ends(ctx, m, over.ID); {
	case err != nil || way == w:
		return err
	case w == Confirms && over.ID != m.Mark:
		return ErrNotLast
	}
	next, err := v.Moves.PrepareEnd(ctx, m, over.Generation, w)
	if err != nil {
		return err
	}
	written := v.Object.Write(ctx, next, over.Generation)
	seen, err := v.Compare(ctx)
	switch {
	case err != nil:
		return errors.Join(err, written)
	case seen.ID != next.ID:
		return errors.Join(ErrNotLast, written)
	}
	return nil
}
