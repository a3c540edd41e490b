package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// SubmitterUpdate changes what a submitter was registered with, by an operator. A nil term stays.
type SubmitterUpdate struct {
	Submitter   txmanager.Submitter
	MaxInFlight *int    // the window
	Name        *string // for people; "": none
	By          string
	Reason      string

	OnlyNarrower bool // the window may not become wider: see [ErrNotTighter]
}

// PayerWindowError reports a window that is wider than a payer has ever had. Nothing was changed. After a
// restore, a release fills a payer's nonces up to its widest window, so that no lost payout is paid twice. A
// window from after the backup would be unknown then.
type PayerWindowError struct{ Widest int }

// Error states the widest window.
func (e PayerWindowError) Error() string {
	return fmt.Sprintf("the submitter is a payer, whose window was never above %d", e.Widest)
}

const lockTerms = `
select s.max_in_flight, s.name, ` + widestWindow + `, '` + PayoutCaller + `' = any(s.callers), s.status = '` + statusRetired + `'
  from submitter s
 where s.submitter = $1
   for no key update`

const updateTerms = `
with changed as (
  update submitter set max_in_flight = $2, name = $3 where submitter = $1
  returning submitter
)
insert into submitter_change (submitter, action, by, reason, from_max_in_flight, to_max_in_flight, from_name, to_name)
select submitter, 'UPDATE', $6, $7, nullif($4::integer, $2), nullif($2::integer, $4), nullif($5::text, $3), nullif($3::text, $5)
  from changed`

// UpdateSubmitter changes the terms, with a record of them before and after, and returns the token in force
// after the commit. It ends the lease session of the lease's holder, so that each nonce is allocated by the
// new window after the commit. A narrower window only stops allocation: open transactions continue. The same
// terms again change nothing. The error wraps [ErrUnknownSubmitter], [ErrRetired] or [ErrNotTighter], or is
// a [PayerWindowError].
func (s *Store) UpdateSubmitter(ctx context.Context, u SubmitterUpdate) (token int64, changed bool, err error) {
	token, changed, err = s.changeUnderLease(ctx, u.Submitter, func(tx pgx.Tx) error {
		var window, widest int
		var name string
		var payer, retired bool
		err := tx.QueryRow(ctx, lockTerms, u.Submitter).Scan(&window, &name, &widest, &payer, &retired)
		if err != nil {
			return results.Missing(err, ErrUnknownSubmitter)
		}
		toWindow, toName := *cmp.Or(u.MaxInFlight, &window), *cmp.Or(u.Name, &name)
		switch {
		case retired:
			return ErrRetired
		case payer && toWindow > widest:
			return PayerWindowError{widest}
		case u.OnlyNarrower && toWindow > window:
			return ErrNotTighter
		case toWindow == window && toName == name:
			return errSame
		}
		_, err = tx.Exec(ctx, updateTerms, u.Submitter, toWindow, toName, window, name, u.By, PrintableText(u.Reason))
		return err
	})
	return token, changed, results.Wrap(err, "update %s", u.Submitter)
}

// SubmitterChange is one recorded change of a submitter by an operator. Members that do not fit the action
// are empty.
type SubmitterChange struct {
	ID              int64             `json:"-"`
	Action          string            `json:"action"` // SUSPEND, RESUME, POLICY, SIGNER, CALLERS, UPDATE, RETIRE, or APPROVED for another approved act
	At              time.Time         `json:"at"`
	By              string            `json:"by"`
	Reason          string            `json:"reason"`
	ProposalID      *string           `json:"proposalId"` // nil: one operator decided
	ApprovedBy      *string           `json:"approvedBy"`
	Policy          json.RawMessage   `json:"policy,omitempty"` // a [Policy]
	FromSigner      *string           `json:"fromSigner,omitempty"`
	ToSigner        *string           `json:"toSigner,omitempty"`
	FromCallers     []string          `json:"fromCallers,omitempty"`
	ToCallers       []string          `json:"toCallers,omitempty"`
	Succeeds        map[string]string `json:"succeeds,omitempty"`
	FromMaxInFlight *int              `json:"fromMaxInFlight,omitempty"`
	ToMaxInFlight   *int              `json:"toMaxInFlight,omitempty"`
	FromName        *string           `json:"fromName,omitempty"`
	ToName          *string           `json:"toName,omitempty"`
}

const listChanges = `
select c.id, c.action, c.at, c.by, c.reason, c.proposal::text, c.approved_by, c.policy, c.from_signer, c.to_signer,
       c.from_callers, c.to_callers, c.succeeds, c.from_max_in_flight, c.to_max_in_flight, c.from_name, c.to_name
  from submitter_change c
 where c.submitter = $1 and c.id < $2
 order by c.id desc
 limit $3`

// Changes lists up to limit recorded changes of the submitter with an ID below the given one, the newest
// first. The error wraps [ErrUnknownSubmitter].
func (s *Store) Changes(ctx context.Context, sub txmanager.Submitter, below int64, limit int) ([]SubmitterChange, error) {
	all, err := rowsOfSubmitter[SubmitterChange](ctx, s, "list the changes", sub, listChanges, below, limit)
	for i := range all {
		all[i].At = all[i].At.UTC()
	}
	return all, err
}
