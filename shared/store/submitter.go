package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Registration puts one signing account under management.
type Registration struct {
	Submitter   txmanager.Submitter
	Signer      string // which signer holds its key
	StartNonce  uint64
	StartReason string // why it is not 0
	MaxInFlight int
	Callers     []string // who may post intents, by full names; "*": any token's holder
	CreatedBy   string   // the operator
	Policy      *Policy  // nil: no limits, or those that it has; without limits: none
}

// ErrRegisteredOtherwise reports a submitter that is already registered with other terms.
// Nothing was changed.
var ErrRegisteredOtherwise = errors.New("the submitter is registered with other terms")

const insertSubmitter = `
with new as (
  insert into submitter (submitter, signer, start_nonce, start_reason, max_in_flight, callers, created_by)
  values ($1, $2, $3, nullif($4, ''), $5, $6, $7)
      on conflict (submitter) do nothing
  returning submitter, start_nonce
), limited as (
  insert into submitter_policy (submitter, ` + policyColumns + `)
  select submitter, ` + policyValues + `
    from new, (select $8::jsonb as policy) as p
   where jsonb_strip_nulls(p.policy) <> '{}'
), recorded as (
  insert into submitter_change (submitter, action, by, reason, policy)
  select submitter, 'POLICY', $7, 'at its registration', $8::jsonb
    from new
   where jsonb_strip_nulls($8::jsonb) <> '{}'
)
insert into submitter_nonce_cursor (submitter, next_nonce)
select submitter, start_nonce from new`

// recordRegistration adds a registration that two operators approved to its submitter's audit
// chain.
const recordRegistration = `insert into submitter_change (submitter, action, by, reason) values ($1, 'APPROVED', $2, 'its registration')`

const sameSubmitter = `
select signer = $2 and start_nonce = $3 and max_in_flight = $4
       and ($5::jsonb is null or jsonb_strip_nulls($5::jsonb) = coalesce(jsonb_strip_nulls(` + policyOf + `), '{}')), s.callers, s.status
  from submitter s
 where submitter = $1`

// policyOf is the [Policy] of s as JSON; null: no limits.
const policyOf = `(select jsonb_build_object('maxValue', y.max_value_wei::text, 'maxValuePerDay', y.max_day_wei::text,
                                  'maxPerMinute', y.max_per_minute, 'targets', y.targets, 'maxFeePerTx', y.max_fee_wei::text,
                                  'maxPriorityFeePerGas', y.max_tip_wei::text, 'maxGas', y.max_gas, 'maxFeesPerDay', y.max_day_fees_wei::text,
                                  'perCaller', y.per_caller, 'tokens', y.tokens)
          from submitter_policy y where y.submitter = s.submitter and y.limited)`

// Register puts a submitter under management, with its cursor at StartNonce. A repeated call
// on the same terms changes nothing and returns false. The error wraps
// [ErrRegisteredOtherwise] if the terms differ, or [ErrRetired].
func (s *Store) Register(ctx context.Context, r Registration) (isNew bool, err error) {
	var same bool
	var callers []string
	var status string
	b := new(pgx.Batch)
	queueCarryOut(ctx, b)
	b.Queue(insertSubmitter, r.Submitter, r.Signer, Bigint(r.StartNonce), r.StartReason, r.MaxInFlight, r.Callers, r.CreatedBy, r.Policy).
		Exec(results.Any(&isNew))
	if proposalOf(ctx) != "" {
		b.Queue(recordRegistration, r.Submitter, r.CreatedBy)
	}
	b.Queue(sameSubmitter, r.Submitter, r.Signer, Bigint(r.StartNonce), r.MaxInFlight, r.Policy).QueryRow(results.Scan(&same, &callers, &status))
	if err := s.send(ctx, b); err != nil {
		return false, fmt.Errorf("register %s: %w", r.Submitter, err)
	}
	if status == statusRetired {
		return false, fmt.Errorf("%s: %w", r.Submitter, ErrRetired)
	}
	if !isNew && !(same && sameCallers(callers, r.Callers)) {
		return false, fmt.Errorf("%s: %w", r.Submitter, ErrRegisteredOtherwise)
	}
	return isNew, nil
}

