package transfers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Halt prevents new transfers from beginning until an operator resumes. Transfers that have begun
// continue.
type Halt struct {
	ID       int64
	Scope    conservation.Scope
	UserID   int64 // of [conservation.UserAsset]; else 0
	AssetID  int32 // 0 for [conservation.All]
	Since    time.Time
	Evidence []byte // JSON
}

// ErrNotHalted reports a halt that does not exist or is not open. Nothing was changed.
var ErrNotHalted = errors.New("no such halt is open")

const resume = `
update transfer_halt h
   set resumed_at = clock_timestamp(), resumed_by = $2, resume_reason = $3
 where (halt_id = $1 or $4 and halt_id < $1) and resumed_at is null
   and exists (select from transfer_halt named where named.halt_id = $1 and named.resumed_at is null)`

// Resume ends the halt with that number, and with earlier also those that were opened before it. A halt
// that began after the operator's last check is not ended unseen. by and reason must not be empty. The
// error is [ErrNotHalted] if it is not open.
func (s *Store) Resume(ctx context.Context, halt int64, by, reason string, earlier bool) error {
	tag, err := store.ExecCarrying(ctx, s.db, resume, halt, by, reason, earlier)
	switch {
	case err != nil:
		return fmt.Errorf("resume halt %d: %w", halt, err)
	case tag.RowsAffected() == 0:
		return ErrNotHalted
	}
	return nil
}

const (
	countHalts = `select count(*) from transfer_halt where resumed_at is null`

	openHalts = `
select halt_id, scope, coalesce(user_id, 0), coalesce(asset_id, 0), since, evidence::text::bytea
  from transfer_halt
 where resumed_at is null
 order by halt_id desc
 limit $1`
)

// OpenHalts returns at most limit open halts, newest first, and the number of all.
func (s *Store) OpenHalts(ctx context.Context, limit int) (some []Halt, all int, err error) {
	b := new(pgx.Batch)
	b.Queue(countHalts).QueryRow(results.Scan(&all))
	b.Queue(openHalts, limit).Query(results.Into(&some, pgx.RowToStructByPos[Halt]))
	err = s.db.SendBatch(ctx, b).Close()
	return some, all, results.Wrap(err, "list halts")
}
