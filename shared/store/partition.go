package store

import (
	"context"
	"fmt"
)

// KeepPartitions creates the missing partitions of the coming quarters, and returns how many
// it created. If none is missing it costs one read of the catalog. An error does no harm
// before the quarter begins. Afterwards rows without a partition go to the default one.
func (s *Store) KeepPartitions(ctx context.Context) (made int, err error) {
	if err := s.db.QueryRow(ctx, `select ensure_partitions()`).Scan(&made); err != nil {
		return 0, fmt.Errorf("make the partitions of the next quarters: %w", err)
	}
	return made, nil
}
