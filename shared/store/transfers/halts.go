package transfers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
values ($1, nullif($2::bigint, 0), nullif($3::integer, 0), $4::text::jsonb)
    on conflict (scope, coalesce(user_id, 0), coalesce(asset_id, 0)) where resumed_at is null do nothing`

// OpenHalt halts, and says whether it was not halted so already. Of h the scope, the
// user, the asset and the evidence count. At most one is open for each.
func (s *Store) OpenHalt(ctx context.Context, h Halt) (opened bool, err error) {
	tag, err := s.db.Exec(ctx, openHalt, h.Scope, h.UserID, h.AssetID, string(h.Evidence))
	if err != nil {
		return false, fmt.Errorf("halt %s: %w", h.Scope, err)
	}
	return tag.RowsAffected() == 1, nil
}

// ErrNotHalted reports a halt that is not open, or not there. Nothing was changed.
var ErrNotHalted = errors.New("no such halt is open")

const resume = `
update transfer_halt
   set resumed_at = clock_timestamp(), resumed_by = $2, resume_reason = $3
 where halt_id = $1 and resumed_at is null`

// Resume ends the halt of that number, and no other: one that began since a person
// looked is not ended unseen. Neither by nor reason may be empty. The error is
// [ErrNotHalted] where it is not open.
func (s *Store) Resume(ctx context.Context, halt int64, by, reason string) error {
	tag, err := s.db.Exec(ctx, resume, halt, by, reason)
	switch {
	case err != nil:
		return fmt.Errorf("resume halt %d: %w", halt, err)
	case tag.RowsAffected() == 0:
		return ErrNotHalted
	}
	return nil
}

// OpenHalts lists the halts that are open, in the order they began.
func (s *Store) OpenHalts(ctx context.Context) ([]Halt, error) {
	rows, err := s.db.Query(ctx, `
		select halt_id, scope, coalesce(user_id, 0), coalesce(asset_id, 0), since, evidence::text::bytea,
		       resumed_at, coalesce(resumed_by, ''), coalesce(resume_reason, '')
		  from transfer_halt
		 where resumed_at is null
		 order by halt_id`)
	if err != nil {
		return nil, fmt.Errorf("list halts: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Halt])
}
