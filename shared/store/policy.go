package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// TargetDeploy is the target of a transaction that deploys a contract.
const TargetDeploy = "deploy"

// Target is the policy's name for a call's recipient.
func Target(to *txmanager.Address) string {
	if to == nil {
		return TargetDeploy
	}
	return to.String()
}

// targetsOf are the policy targets that allow a call: its recipient, and the function that it
// calls there.
func targetsOf(c txmanager.Call) []string {
	all := []string{Target(c.To)}
	if f := c.Function(); f != "" {
		all = append(all, f)
	}
	return all
}

// Policy limits the intents of a submitter. Amounts are decimal strings in wei of the chain's
// coin, except those of tokens. nil is no limit.
type Policy struct {
	MaxValue       *string  `json:"maxValue"`       // of one transaction
	MaxValuePerDay *string  `json:"maxValuePerDay"` // in any 24 hours
	MaxPerMinute   *int     `json:"maxPerMinute"`   // intents in any 60 seconds
	Targets        []string `json:"targets"`        // see [Target] and [txmanager.Call.Function]

	// A fee is the most that gas may cost: the gas limit times maxFeePerGas.
	MaxFeePerTx          *string `json:"maxFeePerTx"`          // of one transaction
	MaxPriorityFeePerGas *string `json:"maxPriorityFeePerGas"` // wei per gas
	MaxGas               *int64  `json:"maxGas"`               // gas limit of one transaction
	MaxFeesPerDay        *string `json:"maxFeesPerDay"`        // of all that is signed in any 24 hours

	PerCaller map[string]CallerLimits `json:"perCaller"` // by full names; [AnyCaller]: each that is not named
	Tokens    map[string]TokenLimits  `json:"tokens"`    // by addresses, as [Target] writes them
}

// CallerLimits limit one caller, in addition to the submitter's own limits. nil is no limit.
type CallerLimits struct {
	MaxValue       *string `json:"maxValue,omitempty"`       // of one transaction
	MaxValuePerDay *string `json:"maxValuePerDay,omitempty"` // in any 24 hours
	MaxPerMinute   *int    `json:"maxPerMinute,omitempty"`   // intents in any 60 seconds
	MaxQueued      *int    `json:"maxQueued,omitempty"`      // intents that wait for a nonce at once
}

// TokenLimits limit the amounts that are transferred and approved of one ERC-20 contract, in
// its smallest unit. Calls to the contract are limited to these functions and to those that
// Targets names. nil is no limit.
type TokenLimits struct {
	MaxAmount       *string `json:"maxAmount,omitempty"`       // of one transaction
	MaxAmountPerDay *string `json:"maxAmountPerDay,omitempty"` // in any 24 hours
}

// Unlimited is true if p has no limit. A nil policy has none.
func (p *Policy) Unlimited() bool { return p == nil || reflect.ValueOf(*p).IsZero() }

// PolicyRule is one of a policy's limits.
type PolicyRule string

// The rules, in the order in which they are checked.
const (
	RuleValue  PolicyRule = "VALUE"
	RuleTarget PolicyRule = "TARGET"
	RuleGas    PolicyRule = "GAS"
	RuleTip    PolicyRule = "TIP"
	RuleFee    PolicyRule = "FEE"
	RuleCount  PolicyRule = "COUNT" // more at once than a minute allows: trying again never helps
	RuleRate   PolicyRule = "RATE"
	RuleDay    PolicyRule = "DAY"
	RuleFees   PolicyRule = "FEES" // of a day

	// Of the caller, beside the submitter's.
	RuleCallerValue PolicyRule = "CALLER_VALUE"
	RuleCallerCount PolicyRule = "CALLER_COUNT"
	RuleCallerRate  PolicyRule = "CALLER_RATE"
	RuleCallerQueue PolicyRule = "CALLER_QUEUE"
	RuleCallerDay   PolicyRule = "CALLER_DAY"

	// Of a token.
	RuleToken     PolicyRule = "TOKEN" // a call of which no amount can be read
	RuleAmount    PolicyRule = "AMOUNT"
	RuleAmountDay PolicyRule = "AMOUNT_DAY"
)

// PolicyError reports the limit by which the submitter's policy refuses an intent. Nothing was
// stored.
type PolicyError struct {
	Rule  PolicyRule
	Limit string // of the rule; "" where it is a list
}

