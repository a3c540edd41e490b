package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// SignerChange moves a submitter's key to another signer.
type SignerChange struct {
	Submitter txmanager.Submitter
	Signer    string // which has the key now
	By        string // the operator
	Reason    string
}

// changeSigner locks the row first, so that the recorded signer is the one that was replaced.
// The row's key does not change, so that sessions which refer to it do not wait.
const changeSigner = `
with before as (
  select submitter, signer from submitter where submitter = $1 for no key update
), changed as (
  update submitter s
     set signer = $2
    from before b
   where s.submitter = b.submitter and b.signer <> $2
  returning s.submitter, b.signer as from_signer
), kept as (
  insert into submitter_change (submitter, action, by, reason, from_signer, to_signer)
  select submitter, 'SIGNER', $3, $4, from_signer, $2 from changed
)
select b.signer, b.signer <> $2 from before b`

// lockSubmitter is what changeSigner locks.
const lockSubmitter = `select from submitter where submitter = $1 for no key update`

// ChangeSigner changes the submitter's signer from the next lease session on, and records who
// did it and why. It returns the previous signer. If that is the same, nothing is written and
// changed is false. The error wraps [ErrUnknownSubmitter].
func (s *Store) ChangeSigner(ctx context.Context, c SignerChange) (from string, changed bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSubmitter, c.Submitter); err != nil {
			return err
		}
		if err := CarryOut(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, changeSigner, c.Submitter, c.Signer, c.By, PrintableText(c.Reason)).Scan(&from, &changed)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, fmt.Errorf("%s: %w", c.Submitter, ErrUnknownSubmitter)
	}
	if err != nil {
		return "", false, fmt.Errorf("change the signer of %s: %w", c.Submitter, err)
	}
	return from, changed, nil
}
