package core

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
)

// ErrEvidence reports a line of the journal that does not prove the statement.
var ErrEvidence = errors.New("that line of the journal says something else, or there is no such line")

// Record stores an operator's statement about a request whose key may have been forgotten. It
// returns the line stored under the request's key. A line other than 0 is a line of the journal
// that must prove the statement: the request's own line. For a refund that was not applied it is the
// withdrawal's line. The errors are those of [Core.Do], and [ErrEvidence].
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

// line returns one line of the journal, or the zero entry if there is none.
func (c *Core) line(seq uint64) (e book.Entry, err error) {
	_, err = c.Journal(seq-1, 1, func(found book.Entry) bool { e = found; return true })
	return e, err
}

// Adjust makes the adjustment, once for its ReqID, if the account has the balance found. The errors
// are those of [Core.Do].
func (c *Core) Adjust(ctx context.Context, r book.Request, found uint64) (book.Entry, error) {
	return c.ask(ctx, job{request: r, found: found})
}