// SubmitterView is a submitter as an operator sees it.
type SubmitterView struct {
	Submitter     txmanager.Submitter `json:"submitter"`
	Signer        string              `json:"signer"`
	Status        string              `json:"status"`
	StartNonce    int64               `json:"startNonce"`
	StartReason   *string             `json:"startReason"`
	MaxInFlight   int                 `json:"maxInFlight"`
	Name          string              `json:"name"` // for people; "": none
	Callers       []string            `json:"callers"`
	CreatedAt     time.Time           `json:"createdAt"`
	CreatedBy     string              `json:"createdBy"`
	NextNonce     int64               `json:"nextNonce"`
	InFlightState string              `json:"inFlightState"`
	InFlightNonce *int64              `json:"inFlightNonce"`
	InFlightTxID  *string             `json:"inFlightTxId"`
	Queued        int64               `json:"queued"` // with those that are held
	Held          int64               `json:"held"`
	FencingToken  int64               `json:"fencingToken"`
	LeaseOwner    string              `json:"leaseOwner"`
	LeaseExpires  *time.Time          `json:"leaseExpiresAt"`
	Protect       json.RawMessage     `json:"protect"`
	Policy        json.RawMessage     `json:"policy"`    // a [Policy]; null: no limit
	Succeeded     []Succession        `json:"succeeded"` // by the names of who was succeeded
}

// Succession is a former caller and its successor, who has the intents stored under the former
// name.
type Succession struct {
	Caller string `json:"caller"`
	By     string `json:"by"`
}

const viewSubmitters = `
select s.submitter, s.signer, s.status, s.start_nonce, s.start_reason, s.max_in_flight, s.name, s.callers,
       s.created_at, s.created_by, c.next_nonce, c.in_flight_state, c.in_flight_nonce, c.in_flight_tx_id,
       (select count(*) from managed_tx m where m.submitter = s.submitter and m.queued),
       (select count(*) from managed_tx m where m.submitter = s.submitter and m.queued and m.held),
       coalesce(l.fencing_token, 0), coalesce(l.owner_node, ''), l.expires_at,
       (select jsonb_build_object('incident', p.incident, 'since', p.opened_at, 'evidence', p.evidence)
          from protect_incident p where p.submitter = s.submitter and p.closed_at is null),
       ` + policyOf + `,
       (select coalesce(jsonb_agg(jsonb_build_object('caller', o.key, 'by', o.value) order by o.key), '[]') from jsonb_each_text(s.succeeded) as o)
  from submitter s
  join submitter_nonce_cursor c using (submitter)
  left join submitter_lease l using (submitter)`

const viewSubmitter = viewSubmitters + ` where s.submitter = $1`

// Submitter is one submitter. The error wraps [ErrUnknownSubmitter].
func (s *Store) Submitter(ctx context.Context, sub txmanager.Submitter) (SubmitterView, error) {
	v, err := results.One(ctx, s.db, pgx.RowToStructByPos[SubmitterView], viewSubmitter, sub)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, fmt.Errorf("%s: %w", sub, ErrUnknownSubmitter)
	}
	v.fullNames()
	return v, err
}

// fullNames puts the kind in front of each caller's name, also of names that were stored
// before names had kinds.
func (v *SubmitterView) fullNames() {
	v.Callers = fullCallers(v.Callers)
	for i, x := range v.Succeeded {
		v.Succeeded[i].Caller = FullCaller(x.Caller)
	}
	v.Succeeded = slices.DeleteFunc(v.Succeeded, func(x Succession) bool { return x.Caller == x.By })
	slices.SortFunc(v.Succeeded, func(a, b Succession) int { return strings.Compare(a.Caller, b.Caller) })
	v.Succeeded = slices.Compact(v.Succeeded)
}

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
	return from, changed, results.Wrap(err, "change the signer of %s", c.Submitter)
}

