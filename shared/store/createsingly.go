package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// rolledBack says that the database took nothing, for the sake of one of many: of
// what a row holds (class 22, data exceptions, and 23, constraints), or of a row
// that somebody else has locked (class 40, deadlocks among them; 55P03,
// lock_timeout; 57014, statement_timeout). The codes:
// https://www.postgresql.org/docs/15/errcodes-appendix.html.
func rolledBack(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (slices.Contains([]string{"22", "23", "40"}, pg.Code[:2]) || pg.Code == "55P03" || pg.Code == "57014")
}

// singleCreateTimeout is how long each of many that go apart waits for a lock: one of them
// has waited for it before.
const singleCreateTimeout = 250 * time.Millisecond

// createSingly stores each by itself, after all together were refused with cause:
// only whom it concerns is refused. A client frozen in the middle of sending a
// batch holds its locks for as long as its socket lives; its session is ended
// first.
func (s *Store) createSingly(ctx context.Context, all []Intent, queueBound int, cause error) ([]Created, error) {
	if blocked(cause) {
		if err := s.endFrozen(ctx); err != nil {
			return nil, err
		}
	}
	results := make([]Created, len(all))
	for i := range all {
		one, err := s.createAll(ctx, all[i:i+1], queueBound, new(singleCreateTimeout), false)
		switch {
		case err != nil && !rolledBack(err):
			return nil, err
		case err != nil:
			results[i].Err = err
		default:
			results[i] = one[0]
		}
	}
	return results, nil
}
