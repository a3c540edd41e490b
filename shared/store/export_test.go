package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Raw is one of the store's own connections, with exactly the parameters that
// [Open] gives each of them.
func (s *Store) Raw(ctx context.Context) (*pgxpool.Conn, error) { return s.db.Acquire(ctx) }

// CreateTogether is what becomes of creates that left in one round trip.
func (s *Store) CreateTogether(ctx context.Context, intents []Intent, bound int) []Created {
	all, results := make([]*waiter, len(intents)), make([]Created, len(intents))
	for i, in := range intents {
		all[i] = &waiter{ctx, in, bound, make(chan Created, 1)}
	}
	s.answer(ctx, all)
	for i, w := range all {
		results[i] = <-w.answer
	}
	return results
}
