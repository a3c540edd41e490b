package store

import (
	"cmp"
	"context"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// lockPolicies makes creates of submitters with limits over time wait for each other, in one
// order. It comes before the statements that read the use so far, because a snapshot is taken
// when its statement starts.
const lockPolicies = `
select from submitter_policy where submitter = any($1::text[]) and over_time order by submitter for update`

// feesCheckedLater stands for fees that are checked later, at signing, by [txmanager.Bounds],
// which read the same row.
const feesCheckedLater = `null::bigint as gas, null::numeric as tip_wei, null::numeric as fee_wei`

// feesInDay is what the last 24 hours have added to the submitter's fees, if p limits them.
const feesInDay = `case when p.max_day_fees_wei is not null then
         coalesce((select f.total_wei from submitter_fee f where f.submitter = p.submitter order by f.number desc limit 1), 0)
         - coalesce((select f.total_wei from submitter_fee f
             where f.submitter = p.submitter and f.at <= (select clock_timestamp() - interval '24 hours') order by f.at desc, f.number desc limit 1), 0) end`

// usesOfSubmitter and usesOf are the rows u with the running sums of the submitter, and of one of its callers or tokens.
const usesOfSubmitter = `submitter_use u where u.submitter = @submitter`

func usesOf(scope string) string {
	return `policy_use u where u.submitter = @submitter and u.scope = ` + scope
}

// newest is the newest row of uses.
func newest(uses string) string { return `select * from ` + uses + ` order by u.number desc limit 1` }

// since is by how much a running sum of uses has grown to total after a time.
func since(total, column, uses, time string) string {
	return `coalesce(` + total + `, 0) - coalesce((select u.` + column + ` from ` + uses + ` and u.at <= ` + time + ` order by u.at desc, u.number desc limit 1), 0)`
}

// inMinute is the number of intents within a minute.
func inMinute(intents, uses, now string) string {
	return since(intents, "intents", uses, now+` - interval '1 minute'`)
}

// inDay is the scope's use within 24 hours, less released amounts.
func inDay(total, uses, column, scope, now string) string {
	return since(total, column, uses, now+` - interval '24 hours'`) + `
         - coalesce((select sum(g.amount) from policy_released_use g where g.submitter = @submitter and g.scope = ` + scope + ` and g.minute > ` + now + ` - interval '24 hours'), 0)`
}

// submitterUse is what counts against the submitter's limits over time.
var submitterUse = `
  select coalesce(l.number, 0) as number, coalesce(l.intents, 0) as intents, coalesce(l.value_wei, 0) as value_wei, greatest(c.now, l.at) as at, c.now,
         ` + inMinute("l.intents", usesOfSubmitter, "c.now") + ` as in_minute, ` + inDay("l.value_wei", usesOfSubmitter, "value_wei", "''", "c.now") + ` as in_day
    from (select clock_timestamp() as now) as c
    left join lateral (` + newest(usesOfSubmitter) + `) as l on true`

// fullName is [FullCaller] of a column.
func fullName(name string) string {
	return `case when ` + name + ` in ('', '` + PayoutCaller + `', '` + HooksCaller + `', '` + AnyCaller + `') or ` + name + ` ~ '^(email|sub|handler):' then ` + name + `
              when position('@' in ` + name + `) > 0 then '` + EmailCaller + `' || ` + name + ` else '` + SubjectCaller + `' || ` + name + ` end`
}

// limitsOf are the limits of a caller by the policy p of the submitter s. The limits of its
// present name and of each name that it succeeded apply, so that a change of names gives no second
// quota. If p names none of them, the limits of "*" apply. known are these names as
// transactions have them, names the full ones.
func limitsOf(caller string) string {
	return `lateral (
       select coalesce(s.succeeded ->> x.caller, x.caller) as present from (select (` + caller + `)::text as caller) as x offset 0) as w
 cross join lateral (
       select array(select w.present union select o.key from jsonb_each_text(s.succeeded) as o where o.value = w.present) as known offset 0) as h
 cross join lateral (
       select array(select ` + fullName("a.name") + ` from unnest(h.known) as a (name) group by 1) as names offset 0) as n
 cross join lateral (
       select min((e.terms ->> 'maxValue')::numeric) as max_value_wei, min((e.terms ->> 'maxValuePerDay')::numeric) as max_day_wei,
              min((e.terms ->> 'maxPerMinute')::bigint) as max_per_minute, min((e.terms ->> 'maxQueued')::bigint) as max_queued
         from (select p.per_caller -> a.name as terms
                 from unnest(case when p.per_caller ?| n.names then n.names else array['` + AnyCaller + `'] end) as a (name)) as e) as k`
}

// judging has a statement's SQL expressions for the inputs of a verdict.
type judging struct {
	caller string // who posted
	amount string // of a call of a token's transfer, approve or transferFrom; null: it is none
	queues string // whether it joins the queue
	fees   string
}

// ofTheRow is who posted the transaction.
const ofTheRow = `select m.caller from managed_tx m where m.tx_id = @tx_id::uuid`

// verdict checks one intent, a handler's transaction, or what a reservation's owner signed.
// counts is the number of intents; for targets see [targetsOf]. A value or targets that are not
// known yet are null. An input that adds nothing always passes, even if the day's limit was
// lowered below the present use. Recorded times never decrease, so that the windows hold if the
// clock is set back.
func verdict(of judging) string {
	return `
used as (` + submitterUse + `
), theirs as (
  select f.scope, coalesce(l.number, 0) as number, coalesce(l.intents, 0) as intents, coalesce(l.total, 0) as total, greatest(c.now, l.at) as at,
         h.known, k.*, i.in_minute, i.in_day
    from submitter_policy p
    join submitter s on s.submitter = p.submitter
   cross join ` + limitsOf(of.caller) + `
   cross join used c
   cross join lateral (select ` + fullName("w.present") + ` as scope offset 0) as f
    left join lateral (` + newest(usesOf("f.scope")) + `) as l on true
   cross join lateral (
       select sum(` + inMinute("o.intents", usesOf("a.name"), "c.now") + `) as in_minute, sum(` + inDay("o.total", usesOf("a.name"), "total", "a.name", "c.now") + `) as in_day
         from unnest(n.names) as a (name)
         left join lateral (` + newest(usesOf("a.name")) + `) as o on true) as i
   where p.submitter = @submitter and p.per_caller is not null
), token as (
  select t.scope, coalesce(l.number, 0) as number, coalesce(l.intents, 0) as intents, coalesce(l.total, 0) as total, greatest(c.now, l.at) as at,
         (p.tokens -> t.scope ->> 'maxAmount')::numeric as max_units, (p.tokens -> t.scope ->> 'maxAmountPerDay')::numeric as max_day_units,
         ` + inDay("l.total", usesOf("t.scope"), "total", "t.scope", "c.now") + ` as in_day
    from submitter_policy p
   cross join (select (@targets::text[])[1] as scope) as t
   cross join used c
    left join lateral (` + newest(usesOf("t.scope")) + `) as l on true
   where p.submitter = @submitter and p.tokens ? t.scope
), asked as (
  select @tx_id::uuid as tx_id, @value::numeric as value_wei, @targets::text[] as targets, @counts::bigint as counts, ` + of.amount + ` as units, (@targets::text[])[2] as function,
         greatest(0, coalesce(@value::numeric, 0) - coalesce((select sum(added_wei) from submitter_use u where u.tx_id = @tx_id::uuid), 0)) as added_wei, ` + of.fees + `
), evaluated as (
  select a.*, p.submitter is not null and p.over_time as over_time, p.max_value_wei, p.max_per_minute, p.max_day_wei,
         p.max_gas, p.max_tip_wei, p.max_day_fees_wei, least(p.max_fee_wei, p.max_day_fees_wei) as max_fee_wei,
         w.max_value_wei as caller_value, w.max_per_minute as caller_minute, w.max_queued as caller_queue, w.max_day_wei as caller_day,
         t.max_units, t.max_day_units, b.caller_wei, b.token_units,
         case when a.value_wei > p.max_value_wei then 'VALUE'
              when a.value_wei > w.max_value_wei then 'CALLER_VALUE'
              when not a.targets && p.targets then 'TARGET'
              when t.scope is not null and a.units is null
                   and not coalesce(a.function = any(p.targets) and right(a.function, 10) not in (` + boundedSelectors + `), false) then 'TOKEN'
              when a.units > t.max_units then 'AMOUNT'
              when a.gas > p.max_gas then 'GAS'
              when a.tip_wei > p.max_tip_wei then 'TIP'
              when a.fee_wei > least(p.max_fee_wei, p.max_day_fees_wei) then 'FEE'
              when a.counts > p.max_per_minute then 'COUNT'
              when a.counts > w.max_per_minute then 'CALLER_COUNT'
              when a.counts > 0 and u.in_minute + a.counts > p.max_per_minute then 'RATE'
              when a.counts > 0 and w.in_minute + a.counts > w.max_per_minute then 'CALLER_RATE'
              when ` + of.queues + ` and w.max_queued is not null and (select count(*) from (select from unnest(w.known) as a (name)
                   cross join lateral (select from managed_tx q where q.caller = a.name and q.submitter = @submitter and q.queued and not q.held limit w.max_queued) as one
                   limit w.max_queued) as waiting) >= w.max_queued then 'CALLER_QUEUE'
              when u.in_day + a.added_wei > case when p.max_day_wei < u.in_day then u.in_day else p.max_day_wei end then 'DAY'
              when w.in_day + b.caller_wei > case when w.max_day_wei < w.in_day then w.in_day else w.max_day_wei end then 'CALLER_DAY'
              when t.in_day + b.token_units > case when t.max_day_units < t.in_day then t.in_day else t.max_day_units end then 'AMOUNT_DAY'
              when a.fee_wei > 0 and ` + feesInDay + ` + a.fee_wei > p.max_day_fees_wei then 'FEES'
              else '' end as refused
    from asked a
   cross join used u
    left join submitter_policy p on p.submitter = @submitter
    left join theirs w on true
    left join token t on true
   cross join lateral (
       select case when w.scope is not null then greatest(0, coalesce(a.value_wei, 0)
                - coalesce((select sum(x.added) from policy_use x where x.tx_id = a.tx_id and not starts_with(x.scope, '0x')), 0)) else 0 end as caller_wei,
              case when t.scope is not null then greatest(0, coalesce(a.units, 0)
                - coalesce((select sum(x.added) from policy_use x where x.tx_id = a.tx_id and x.scope = t.scope), 0)) else 0 end as token_units) as b
)`
}

// boundedSelectors are the selectors of the token functions whose amount is limited: see
// [txmanager.BoundedFunction].
const boundedSelectors = `'0xa9059cbb', '0x095ea7b3', '0x23b872dd'`

// verdictColumns are the rule that refuses, or "", and its limit.
const verdictColumns = `
select refused, coalesce(case refused when 'VALUE' then max_value_wei::text when 'RATE' then max_per_minute::text when 'COUNT' then max_per_minute::text when 'DAY' then max_day_wei::text
         when 'GAS' then max_gas::text when 'TIP' then max_tip_wei::text when 'FEE' then max_fee_wei::text when 'FEES' then max_day_fees_wei::text
         when 'CALLER_VALUE' then caller_value::text when 'CALLER_COUNT' then caller_minute::text when 'CALLER_RATE' then caller_minute::text
         when 'CALLER_QUEUE' then caller_queue::text when 'CALLER_DAY' then caller_day::text
         when 'AMOUNT' then max_units::text when 'AMOUNT_DAY' then max_day_units::text end, '')
  from evaluated`

// countUse counts an accepted intent for the submitter, its caller and the token. when is the
// condition of all three, submitters a further one of the first.
func countUse(when, submitters string) string {
	return `counted as (
  insert into submitter_use (submitter, number, at, tx_id, added_wei, intents, value_wei)
  select @submitter, u.number + 1, u.at, j.tx_id, j.added_wei, u.intents + j.counts, u.value_wei + j.added_wei
    from evaluated j, used u
   where j.over_time and ` + when + submitters + `
), scoped as (
  insert into policy_use (submitter, scope, number, at, tx_id, added, intents, total)
  select @submitter, w.scope, w.number + 1, w.at, j.tx_id, j.caller_wei, w.intents + j.counts, w.total + j.caller_wei
    from evaluated j, theirs w
   where j.over_time and j.counts + j.caller_wei > 0 and ` + when + `
   union all
  select @submitter, t.scope, t.number + 1, t.at, j.tx_id, j.token_units, t.intents + j.counts, t.total + j.token_units
    from evaluated j, token t
   where j.over_time and j.token_units > 0 and ` + when + `
)`
}

// permit counts a handler's transaction once.
var permit = `
with ` + verdict(judging{caller: ofTheRow, amount: `@amount::numeric`, queues: `false`, fees: feesCheckedLater}) + `, ` +
	countUse(`j.refused = ''`, ` and j.added_wei > 0`) + verdictColumns

// scanVerdict reads verdictColumns.
func scanVerdict(row pgx.Row) (*PolicyError, error) {
	var e PolicyError
	if err := row.Scan(&e.Rule, &e.Limit); err != nil || e.Rule == "" {
		return nil, err
	}
	return &e, nil
}

// weiOf is the value of a call.
func weiOf(c txmanager.Call) string { return cmp.Or(c.Value, new(big.Int)).String() }

// CheckPolicy implements [txmanager.Store].
func (s *Store) CheckPolicy(ctx context.Context, l lease.Lease, txID string, c txmanager.Call) (refused string, err error) {
	b := new(pgx.Batch)
	b.Queue(`select require_lease($1, $2, $3)`, l.Submitter, l.Owner, l.Token)
	b.Queue(lockPolicies, []string{l.Submitter})
	b.Queue(permit, NamedArgs{
		"submitter": l.Submitter, "tx_id": txID, "value": weiOf(c), "targets": targetsOf(c), "counts": 0, "amount": decimalOrNull(c.TokenAmount()),
	}).QueryRow(func(row pgx.Row) error {
		e, err := scanVerdict(row)
		if e != nil {
			refused = e.Error()
		}
		return err
	})
	err = s.send(ctx, b)
	return refused, err
}

// insertLimited is [insertIntents] for one intent of a submitter that may have a
// policy.
var insertLimited = `
with ` + verdict(judging{
	caller: `select ` + storedCaller + ` from (values (@caller::text, @names::text)) as i (caller, names)`, amount: `@amount::numeric`, queues: `true`,
	fees: `@gas::bigint as gas, @tip::numeric as tip_wei, @fee::numeric as fee_wei`,
}) + `, new as (
  insert into managed_tx (tx_id, submitter, request_id, caller, handler, fingerprint, trace, fencing_token, held, held_for, last_error, mac, mac_key, valid_until)
  select j.tx_id, s.submitter, @request_id, ` + storedCaller + `, nullif(i.handler, ''), @fingerprint, @trace,
         (select fencing_token from submitter_lease where submitter = s.submitter), ` + heldColumns + `, ` + storedMAC + `, @valid_until::timestamptz
    from evaluated j
   cross join (values (@caller::text, @handler::text, @digest::bytea, @request_id::text, @names::text, @macs::bytea, @mac_key::text)) as i (caller, handler, digest, request_id, names, macs, mac_key)
    join submitter s on s.submitter = @submitter
   cross join ` + holdCause + `
   where j.refused = '' and ` + mayPost + ` and (f.held_for is null or @beside)
     and (@valid_until::timestamptz is null or @valid_until > clock_timestamp())
      on conflict (submitter, request_id) do nothing
  returning tx_id
), ` + countUse(`exists (select from new)`, ``) + verdictColumns

// queueLimited handles each intent of a submitter that is not cached as one without a policy.
// It adds a statement that checks the intent and stores it if nothing refuses it.
func (s *Store) queueLimited(b *pgx.Batch, c creation) error {
	var locks []string
	for i, r := range c.records {
		if c.found[i].evaluated = r.placed && !s.unlimited.last(r.Submitter); c.found[i].evaluated {
			locks = append(locks, string(r.Submitter))
		}
	}
	if len(locks) > 0 {
		b.Queue(lockPolicies, locks)
	}
	for i, r := range c.records {
		if !c.found[i].evaluated {
			continue
		}
		a, err := policyInputOf(r.Intent)
		if err != nil {
			return err
		}
		b.Queue(insertLimited, NamedArgs{
			"submitter": r.Submitter, "tx_id": r.TxID, "request_id": r.RequestID, "caller": r.Caller, "names": r.names, "handler": r.Handler,
			"fingerprint": r.Fingerprint[:], "digest": r.digest, "trace": r.Trace, "valid_until": micros(r.ValidUntil), "macs": r.mac.sums, "mac_key": r.mac.key,
			"value": a.value, "targets": a.targets, "counts": 1, "amount": a.amount, "gas": a.gas, "tip": a.tip, "fee": a.fee,
			"beside": c.beside,
		}).QueryRow(func(row pgx.Row) (err error) {
			c.found[i].refused, err = scanVerdict(row)
			return err
		})
	}
	return nil
}

// PolicyUse is what counts now against the limits over time of a submitter's policy.
type PolicyUse struct {
	At              time.Time     `json:"at"`
	IntentsInMinute int64         `json:"intentsInMinute"`
	ValueInDay      string        `json:"valueInDay"` // wei, of the last 24 hours
	FeesInDay       *string       `json:"feesInDay"`  // wei; nil: the policy does not limit them
	Scopes          []PolicyScope `json:"scopes" db:"-"`
}

// PolicyScope is the use by one caller, or of one token.
type PolicyScope struct {
	Scope           string `json:"scope"` // the caller's full name, or the token's address
	IntentsInMinute int64  `json:"intentsInMinute"`
	InDay           string `json:"inDay"` // of a caller in wei, of a token in its base units
}

var (
	policyUse = `
select c.now, c.in_minute, c.in_day::text, (` + feesInDay + `)::text
  from (` + submitterUse + `) as c
  left join submitter_policy p on p.submitter = @submitter`

	policyScopes = `
with recursive scopes as (
  (select min(u.scope) as scope from policy_use u where u.submitter = @submitter and u.scope > @after)
  union all
  select (select min(u.scope) from policy_use u where u.submitter = @submitter and u.scope > s.scope) from scopes s where s.scope is not null
)
select s.scope,
       ` + inMinute("o.intents", usesOf("s.scope"), "c.now") + `,
       (` + inDay("o.total", usesOf("s.scope"), "total", "s.scope", "c.now") + `)::text
  from (select scope from scopes where scope is not null limit @size) as s
 cross join (select clock_timestamp() as now) as c
 cross join lateral (` + newest(usesOf("s.scope")) + `) as o
 order by s.scope`
)

// PolicyUse returns what counts against the policy of a submitter, with up to size callers and tokens after one by
// name. The error wraps [ErrUnknownSubmitter].
func (s *Store) PolicyUse(ctx context.Context, sub txmanager.Submitter, after string, size int) (use PolicyUse, err error) {
	if _, err := s.Submitter(ctx, sub); err != nil {
		return use, err
	}
	b := new(pgx.Batch)
	b.Queue(policyUse, NamedArgs{"submitter": sub}).QueryRow(results.Scan(&use.At, &use.IntentsInMinute, &use.ValueInDay, &use.FeesInDay))
	b.Queue(policyScopes, NamedArgs{"submitter": sub, "after": after, "size": size}).Query(results.Into(&use.Scopes, pgx.RowToStructByPos[PolicyScope]))
	err = s.send(ctx, b)
	return use, results.Wrap(err, "read the use of the policy of %s", sub)
}
