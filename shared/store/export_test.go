package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Raw is one of the store's own connections, with exactly the parameters that
// [Open] gives each of them.
func (s *Store) Raw(ctx context.Context) (*pgxpool.Conn, error) { return s.db.Acquire(ctx) }
