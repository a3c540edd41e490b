package mark

import (
	"context"
	"errors"
	"fmt"
)

// Move is a planned move of the database to another server, which has not ended.
type Move struct {
	ID    int64
	Mark  string // the id of the mark with which writes were stopped
	Moved bool   // the database is on another server than the one that was left
	Left  bool   // the server that was left is still the one that is believed: nobody has distrusted or accepted the database since
}

// Errors of [Mover]. After each but [ErrCancelledForeign] nothing was changed.
var (
	// ErrNoMove reports that no move is expected.
	ErrNoMove = errors.New("no move is expected")
	// ErrNotMoved reports a confirmation on the server that was to be left.
	ErrNotMoved = errors.New("the database is still on the server that was to be left")
	// ErrNotLeft reports a confirmation of a database that was distrusted meanwhile.
	ErrNotLeft = errors.New("the database was distrusted since the move was expected: cancel the move, then POST /admin/v1/authority/accept")
	// ErrNotLast reports that the current mark is not the one with which writes were stopped.
	ErrNotLast = errors.New("the current mark is not the one with which writes were stopped")
	// ErrCancelledForeign reports a move that was called off in a database that is not the
	// one written last: it stays in PROTECT until an operator accepts it.
	ErrCancelledForeign = errors.New("the move is called off, and the database is not the one written last: every submitter stays in PROTECT until an operator accepts it by POST /admin/v1/authority/accept")
)

// Way is how a move ends.
type Way string

// The ways. Each is the beginning of the reason of the mark that ends the move.
const (
	Confirms Way = "confirm-move"
	Cancels  Way = "cancel-move"
)

// Said is who decides, and why.
type Said struct{ By, Reason string }

// Moves is the database's side of a move. Each method is one transaction.
type Moves interface {
	// Expect stops all writes, once those at work have ended, and commits the id of the
	// last mark, to be written over that generation. Where a move is expected whose mark is
	// current, it returns that mark, and true.
	Expect(ctx context.Context, current Seen, s Said) (m Mark, done bool, err error)
	// Expected is the move that has not ended; the error wraps [ErrNoMove].
	Expected(context.Context) (Move, error)
	// PrepareEnd commits the id of the mark that ends the move so, to be written over that
	// generation.
	PrepareEnd(ctx context.Context, m Move, over int64, w Way) (Mark, error)
	// Ends says how the mark with that id ends the move; "": not at all.
	Ends(ctx context.Context, m Move, id string) (Way, error)
	// Confirm makes the database the authority, as it is now, and lets writes go on. Every
	// submitter is in PROTECT.
	Confirm(context.Context, Move, Said) error
	// Cancel lets writes go on. What the database is believed to be stays as it is.
	Cancel(context.Context, Move, Said) error
}

// Mover moves the database as planned. Each step may be repeated until it succeeds.
type Mover struct {
	Keeper
	Moves Moves
}

// expectTimes bounds how often a last mark is tried. One that another process had
// prepared before writes were stopped may be in the way; later ones there are none.
const expectTimes = 5

// Expect stops writes and writes the last mark.
func (v Mover) Expect(ctx context.Context, s Said) (Mark, error) {
	for range expectTimes {
		seen, err := v.Look(ctx)
		if err != nil && !errors.Is(err, ErrNone) {
			return Mark{}, err
		}
		last, done, err := v.Moves.Expect(ctx, seen, s)
		if err != nil || done {
			return last, err
		}
		written := v.Object.Write(ctx, last, seen.Generation)
		if seen, err = v.Look(ctx); err != nil {
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

// Confirm demands exactly the mark of [Mover.Expect], in the object and in the
// database, writes a mark over it, and only then takes the new server over. Of two
// copies that hold that mark one succeeds; the other is foreign from then on.
func (v Mover) Confirm(ctx context.Context, s Said) error {
	m, err := v.Moves.Expected(ctx)
	switch {
	case err != nil:
		return err
	case !m.Moved:
		return ErrNotMoved
	case !m.Left:
		return ErrNotLeft
	}
	seen, err := v.Look(ctx)
	if err != nil {
		return err
	}
	way, err := v.Moves.Ends(ctx, m, seen.ID)
	switch {
	case err != nil:
		return err
	case way == Confirms:
	case seen.ID != m.Mark:
		return ErrNotLast
	default:
		if err := v.end(ctx, m, seen, Confirms); err != nil {
			return err
		}
	}
	return v.Moves.Confirm(ctx, m, s)
}

// Cancel calls the move off. On the server that was to be left everything goes on as
// before, under a new mark: a copy that was made meanwhile is foreign from then on. A
// database that is not the one written last stays so: the error is [ErrCancelledForeign].
func (v Mover) Cancel(ctx context.Context, s Said) error {
	m, err := v.Moves.Expected(ctx)
	if err != nil {
		return err
	}
	seen, err := v.Look(ctx)
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
	way, err := v.Moves.Ends(ctx, m, seen.ID)
	if err != nil {
		return err
	}
	if way != Cancels {
		if err := v.end(ctx, m, seen, Cancels); err != nil {
			return err
		}
	}
	return v.Moves.Cancel(ctx, m, s)
}

// end writes the mark that ends the move over the one that was seen.
func (v Mover) end(ctx context.Context, m Move, over Seen, w Way) error {
	next, err := v.Moves.PrepareEnd(ctx, m, over.Generation, w)
	if err != nil {
		return err
	}
	written := v.Object.Write(ctx, next, over.Generation)
	seen, err := v.Look(ctx)
	switch {
	case err != nil:
		return errors.Join(err, written)
	case seen.ID != next.ID:
		return errors.Join(ErrNotLast, written)
	}
	return nil
}
