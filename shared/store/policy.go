package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// TargetDeploy is the [txmanager.Call.Target] of a transaction that deploys a contract.
const TargetDeploy = "deploy"

// targetsOf are the policy targets that allow a call: its recipient, and the function that it
// calls there.
func targetsOf(c txmanager.Call) []string {
	all := []string{c.Target()}
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
	Targets        []string `json:"targets"`        // see [txmanager.Call.Target] and [txmanager.Call.Function]

	// A fee is the most that gas may cost: the gas limit times maxFeePerGas.
	MaxFeePerTx          *string `json:"maxFeePerTx"`          // of one transaction
	MaxPriorityFeePerGas *string `json:"maxPriorityFeePerGas"` // wei per gas
	MaxGas               *int64  `json:"maxGas"`               // gas limit of one transaction
	MaxFeesPerDay        *string `json:"maxFeesPerDay"`        // of all that is signed in any 24 hours

	PerCaller map[string]CallerLimits `json:"perCaller"` // by full names; [AnyCaller]: each that is not named
	Tokens    map[string]TokenLimits  `json:"tokens"`    // by addresses, as [txmanager.Call.Target] writes them
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
	if err == nil && !c.Policy.TighterThan(now) {
		return ErrNotTighter
	}
	return results.Missing(err, ErrUnknownSubmitter)
}

const putPolicy = `
insert into submitter_policy (submitter, ` + policyColumns + `)
select submitter, ` + policyValues + `
  from submitter, (select $2::jsonb as policy) as p
 where submitter = $1
    on conflict (submitter) do update
   set max_value_wei = excluded.max_value_wei, max_day_wei = excluded.max_day_wei,
       max_per_minute = excluded.max_per_minute, targets = excluded.targets,
       max_fee_wei = excluded.max_fee_wei, max_tip_wei = excluded.max_tip_wei, max_gas = excluded.max_gas, max_day_fees_wei = excluded.max_day_fees_wei,
       per_caller = excluded.per_caller, tokens = excluded.tokens, updated_at = clock_timestamp()`

// policyColumns are the columns of a [Policy], and policyValues their values of its JSON p.policy.
const (
	policyColumns = `max_value_wei, max_day_wei, max_per_minute, targets, max_fee_wei, max_tip_wei, max_gas, max_day_fees_wei, per_caller, tokens`
	policyValues  = `(p.policy ->> 'maxValue')::numeric, (p.policy ->> 'maxValuePerDay')::numeric, (p.policy ->> 'maxPerMinute')::int,
       case when jsonb_typeof(p.policy -> 'targets') = 'array' then array(select jsonb_array_elements_text(p.policy -> 'targets')) end,
       (p.policy ->> 'maxFeePerTx')::numeric, (p.policy ->> 'maxPriorityFeePerGas')::numeric, (p.policy ->> 'maxGas')::bigint, (p.policy ->> 'maxFeesPerDay')::numeric,
       nullif(nullif(p.policy -> 'perCaller', 'null'), '{}'), nullif(nullif(p.policy -> 'tokens', 'null'), '{}')`
)

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
	token, _, err = s.changeUnderLease(ctx, c.Submitter, func(tx pgx.Tx) error {
		if err := c.checkTighter(ctx, tx); err != nil {
			return err
		}
		known, err := tx.Exec(ctx, putPolicy, c.Submitter, c.Policy)
		if err == nil && known.RowsAffected() == 0 {
			return ErrUnknownSubmitter
		}
		if err == nil {
			_, err = tx.Exec(ctx, recordChange, c.Submitter, "POLICY", c.By, c.Reason, c.Policy)
		}
		return err
	})
	return token, results.Wrap(err, "set the policy of %s", c.Submitter)
}

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
	RuleTarget:      "does not allow this target, or this function of it",
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
	p, call, err := readPayload(in)
	if err != nil {
		return policyInput{}, err
	}
	a := policyInput{value: p.Value, targets: targetsOf(call), amount: decimalOrNull(call.TokenAmount()), gas: p.Gas, tip: p.MaxPriorityFeePerGas, fee: new(leastFee)}
	if gas := bigFromText(p.Gas); gas != nil {
		a.fee = new(gas.Mul(gas, cmp.Or(bigFromText(p.MaxFeePerGas), big.NewInt(1))).String())
	}
	return a, nil
}

