package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrStatusUnchanged reports a suspension of a suspended submitter, or a resumption of an active
// one. Nothing was changed.
var ErrStatusUnchanged = errors.New("the submitter's status is that already")

// Suspension suspends a submitter, or resumes it.
type Suspension struct {
	Submitter txmanager.Submitter
	Suspend   bool // false: resume
	By        string
	Reason    string
}

const setStatus = `
with hit as (
  update submitter
     set status = $2
   where submitter = $1 and status <> $2
  returning submitter
), recorded as (
  insert into submitter_change (submitter, action, by, reason)
  select submitter, $3, $4, $5 from hit
)
select exists (select from submitter where submitter = $1), exists (select from hit)`

const findToken = `
select coalesce(l.fencing_token, 0), coalesce(l.name_epoch, '')
  from submitter s
  left join submitter_lease l using (submitter)
 where s.submitter = $1`

// SetStatus suspends or resumes, with a record of it, and returns the token in force after the
// commit. While a submitter is suspended no intent is accepted and no nonce is bound.
// Transactions that have a nonce proceed. It ends the lease session of the lease's holder, as
// [Store.PutPolicy] does. The error wraps [ErrUnknownSubmitter] or [ErrStatusUnchanged].
func (s *Store) SetStatus(ctx context.Context, c Suspension) (token int64, err error) {
	status, action := "ACTIVE", "RESUME"
	if c.Suspend {
		status, action = "SUSPENDED", "SUSPEND"
	}
	token, err = s.changeUnderLease(ctx, c.Submitter, func(tx pgx.Tx) error {
		var known, changed bool
		err := tx.QueryRow(ctx, setStatus, c.Submitter, status, action, c.By, c.Reason).Scan(&known, &changed)
		switch {
		case err == nil && !known:
			return ErrUnknownSubmitter
		case err == nil && !changed:
			return ErrStatusUnchanged
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", action, c.Submitter, err)
	}
	return token, nil
}
