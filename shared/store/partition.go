package store

import (
	"context"
	"fmt"
)

// KeepPartitions makes the partitions of the quarters to come, where they are not
// there, and says how many it made. Where nothing is to do it costs a look at the
// catalog. An error is no harm until the quarter comes, and little then: what no
// partition takes goes to the default ones.
func (s *Store) KeepPartitions(ctx context.Context) (made int, err error) {
	if err := s.db.QueryRow(ctx, `select keep_partitions()`).Scan(&made); err != nil {
		return 0, fmt.Errorf("make the partitions of the next quarters: %w", err)
	}
	return made, nil
}