// statusRetired is the status of a submitter that is never used again.
const statusRetired = "RETIRED"

// Retired reports whether the submitter is retired.
func (v SubmitterView) Retired() bool { return v.Status == statusRetired }

// OpenWorkError reports that a submitter still has work, so that it cannot be retired. Nothing was changed.
type OpenWorkError struct{ Work string }

// Error names the work.
func (e OpenWorkError) Error() string { return "the submitter has " + e.Work }

// Retirement ends the use of a submitter for ever.
type Retirement struct {
	Submitter  txmanager.Submitter
	By, Reason string
}

const retire = `
with hit as (
  update submitter set status = '` + statusRetired + `' where submitter = $1 and status <> '` + statusRetired + `'
  returning submitter
), recorded as (
  insert into submitter_change (submitter, action, by, reason)
  select submitter, 'RETIRE', $2, $3 from hit
)
select exists (select from submitter where submitter = $1), exists (select from hit)`

// Retire retires a submitter without open work: queued intents, open transactions, an open PROTECT incident,
// undecided foreign transactions, an asset that it pays for, or open payouts. The database's triggers compare
// it with concurrent creates. From the commit on no intent is accepted, and no holder of its lease can write.
// The error wraps [ErrUnknownSubmitter] or [ErrStatusUnchanged], or is an [OpenWorkError].
func (s *Store) Retire(ctx context.Context, r Retirement) error {
	_, _, err := s.changeUnderLease(ctx, r.Submitter, func(tx pgx.Tx) error {
		var known, changed bool
		err := tx.QueryRow(ctx, retire, r.Submitter, r.By, PrintableText(r.Reason)).Scan(&known, &changed)
		switch {
		case err == nil && !known:
			return ErrUnknownSubmitter
		case err == nil && !changed:
			return ErrStatusUnchanged
		}
		if pg := results.Refusal(err); pg.Code == openWorkCode {
			return OpenWorkError{pg.Detail}
		}
		return err
	})
	return results.Wrap(err, "retire %s", r.Submitter)
}

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
   where submitter = $1 and status not in ($2, '` + statusRetired + `')
  returning submitter
), recorded as (
  insert into submitter_change (submitter, action, by, reason)
  select submitter, $3, $4, $5 from hit
)
select coalesce((select status from submitter where submitter = $1), ''), exists (select from hit)`

const findToken = `
select coalesce(l.fencing_token, 0), coalesce(l.name_epoch, '')
  from submitter s
  left join submitter_lease l using (submitter)
 where s.submitter = $1`

// SetStatus suspends or resumes, with a record of it, and returns the token in force after the
// commit. While a submitter is suspended no intent is accepted and no nonce is bound.
// Transactions that have a nonce proceed. It ends the lease session of the lease's holder, as
// [Store.PutPolicy] does. The error wraps [ErrUnknownSubmitter], [ErrStatusUnchanged] or
// [ErrRetired].
func (s *Store) SetStatus(ctx context.Context, c Suspension) (token int64, err error) {
	status, action := "ACTIVE", "RESUME"
	if c.Suspend {
		status, action = "SUSPENDED", "SUSPEND"
	}
	token, _, err = s.changeUnderLease(ctx, c.Submitter, func(tx pgx.Tx) error {
		var was string
		var changed bool
		err := tx.QueryRow(ctx, setStatus, c.Submitter, status, action, c.By, c.Reason).Scan(&was, &changed)
		switch {
		case err == nil && was == "":
			return ErrUnknownSubmitter
		case err == nil && was == statusRetired:
			return ErrRetired
		case err == nil && !changed:
			return ErrStatusUnchanged
		}
		return err
	})
	return token, results.Wrap(err, "%s %s", action, c.Submitter)
}