// payload has the members of a payload that the database checks. nil: it has none of that name.
type payload struct{ To, Data, Value, Gas, MaxFeePerGas, MaxPriorityFeePerGas *string }

// readPayload reads the payload of an intent in canonical form, and the call that it makes.
func readPayload(in Intent) (p payload, c txmanager.Call, err error) {
	p.Value = new("0")
	if err = json.Unmarshal(in.Payload, &p); err == nil && p.Data != nil {
		c.Data, err = hex.DecodeString(strings.TrimPrefix(*p.Data, "0x"))
	}
	if p.To != nil {
		c.To = new(txmanager.Address(*p.To))
	}
	c.Value = bigFromText(p.Value)
	return p, c, results.Wrap(err, "payload of %s", in.RequestID)
}

// TighterThan reports whether p refuses everything that old refuses, whatever was used of
// both. Then each of its limits is at least as strict. An equal policy is tighter. If that is
// not certain, the result is false.
func (p Policy) TighterThan(old Policy) bool {
	return lowerAmount(p.MaxValue, old.MaxValue) &&
		lowerAmount(p.MaxValuePerDay, old.MaxValuePerDay) &&
		lower(p.MaxPerMinute, old.MaxPerMinute) &&
		fewerTargets(p.Targets, old.Targets) &&
		lowerAmount(p.MaxFeePerTx, old.MaxFeePerTx) &&
		lowerAmount(p.MaxPriorityFeePerGas, old.MaxPriorityFeePerGas) &&
		lower(p.MaxGas, old.MaxGas) &&
		lowerAmount(p.MaxFeesPerDay, old.MaxFeesPerDay) &&
		lowerCallers(p.PerCaller, old.PerCaller) &&
		lowerTokens(p, old)
}

// lowerCallers reports whether each caller has lower limits by a than by b, including the
// limits of callers that it succeeded. A caller that only a names had the limits of
// [AnyCaller].
func lowerCallers(a, b map[string]CallerLimits) bool {
	for name, limits := range b {
		if now, named := a[name]; !named || !now.lowerThan(limits) {
			return false
		}
	}
	for name, limits := range a {
		if _, named := b[name]; !named && !limits.lowerThan(b[AnyCaller]) {
			return false
		}
	}
	return true
}

func (l CallerLimits) lowerThan(old CallerLimits) bool {
	return lowerAmount(l.MaxValue, old.MaxValue) && lowerAmount(l.MaxValuePerDay, old.MaxValuePerDay) &&
		lower(l.MaxPerMinute, old.MaxPerMinute) && lower(l.MaxQueued, old.MaxQueued)
}

// lowerTokens reports whether p limits each token that old limits at least as strictly, and
// allows no further functions of such a token by name.
func lowerTokens(p, old Policy) bool {
	for token, limits := range old.Tokens {
		now, named := p.Tokens[token]
		if !named || !lowerAmount(now.MaxAmount, limits.MaxAmount) || !lowerAmount(now.MaxAmountPerDay, limits.MaxAmountPerDay) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Targets, func(target string) bool {
		token, _, function := strings.Cut(target, ":")
		_, bounded := old.Tokens[token]
		return bounded && function && !txmanager.BoundedFunction(target) && !slices.Contains(old.Targets, target)
	})
}

// lower reports whether a is at most b. nil is no limit.
func lower[N cmp.Ordered](a, b *N) bool { return b == nil || a != nil && *a <= *b }

// lowerAmount is lower for amounts. A text that is no amount counts as not lower.
func lowerAmount(a, b *string) bool {
	x, y := bigFromText(a), bigFromText(b)
	return b == nil || x != nil && y != nil && x.Cmp(y) <= 0
}

// fewerTargets reports whether b allows each target of a: by its own name, or as a function of
// an address that b allows entirely. nil allows all.
func fewerTargets(a, b []string) bool {
	if b == nil {
		return true
	}
	return a != nil && !slices.ContainsFunc(a, func(target string) bool {
		address, _, _ := strings.Cut(target, ":")
		return !slices.Contains(b, target) && !slices.Contains(b, address)
	})
}
