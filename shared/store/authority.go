package store

import (
	"context"
	"fmt"
)

// Epoch is the database's mark in every name that leaves the house.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	var epoch string
	if err := s.db.QueryRow(ctx, `select epoch from authority`).Scan(&epoch); err != nil {
		return "", fmt.Errorf("read the epoch of the database: %w", err)
	}
	return epoch, nil
}
