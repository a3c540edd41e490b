package transfers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
)

// Scope is what a halt keeps from beginning.
type Scope string

// The scopes.
const (
	UserAsset Scope = "user_asset" // transfers of one asset by one user
	OneAsset  Scope = "asset"
	Everyone  Scope = "all"
)

// Halt keeps new transfers from beginning until a person resumes. What has begun
// goes on.
type Halt struct {
	ID           int64
	Scope        Scope
	UserID       int64 // of [UserAsset]; else 0
	AssetID      int32 // 0 for [Everyone]
	Since        time.Time
	Evidence     []byte // JSON
	ResumedAt    *time.Time
	ResumedBy    string
	ResumeReason string
}

const openHalt = `
insert into transfer_halt (scope, user_id, asset_id, evidence)
values ($1, nullif($2::bigint, 0), nullif($3::integer, 0), $4::text::jsonb)`

// OpenHalt halts, beside whatever is halted already: each stays until it is resumed by
// itself. Of h the scope, the user, the asset and the evidence count.
func (s *Store) OpenHalt(ctx context.Context, h Halt) error {
	if _, err := s.db.Exec(ctx, openHalt, h.Scope, h.UserID, h.AssetID, string(h.Evidence)); err != nil {
		return fmt.Errorf("halt %s: %w", h.Scope, err)
	}
	return nil
}

// ErrNotHalted reports a halt that is not open, or not there. Nothing was changed.
var ErrNotHalted = errors.New("no such halt is open")

const resume = `
update transfer_halt h
   set resumed_at = clock_timestamp(), resumed_by = $2, resume_reason = $3
 where (halt_id = $1 or $4 and halt_id < $1) and resumed_at is null
   and exists (select from transfer_halt named where named.halt_id = $1 and named.resumed_at is null)`

// Resume ends the halt of that number, with earlier also those that were opened before
// it, and no other: one that began since a person looked is not ended unseen. Neither
// by nor reason may be empty. The error is [ErrNotHalted] where it is not open.
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

// OpenHalts lists the halts that are open, the newest first and at most so many, and
// says how many there are.
func (s *Store) OpenHalts(ctx context.Context, most int) (some []Halt, all int, err error) {
	b := new(pgx.Batch)
	b.Queue(`select count(*) from transfer_halt where resumed_at is null`).QueryRow(func(row pgx.Row) error { return row.Scan(&all) })
	b.Queue(`
		select halt_id, scope, coalesce(user_id, 0), coalesce(asset_id, 0), since, evidence::text::bytea,
		       resumed_at, coalesce(resumed_by, ''), coalesce(resume_reason, '')
		  from transfer_halt
		 where resumed_at is null
		 order by halt_id desc
		 limit $1`, most).Query(func(rows pgx.Rows) (err error) {
		some, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Halt])
		return err
	})
	if err := s.db.SendBatch(ctx, b).Close(); err != nil {
		return nil, 0, fmt.Errorf("list halts: %w", err)
	}
	return some, all, nil
}
