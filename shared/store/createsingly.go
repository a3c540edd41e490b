package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// isRolledBack reports whether the database rolled the batch back because of one of its rows.
// The cause is the row's values (class 22, data exceptions, or 23, constraints) or another
// session's lock. Locks are class 40 (deadlocks among them), 55P03 (lock_timeout) and 57014
// (statement_timeout). The codes: https://www.postgresql.org/docs/15/errcodes-appendix.html.
func isRolledBack(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (slices.Contains([]string{"22", "23", "40"}, pg.Code[:2]) || pg.Code == "55P03" || pg.Code == "57014")
}

// singleCreateTimeout is how long each create waits for a lock when a refused batch is stored
// one by one. The batch has already waited for that lock.
const singleCreateTimeout = 250 * time.Millisecond

// createSingly stores each intent separately after the batch was refused with cause, so that
// only the intent at fault is refused. A client that is frozen while it sends a batch holds
// its locks for as long as its socket lives. createSingly ends such sessions first.
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
		case err != nil && !isRolledBack(err):
			return nil, err
		case err != nil:
			results[i].Err = err
		default:
			results[i] = one[0]
		}
	}
	return results, nil
}
