package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

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
		known, err := tx.Exec(ctx, putPolicy, NamedArgs{
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