// policyRefusals has the text about each rule, after "the submitter's policy". {limit} is the rule's.
var policyRefusals = map[PolicyRule]string{
	RuleValue:       "allows at most {limit} wei in one transaction",
	RuleTarget:      "does not allow this receiver, or this function of it",
	RuleGas:         "allows at most {limit} gas in one transaction",
	RuleTip:         "allows a tip of at most {limit} wei per gas",
	RuleFee:         "allows a fee (gas times maxFeePerGas) of at most {limit} wei in one transaction",
	RuleFees:        "allows fees of at most {limit} wei in 24 hours",
	RuleCount:       "allows at most {limit} intents in a minute, and more nonces than that were asked for at once: ask for fewer",
	RuleRate:        "allows at most {limit} intents in a minute",
	RuleCallerValue: "allows this caller at most {limit} wei in one transaction",
	RuleCallerCount: "allows this caller at most {limit} intents in a minute, and more nonces than that were asked for at once: ask for fewer",
	RuleCallerRate:  "allows this caller at most {limit} intents in a minute",
	RuleCallerQueue: "allows this caller at most {limit} intents in the queue at once",
	RuleCallerDay:   "allows this caller at most {limit} wei in 24 hours",
	RuleToken:       "bounds amounts of this token, and allows of it transfer, approve and transferFrom as the ABI encodes them, and functions that targets names",
	RuleAmount:      "allows at most {limit} of this token's smallest unit in one transaction",
	RuleAmountDay:   "allows at most {limit} of this token's smallest unit in 24 hours",
	RuleDay:         "allows at most {limit} wei in 24 hours",
}

// Error names the limit.
func (e PolicyError) Error() string {
	return "the submitter's policy " + strings.ReplaceAll(policyRefusals[e.Rule], "{limit}", e.Limit)
}

// IsPermanent is true if the same intent will be refused until the policy changes.
func (e PolicyError) IsPermanent() bool {
	switch e.Rule {
	case RuleRate, RuleDay, RuleFees, RuleCallerRate, RuleCallerQueue, RuleCallerDay, RuleAmountDay:
		return false
	}
	return true
}

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

// inDay is the scope's use within 24 hours, less released amounts. total are the running
// sums.
func inDay(total, sums, column, scope, now string) string {
	return `coalesce(` + total + `, 0)
         - coalesce((select u.` + column + ` from ` + sums + ` and u.at <= ` + now + ` - interval '24 hours' order by u.at desc, u.number desc limit 1), 0)
         - coalesce((select sum(g.amount) from policy_given_back g where g.submitter = @submitter and g.scope = ` + scope + ` and g.minute > ` + now + ` - interval '24 hours'), 0)`
}

// fullName is [FullCaller] of a column.
func fullName(name string) string {
	return `case when ` + name + ` in ('', '` + PayoutCaller + `', '` + HooksCaller + `', '` + AnyCaller + `') or ` + name + ` ~ '^(email|sub|handler):' then ` + name + `
              when position('@' in ` + name + `) > 0 then '` + EmailCaller + `' || ` + name + ` else '` + SubjectCaller + `' || ` + name + ` end`
}

