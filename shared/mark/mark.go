// Package mark detects a database that is not the one written last, such as a restored copy.
//
// One small
// object outside the database, the mark, has a random id. The id is committed in the database before
// the object is written with it, and the object is written only over a mark whose id the database
// holds. So if the database does not hold the object's id, another database, or a later state of this
// one, has written since: the database is foreign.
package mark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ObjectName is the object's name in its bucket.
const ObjectName = "database-mark"

// Mark is the object's content. All but the ID and the seal is evidence for people.
type Mark struct {
	ID       string    `json:"id"`
	Epoch    string    `json:"epoch"`
	Sequence int64     `json:"sequence"` // of marks of this database
	Position string    `json:"position"` // in the write-ahead log
	System   string    `json:"system"`
	Timeline int       `json:"timeline"`
	At       time.Time `json:"at"` // by the database's clock
	Reason   string    `json:"reason"`
	Audit    Seal      `json:"audit,omitzero"`
}

// Seal is the last seal of the audit rows before the mark: see migrate verify-audit. The zero Seal
// means that there was none, or that the mark's release made no seals.
type Seal struct {
	Number int64  `json:"number"`
	Hash   string `json:"hash"` // hexadecimal
}

// Observed is a mark as read, with the generation of its object. Generations increase.
type Observed struct {
	Mark
	Generation int64
}

var (
	// ErrNone reports that there is no object.
	ErrNone = errors.New("there is no mark")
	// ErrUnread reports a mark that could not be read: it proves nothing about the database.
	ErrUnread = errors.New("the mark could not be read")
	// ErrMoved reports that the object was not written, or that its write was repeated by the client:
	// its generation has changed.
	ErrMoved = errors.New("the mark is of another generation")
	// ErrForeign reports a database that does not hold the id of the mark.
	ErrForeign = errors.New("the database does not hold the id of the current mark: another database has been written since")
	// ErrSoon reports that the last mark is too recent for another with that reason.
	ErrSoon = errors.New("the last mark is recent enough")
	// ErrGone reports that there is no object although the database has seen one, or that the object is
	// older than one that it has seen.
	ErrGone = errors.New("the mark that the database has seen is gone: put the newest version of the object back")
)

// Object is the port to the mark's storage. After an error other than the named ones the object may
// have been written.
type Object interface {
	// Read returns the mark. The error wraps [ErrNone] if there is no object.
	Read(context.Context) (Observed, error)
	// Write writes the object if its generation is still over; 0: if there is none. Otherwise the error
	// wraps [ErrMoved].
	Write(ctx context.Context, m Mark, over int64) error
}

// Store is the port to the database's side. Each method is one transaction.
type Store interface {
	// Evaluate evaluates whether the database holds the mark. It records that it has seen the mark, and
	// deletes ids that can no longer be written: those prepared over an older generation. If the
	// database neither holds the mark nor has seen a later one, it is distrusted when Evaluate returns.
	Evaluate(context.Context, Observed) (Verdict, error)
	// Latest returns the last generation that the database has seen with an id that it made; 0: none.
	Latest(context.Context) (int64, error)
	// Prepare commits a new random id for a write over that generation. The error wraps [ErrSoon] if
	// another mark for that reason is not due yet.
	Prepare(ctx context.Context, over int64, reason string) (Mark, error)
}

// Verdict is the result of evaluating a mark.
type Verdict int

// The verdicts.
const (
	Held    Verdict = iota + 1
	Foreign         // this database must never overwrite it
	Older           // than one that the database has seen: the read was overtaken, or the object was restored
)

// Keeper compares the database with the mark.
type Keeper struct {
	Object Object
	Book   Store
}

// Compare compares once. The error wraps [ErrForeign], [ErrGone] or [ErrNone], the last if no mark was
// written yet. After any other error the result is unknown.
func (k Keeper) Compare(ctx context.Context) (Observed, error) {
	seen, verdict, err := k.evaluate(ctx)
	if err == nil && verdict == Older { // most likely another process has written since the read
		seen, verdict, err = k.evaluate(ctx)
	}
	switch {
	case err != nil:
		return Observed{}, err
	case verdict == Foreign:
		return seen, ErrForeign
	case verdict == Older:
		return seen, ErrGone
	}
	return seen, nil
}

// evaluate reads the mark and evaluates it in the database. A database that has seen a mark must not find none.
func (k Keeper) evaluate(ctx context.Context) (seen Observed, v Verdict, err error) {
	seen, err = k.Object.Read(ctx)
	if errors.Is(err, ErrNone) {
		if latest, failed := k.Book.Latest(ctx); failed != nil || latest > 0 {
			err = cmp.Or(failed, ErrGone)
		}
		return Observed{}, 0, err
	}
	if err != nil {
		return Observed{}, 0, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	v, err = k.Book.Evaluate(ctx, seen)
	return seen, v, err
}

// Advance writes a new mark over the one that the database holds, or the first one. Of two concurrent
// calls one writes; the other then finds that mark, held or foreign.
func (k Keeper) Advance(ctx context.Context, reason string) error {
	seen, err := k.Compare(ctx)
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	next, err := k.Book.Prepare(ctx, seen.Generation, reason)
	if errors.Is(err, ErrSoon) {
		return nil
	} else if err != nil {
		return err
	}
	err = k.Object.Write(ctx, next, seen.Generation)
	if err != nil && !errors.Is(err, ErrMoved) {
		return fmt.Errorf("write the mark: %w", err)
	}
	_, err = k.Compare(ctx) // a lost race may show another database
	return err
}
