package core

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/emulator/ubscore/book"
)

// ErrEvidence reports a line of the journal that does not say what it should prove.
var ErrEvidence = errors.New("that line of the journal says something else, or there is no such line")

// Record stores what an operator says became of a request whose key may have been
// forgotten, and answers the line that is stored under its key. A line other than 0
// is one of the journal that must prove it: the request's own, or for a refund that
// was not applied that of its withdrawal. The errors are those of [Core.Do], and
// [ErrEvidence].
func (c *Core) Record(ctx context.Context, r book.Request, applied bool, line uint64) (book.Entry, error) {
	word := book.Word{Applied: applied}
	if line != 0 {
		proof, err := c.line(line)
		if err != nil {
			return book.Entry{}, err
		}
		if !word.ProvedBy(r, proof) {
			return book.Entry{}, ErrEvidence
		}
		word.Refused = proof.Refused
	}
	return c.ask(ctx, job{request: r, record: &word})
}

// line is one line of the journal, or the zero entry where there is none.
func (c *Core) line(seq uint64) (e book.Entry, err error) {
	_, err = c.Journal(seq-1, 1, func(found book.Entry) bool { e = found; return true })
	return e, err
}

// Adjust makes the adjustment, once for its ReqID, if the account holds what was
// found. The errors are those of [Core.Do].
func (c *Core) Adjust(ctx context.Context, r book.Request, found uint64) (book.Entry, error) {
	return c.ask(ctx, job{request: r, found: found})
}
