package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
  insert into submitter_policy (submitter, max_fee_wei, max_tip_wei, max_gas, max_day_fees_wei, max_value_wei, max_day_wei, max_per_minute, targets, per_caller, tokens)
  select submitter, ($8::jsonb ->> 'maxFeePerTx')::numeric, ($8::jsonb ->> 'maxPriorityFeePerGas')::numeric, ($8::jsonb ->> 'maxGas')::bigint,
         ($8::jsonb ->> 'maxFeesPerDay')::numeric, ($8::jsonb ->> 'maxValue')::numeric, ($8::jsonb ->> 'maxValuePerDay')::numeric, ($8::jsonb ->> 'maxPerMinute')::int,
         case when jsonb_typeof($8::jsonb -> 'targets') = 'array' then array(select jsonb_array_elements_text($8::jsonb -> 'targets')) end,
         nullif($8::jsonb -> 'perCaller', 'null'), nullif($8::jsonb -> 'tokens', 'null')
    from new
   where jsonb_strip_nulls($8::jsonb) <> '{}'
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
       and ($5::jsonb is null or $5::jsonb = coalesce(` + policyOf + `,
         '{"maxValue": null, "maxValuePerDay": null, "maxPerMinute": null, "targets": null,
           "maxFeePerTx": null, "maxPriorityFeePerGas": null, "maxGas": null, "maxFeesPerDay": null, "perCaller": null, "tokens": null}')), s.callers
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
// [ErrRegisteredOtherwise] if the terms differ.
func (s *Store) Register(ctx context.Context, r Registration) (isNew bool, err error) {
	var same bool
	var callers []string
	var policy *string
	if r.Policy != nil {
		text, err := json.Marshal(r.Policy)
		if err != nil {
			return false, fmt.Errorf("policy of %s: %w", r.Submitter, err)
		}
		policy = new(string(text))
	}
	b := new(pgx.Batch)
	queueCarryOut(ctx, b)
	b.Queue(insertSubmitter, r.Submitter, r.Signer, Bigint(r.StartNonce), r.StartReason, r.MaxInFlight, r.Callers, r.CreatedBy, policy).
		Exec(func(tag pgconn.CommandTag) error {
			isNew = tag.RowsAffected() == 1
			return nil
		})
	if proposalOf(ctx) != "" {
		b.Queue(recordRegistration, r.Submitter, r.CreatedBy)
	}
	b.Queue(sameSubmitter, r.Submitter, r.Signer, Bigint(r.StartNonce), r.MaxInFlight, policy).
		QueryRow(func(row pgx.Row) error { return row.Scan(&same, &callers) })
	if err := s.send(ctx, b); err != nil {
		return false, fmt.Errorf("register %s: %w", r.Submitter, err)
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
select s.submitter, s.signer, s.status, s.start_nonce, s.start_reason, s.max_in_flight, s.callers,
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

// Submitter is one submitter. The error wraps [ErrUnknownSubmitter].
func (s *Store) Submitter(ctx context.Context, sub txmanager.Submitter) (SubmitterView, error) {
	rows, err := s.db.Query(ctx, viewSubmitters+` where s.submitter = $1`, sub)
	if err != nil {
		return SubmitterView{}, err
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[SubmitterView])
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

// Submitters lists up to limit submitters after the one named, in their order.
func (s *Store) Submitters(ctx context.Context, after string, limit int) ([]SubmitterView, error) {
	rows, err := s.db.Query(ctx, viewSubmitters+` where s.submitter > $1 order by s.submitter limit $2`, after, limit)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SubmitterView])
	for i := range all {
		all[i].fullNames()
	}
	return all, err
}

const activeOn = `
select submitter
  from submitter
 where submitter like 'eip155:' || $1::text || ':%' and status = 'ACTIVE'
 order by submitter
 limit $2`

// ActiveOn lists the first active submitters of the chain, in their order.
func (s *Store) ActiveOn(ctx context.Context, chainID uint64, limit int) ([]txmanager.Submitter, error) {
	rows, err := s.db.Query(ctx, activeOn, strconv.FormatUint(chainID, 10), limit)
	if err != nil {
		return nil, fmt.Errorf("list the submitters of chain %d: %w", chainID, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[txmanager.Submitter])
}