// limitsOf are the limits of a caller by the policy p of the submitter s. The limits of its
// own name and of each name that it succeeded apply, so that a change of names gives no second
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
used as (
  select coalesce(l.number, 0) as number, coalesce(l.intents, 0) as intents, coalesce(l.value_wei, 0) as value_wei,
         greatest(c.now, l.at) as at, c.now,
         coalesce(l.intents, 0) - coalesce((select u.intents from submitter_use u
             where u.submitter = @submitter and u.at <= c.now - interval '1 minute' order by u.at desc, u.number desc limit 1), 0) as in_minute,
         ` + inDay("l.value_wei", "submitter_use u where u.submitter = @submitter", "value_wei", "''", "c.now") + ` as in_day
    from (select clock_timestamp() as now) as c
    left join lateral (select * from submitter_use u where u.submitter = @submitter order by u.number desc limit 1) as l on true
), theirs as (
  select f.scope, coalesce(l.number, 0) as number, coalesce(l.intents, 0) as intents, coalesce(l.total, 0) as total, greatest(c.now, l.at) as at,
         h.known, k.*, i.in_minute, i.in_day
    from submitter_policy p
    join submitter s on s.submitter = p.submitter
   cross join ` + limitsOf(of.caller) + `
   cross join used c
   cross join lateral (select ` + fullName("w.present") + ` as scope offset 0) as f
    left join lateral (select * from policy_use u where u.submitter = @submitter and u.scope = f.scope order by u.number desc limit 1) as l on true
   cross join lateral (
       select sum(coalesce(o.intents, 0) - coalesce((select u.intents from policy_use u
                where u.submitter = @submitter and u.scope = a.name and u.at <= c.now - interval '1 minute' order by u.at desc, u.number desc limit 1), 0)) as in_minute,
              sum(` + inDay("o.total", "policy_use u where u.submitter = @submitter and u.scope = a.name", "total", "a.name", "c.now") + `) as in_day
         from unnest(n.names) as a (name)
         left join lateral (select * from policy_use u where u.submitter = @submitter and u.scope = a.name order by u.number desc limit 1) as o on true) as i
   where p.submitter = @submitter and p.per_caller is not null
), token as (
  select t.scope, coalesce(l.number, 0) as number, coalesce(l.intents, 0) as intents, coalesce(l.total, 0) as total, greatest(c.now, l.at) as at,
         (p.tokens -> t.scope ->> 'maxAmount')::numeric as max_units, (p.tokens -> t.scope ->> 'maxAmountPerDay')::numeric as max_day_units,
         ` + inDay("l.total", "policy_use u where u.submitter = @submitter and u.scope = t.scope", "total", "t.scope", "c.now") + ` as in_day
    from submitter_policy p
   cross join (select (@targets::text[])[1] as scope) as t
   cross join used c
    left join lateral (select * from policy_use u where u.submitter = @submitter and u.scope = t.scope order by u.number desc limit 1) as l on true
   where p.submitter = @submitter and p.tokens ? t.scope
), asked as (
  select @tx_id::uuid as tx_id, @value::numeric as value_wei, @targets::text[] as targets, @counts::bigint as counts, ` + of.amount + ` as units, (@targets::text[])[2] as function,
         greatest(0, coalesce(@value::numeric, 0) - coalesce((select sum(added_wei) from submitter_use u where u.tx_id = @tx_id::uuid), 0)) as added_wei, ` + of.fees + `
), judged as (
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
  from judged`

// countUse counts an accepted intent for the submitter, its caller and the token. when is the
// condition of all three, submitters a further one of the first.
func countUse(when, submitters string) string {
	return `counted as (
  insert into submitter_use (submitter, number, at, tx_id, added_wei, intents, value_wei)
  select @submitter, u.number + 1, u.at, j.tx_id, j.added_wei, u.intents + j.counts, u.value_wei + j.added_wei
    from judged j, used u
   where j.over_time and ` + when + submitters + `
), scoped as (
  insert into policy_use (submitter, scope, number, at, tx_id, added, intents, total)
  select @submitter, w.scope, w.number + 1, w.at, j.tx_id, j.caller_wei, w.intents + j.counts, w.total + j.caller_wei
    from judged j, theirs w
   where j.over_time and j.counts + j.caller_wei > 0 and ` + when + `
   union all
  select @submitter, t.scope, t.number + 1, t.at, j.tx_id, j.token_units, t.intents + j.counts, t.total + j.token_units
    from judged j, token t
   where j.over_time and j.token_units > 0 and ` + when + `
)`
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
    from judged j
   cross join (values (@caller::text, @handler::text, @digest::bytea, @request_id::text, @names::text, @macs::bytea, @mac_key::text)) as i (caller, handler, digest, request_id, names, macs, mac_key)
    join submitter s on s.submitter = @submitter
   cross join ` + holdCause + `
   where j.refused = '' and ` + mayPost + ` and (f.held_for is null or @beside)
     and (@valid_until::timestamptz is null or @valid_until > clock_timestamp())
     and (@bound::int is null or (select count(*) from (select from managed_tx q where q.submitter = @submitter and q.queued and not q.held limit @bound) as queued) < @bound)
      on conflict (submitter, request_id) do nothing
  returning tx_id
), ` + countUse(`exists (select from new)`, ``) + verdictColumns

// queueLimited handles each intent of a submitter that is not cached as one without a policy.
// It adds a statement that checks the intent and stores it if nothing refuses it.
func (s *Store) queueLimited(b *pgx.Batch, c creation) error {
	var locks []string
	for i, r := range c.records {
		if c.found[i].judged = r.Refused == nil && !s.limits.hasNone(r.Submitter); c.found[i].judged {
			locks = append(locks, string(r.Submitter))
		}
	}
	if len(locks) > 0 {
		b.Queue(lockPolicies, locks)
	}
	for i, r := range c.records {
		if !c.found[i].judged {
			continue
		}
		a, err := policyInputOf(r.Intent)
		if err != nil {
			return err
		}
		var bound *int
		if _, counted := c.counted[r.Submitter]; counted {
			bound = &c.queueBound
		}
		b.Queue(insertLimited, pgx.StrictNamedArgs{
			"submitter": r.Submitter, "tx_id": r.TxID, "request_id": r.RequestID, "caller": r.Caller, "names": r.names, "handler": r.Handler,
			"fingerprint": r.Fingerprint[:], "digest": r.digest, "trace": r.Trace, "valid_until": micros(r.ValidUntil), "macs": r.mac.sums, "mac_key": r.mac.key,
			"value": a.value, "targets": a.targets, "counts": 1, "amount": a.amount, "gas": a.gas, "tip": a.tip, "fee": a.fee,
			"bound": bound, "beside": c.beside,
		}).QueryRow(func(row pgx.Row) (err error) {
			c.found[i].refused, err = scanVerdict(row)
			return err
		})
	}
	return nil
}

// policyInput has the values that a policy checks. A value that is not known yet is nil. fee
// is the most that its gas may cost, or the least if the intent sets no maximum.
type policyInput struct {
	value, gas, tip, fee *string
	targets              []string
	amount               *string // see [txmanager.Call.TokenAmount]
}

// leastFee is what the cheapest transaction costs: 21,000 gas at one wei.
const leastFee = "21000"

// policyInputOf reads the values of an intent. A handler's intent has only the least fee.
func policyInputOf(in Intent) (policyInput, error) {
	if in.Handler != "" {
		return policyInput{fee: new(leastFee)}, nil
	}
	payload := struct{ To, Data, Value, Gas, MaxFeePerGas, MaxPriorityFeePerGas *string }{Value: new("0")}
	if err := json.Unmarshal(in.Payload, &payload); err != nil {
		return policyInput{}, fmt.Errorf("payload of %s: %w", in.RequestID, err)
	}
	call, err := payloadCall(payload.To, payload.Data)
	if err != nil {
		return policyInput{}, fmt.Errorf("payload of %s: %w", in.RequestID, err)
	}
	a := policyInput{value: payload.Value, targets: targetsOf(call), amount: amountOf(call), gas: payload.Gas, tip: payload.MaxPriorityFeePerGas, fee: new(leastFee)}
	if payload.Gas == nil {
		return a, nil
	}
	gas, price := new(big.Int), big.NewInt(1)
	gas.SetString(*payload.Gas, 10)
	if payload.MaxFeePerGas != nil {
		price.SetString(*payload.MaxFeePerGas, 10)
	}
	a.fee = new(gas.Mul(gas, price).String())
	return a, nil
}

// payloadCall reads the recipient and the call of a payload in canonical form.
func payloadCall(to, data *string) (c txmanager.Call, err error) {
	if to == nil {
		return c, nil
	}
	address, err := txmanager.ParseAddress(*to)
	if err != nil || data == nil {
		return txmanager.Call{To: &address}, err
	}
	text, isHex := strings.CutPrefix(*data, "0x")
	if !isHex {
		return c, errors.New("the data is no hex")
	}
	raw, err := hex.DecodeString(text)
	return txmanager.Call{To: &address, Data: raw}, err
}

// amountOf is the token amount that a policy counts for c; nil if c moves and approves none.
func amountOf(c txmanager.Call) *string {
	if amount := c.TokenAmount(); amount != nil {
		return new(amount.String())
	}
	return nil
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
func weiOf(c txmanager.Call) string {
	if c.Value == nil {
		return "0"
	}
	return c.Value.String()
}

// CheckPolicy implements [txmanager.Store].
func (s *Store) CheckPolicy(ctx context.Context, l lease.Lease, txID string, c txmanager.Call) (refused string, err error) {
	b := new(pgx.Batch)
	b.Queue(`select hold_lease($1, $2, $3)`, l.Submitter, l.Owner, l.Token)
	b.Queue(lockPolicies, []string{l.Submitter})
	b.Queue(permit, pgx.StrictNamedArgs{
		"submitter": l.Submitter, "tx_id": txID, "value": weiOf(c), "targets": targetsOf(c), "counts": 0, "amount": amountOf(c),
	}).QueryRow(func(row pgx.Row) error {
		e, err := scanVerdict(row)
		if e != nil {
			refused = e.Error()
		}
		return err
	})
	return refused, s.send(ctx, b)
}

// policyCache remembers submitters without a policy. Their intents share one statement; each
// other intent has its own, in the same round trip. A stale entry costs a second round trip
// and has no other effect.
type policyCache struct {
	mu   sync.Mutex
	none map[txmanager.Submitter]bool
}

// hasNone is true if s is cached as one without a policy.
func (l *policyCache) hasNone(s txmanager.Submitter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.none[s]
}

// note caches whether s has a policy.
func (l *policyCache) note(s txmanager.Submitter, limited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.none == nil || len(l.none) >= 10_000 { // forgetting costs a statement and nothing else
		l.none = make(map[txmanager.Submitter]bool)
	}
	if l.none[s] = true; limited {
		delete(l.none, s)
	}
}

// PolicyChange is an operator's new policy for a submitter.
type PolicyChange struct {
	Submitter txmanager.Submitter
	Policy    Policy
	By        string
	Reason    string

	OnlyTighter bool // no more than the present one is allowed: see [ErrNotTighter]
}

// ErrNotTighter reports a change that gives rights, where only removals were allowed. Nothing
// was changed.
var ErrNotTighter = errors.New("the change does not only take rights away")

// presentPolicy locks nothing: each change of a policy holds the lease's row.
const presentPolicy = `select coalesce(` + policyOf + `, '{}') from submitter s where s.submitter = $1`

// checkTighter returns [ErrNotTighter] if the new policy allows anything that the present one
// refuses.
func (c PolicyChange) checkTighter(ctx context.Context, tx pgx.Tx) error {
	if !c.OnlyTighter {
		return nil
	}
	var now Policy
	err := tx.QueryRow(ctx, presentPolicy, c.Submitter).Scan(&now)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrUnknownSubmitter
	case err == nil && !c.Policy.TighterThan(now):
		return ErrNotTighter
	}
	return err
}

const putPolicy = `
insert into submitter_policy (submitter, max_value_wei, max_day_wei, max_per_minute, targets, max_fee_wei, max_tip_wei, max_gas, max_day_fees_wei, per_caller, tokens)
select submitter, @max_value_wei::numeric, @max_day_wei::numeric, @max_per_minute, @targets, @max_fee_wei::numeric, @max_tip_wei::numeric, @max_gas, @max_day_fees_wei::numeric, @per_caller::jsonb, @tokens::jsonb
  from submitter
 where submitter = @submitter
    on conflict (submitter) do update
   set max_value_wei = excluded.max_value_wei, max_day_wei = excluded.max_day_wei,
       max_per_minute = excluded.max_per_minute, targets = excluded.targets,
       max_fee_wei = excluded.max_fee_wei, max_tip_wei = excluded.max_tip_wei, max_gas = excluded.max_gas, max_day_fees_wei = excluded.max_day_fees_wei,
       per_caller = excluded.per_caller, tokens = excluded.tokens, updated_at = clock_timestamp()`

// orNull is the map for a column of JSON; null where it is empty.
func orNull[V any](of map[string]V) any {
	if len(of) == 0 {
		return nil
	}
	return of
}

const recordChange = `
insert into submitter_change (submitter, action, by, reason, policy)
select submitter, $2, $3, $4, $5::jsonb
  from submitter
 where submitter = $1`

// PutPolicy replaces the policy, with a record of it, and returns the token in force after the
// commit. It ends the lease session of the lease's holder. So no nonce is bound after the
// commit to an intent that the policy forbids, whenever that was posted; see
// [txmanager.Bounds]. Intents that have a nonce proceed. Limits over time apply to intents
// posted from then on, and count from when the first of them was set. The error wraps
// [ErrUnknownSubmitter] or [ErrNotTighter].
func (s *Store) PutPolicy(ctx context.Context, c PolicyChange) (token int64, err error) {
	p := c.Policy
	text, err := json.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("policy of %s: %w", c.Submitter, err)
	}
	token, err = s.changeUnderLease(ctx, c.Submitter, func(tx pgx.Tx) error {
		if err := c.checkTighter(ctx, tx); err != nil {
			return err
		}
		known, err := tx.Exec(ctx, putPolicy, pgx.StrictNamedArgs{
			"submitter":        c.Submitter,
			"max_value_wei":    p.MaxValue,
			"max_day_wei":      p.MaxValuePerDay,
			"max_per_minute":   p.MaxPerMinute,
			"targets":          p.Targets,
			"max_fee_wei":      p.MaxFeePerTx,
			"max_tip_wei":      p.MaxPriorityFeePerGas,
			"max_gas":          p.MaxGas,
			"max_day_fees_wei": p.MaxFeesPerDay,
			"per_caller":       orNull(p.PerCaller),
			"tokens":           orNull(p.Tokens),
		})
		if err == nil && known.RowsAffected() == 0 {
			return ErrUnknownSubmitter
		}
		if err == nil {
			_, err = tx.Exec(ctx, recordChange, c.Submitter, "POLICY", c.By, c.Reason, string(text))
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("set the policy of %s: %w", c.Submitter, err)
	}
	return token, nil
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
