// Package mark notices a database that is not the one written last, whatever its kind
// of copy. Outside the database is one small object, the mark, with a random id. An id
// is committed in the database before the object is written with it, and the object is
// written only over a mark whose id the database holds. So whoever reads the mark's
// object and does not find its id in the database knows that another database, or a
// later state of this one, has written since: the database is foreign.
package mark

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ObjectName is the object's, in its bucket.
const ObjectName = "authority-mark"

// Mark is what the object says. All but the ID and the seal is evidence, for people.
type Mark struct {
	ID       string    `json:"id"`
	Epoch    string    `json:"epoch"`
	Sequence int64     `json:"sequence"` // of marks of this database
	Position string    `json:"position"` // in the write-ahead log
	System   string    `json:"system"`
	Timeline int       `json:"timeline"`
	At       time.Time `json:"at"` // by the database
	Reason   string    `json:"reason"`
	Audit    Seal      `json:"audit,omitzero"`
}

// Seal is the last one that was put on the audit rows before the mark: see
// migrate verify-audit. The zero Seal: there was none, or the mark is of a release
// that made none.
type Seal struct {
	Number int64  `json:"number"`
	Hash   string `json:"hash"` // hexadecimal
}

// Seen is a mark with the generation of the object that has it. Generations rise.
type Seen struct {
	Mark
	Generation int64
}

var (
	// ErrNone reports that there is no object.
	ErrNone = errors.New("there is no mark")
	// ErrUnread reports a mark that could not be read: nothing is known of the database by it.
	ErrUnread = errors.New("the mark could not be read")
	// ErrMoved reports that the object was not written, or that its write was repeated
	// unknowingly: its generation is another one.
	ErrMoved = errors.New("the mark is of another generation")
	// ErrForeign reports a database that does not hold the id of the mark.
	ErrForeign = errors.New("the database does not hold the id of the current mark: another database has been written since")
	// ErrSoon reports that the last mark is too young for another of that reason.
	ErrSoon = errors.New("the last mark is young enough")
	// ErrGone reports that there is no object, though the database has seen one; or an older one.
	ErrGone = errors.New("the mark that the database has seen is gone: put the newest version of the object back")
)

// Object is where the mark is. Every error but those named is unknown: the object may
// have been written.
type Object interface {
	// Read returns the mark; the error wraps [ErrNone] where there is no object.
	Read(context.Context) (Seen, error)
	// Write writes the object if its generation is still over; 0: if there is none. The
	// error wraps [ErrMoved] where it is not.
	Write(ctx context.Context, m Mark, over int64) error
}

// Book is the database's side. Each method is one transaction.
type Book interface {
	// Judge says whether the database holds the mark. It records that it saw it there,
	// and forgets the ids that can be written no more: those prepared over an older
	// generation. Where it does not hold it, and has not seen a later one, nothing in
	// the database is believed any more once Judge returns.
	Judge(context.Context, Seen) (Verdict, error)
	// Latest is the last generation that the database has seen with an id of its own; 0: none.
	Latest(context.Context) (int64, error)
	// Prepare commits a new random id, to be written over that generation. The error wraps
	// [ErrSoon] where one more for that reason is not due yet.
	Prepare(ctx context.Context, over int64, reason string) (Mark, error)
}

// Verdict is what the database says of a mark.
type Verdict int

// The verdicts.
const (
	Held    Verdict = iota + 1
	Foreign         // never to be overwritten by this database
	Older           // than one that the database has seen: the read was overtaken, or the object was put back
)

// Keeper compares the database with the mark.
type Keeper struct {
	Object Object
	Book   Book
}

// Look compares once. The error wraps [ErrForeign], [ErrGone] or [ErrNone], the last
// where nobody has written a mark yet; any other error is unknown.
func (k Keeper) Look(ctx context.Context) (Seen, error) {
	seen, verdict, err := k.judged(ctx)
	if err == nil && verdict == Older { // most likely another process has written since it was read
		seen, verdict, err = k.judged(ctx)
	}
	switch {
	case errors.Is(err, ErrNone):
		return Seen{}, k.without(ctx, err)
	case err != nil:
		return Seen{}, err
	case verdict == Foreign:
		return seen, ErrForeign
	case verdict == Older:
		return seen, ErrGone
	}
	return seen, nil
}

// judged reads the mark, and has the database judge it.
func (k Keeper) judged(ctx context.Context) (seen Seen, v Verdict, err error) {
	if seen, err = k.Object.Read(ctx); errors.Is(err, ErrNone) {
		return Seen{}, 0, err
	} else if err != nil {
		return Seen{}, 0, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	if v, err = k.Book.Judge(ctx, seen); err != nil {
		return Seen{}, 0, err
	}
	return seen, v, nil
}

// without is what no object means to this database.
func (k Keeper) without(ctx context.Context, none error) error {
	latest, err := k.Book.Latest(ctx)
	if err != nil {
		return err
	}
	if latest > 0 {
		return ErrGone
	}
	return none
}

// Advance writes a new mark over the one that the database holds, or the first one. Of
// two at once one writes; the other finds its mark, held or foreign.
func (k Keeper) Advance(ctx context.Context, reason string) error {
	seen, err := k.Look(ctx)
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
	if _, err := k.Look(ctx); err != nil { // also who lost a race learns against whom
		return err
	}
	return nil
}
