package main

import (
	"context"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// walSizes needs the extension pg_walinspect, which comes with Postgres.
const walSizes = `
select coalesce(sum(record_size), 0)::float8, coalesce(sum(fpi_size), 0)::float8
  from pg_get_wal_stats($1::pg_lsn, $2::pg_lsn)`

// addWAL adds the size of the write-ahead log between two marks, for each of n transactions.
func (h *environment) addWAL(ctx context.Context, f figures, from, to mark, n int) {
	_, err := h.db.Exec(ctx, `create extension if not exists pg_walinspect`)
	var records, images float64
	if err == nil {
		err = h.db.QueryRow(ctx, walSizes, from.position, to.position).Scan(&records, &images)
	}
	steps.OK(err, "measure the write-ahead log")
	f[walPerTx], f[walImages] = records/1000/float64(n), images/1000/float64(n)
}
