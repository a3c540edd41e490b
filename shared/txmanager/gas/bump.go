package gas

import (
	"cmp"
	"errors"
	"math/big"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// BumpLimits bound the gas bumps that a [BumpPolicy] proposes. They say when a transaction without a
// receipt may be replaced at the same nonce and a higher fee, and how much that may cost. Each version is
// stored before it is sent, and the mined one decides. A gas bump never allocates or frees a nonce.
type BumpLimits struct {
	Multiplier  int64         // of both fees, in thousandths; nodes require at least 1,100
	Policy      BumpPolicy    // a deployer's, in place of Multiplier; nil: none
	MinInterval time.Duration // since the version before was signed
	MaxAttempts int           // replacements of one transaction
	FeeCapWei   *big.Int      // the highest fee of a replacement, wei per gas; nil: no limit
	BudgetWei   *big.Int      // the worst-case cost that all replacements of a submitter may add in 24 hours, wei; nil: no limit
}

// bumpCount is how often t was replaced by a version of the same kind as the last.
func bumpCount(t txmanager.Tx) int {
	if t.IsPlaceholder(t.Hash()) {
		return len(t.Placeholders) - 1
	}
	return len(t.Versions) - 1
}

// BumpAt is when t may be replaced at a higher fee. The result ok is false for a transaction that
// has a receipt or a requested action, is STUCK, or has used up MaxAttempts. It is also false
// where the payload does not determine the call.
func (r Limits) BumpAt(t txmanager.Tx) (at time.Time, ok bool) {
	waiting := t.State == txmanager.Submitted || (t.State == txmanager.Tracking && t.Sub == txmanager.Pending)
	replaceable := !t.IsMadeElsewhere() || t.IsPlaceholder(t.Hash())
	if r.Bump == nil || !waiting || !replaceable || t.RequestedAction != "" || t.IsExecutedElsewhere() || t.FirstSubmitAt == nil || t.Gas == nil || bumpCount(t) >= r.Bump.MaxAttempts {
		return at, false
	}
	if t.NextBumpAt != nil {
		return *t.NextBumpAt, true
	}
	return t.FirstSubmitAt.Add(r.Bump.MinInterval), true
}

// IsBumpDue reports whether t may be replaced now. The present version is then not rebroadcast,
// unless a bound blocks the bump.
func (r Limits) IsBumpDue(t txmanager.Tx, now time.Time) bool {
	at, ok := r.BumpAt(t)
	return ok && !now.Before(at)
}

// BumpBy is when t must be checked in order to replace it. It is not before the next check, since
// a receipt may have arrived.
func (r Limits) BumpBy(t txmanager.Tx) (at time.Time, ok bool) {
	if at, ok = r.BumpAt(t); ok && t.NextCheckAt != nil && at.Before(*t.NextCheckAt) {
		at = *t.NextCheckAt
	}
	return at, ok
}

// IsBumpUnknown reports whether t is due for a bump and the node gave no answer about a queried
// receipt. It may be mined, so the present version is sent instead.
func (r Limits) IsBumpUnknown(t txmanager.Tx, v txmanager.ChainObservation, now time.Time) bool {
	return r.IsBumpDue(t, now) && slices.ContainsFunc(t.Versions, func(h txmanager.Hash) bool {
		a, asked := v.Receipts[h]
		return asked && a.Answer == txmanager.AnswerUnknown
	})
}

// BumpLater is t with its next bump one interval later.
func (r Limits) BumpLater(t txmanager.Tx, now time.Time) txmanager.Tx {
	if r.Bump != nil {
		t.NextBumpAt = new(now.Add(r.Bump.MinInterval))
	}
	return t
}

// BumpBlockedPrefix begins the reason why a due gas bump is blocked.
const BumpBlockedPrefix = "gas bump: "

// IsBumpBlocked reports whether a bound blocked t's due gas bump.
func (r Limits) IsBumpBlocked(t txmanager.Tx) bool {
	_, bids := r.BumpAt(t)
	return bids && t.Cause == txmanager.WaitGasBump
}

// BumpPlanner plans the replacements of one iteration.
type BumpPlanner struct {
	limits Limits
	chain  txmanager.ChainConnector
	v      txmanager.ChainObservation
	now    time.Time
	first  uint64           // the lowest open nonce
	left   Balance          // the balance that no open nonce needs
	bounds txmanager.Bounds // of the submitter's policy
	spent  *big.Int         // of the budget, wei
}

func (r Limits) NewBumpPlanner(w txmanager.SubmitterState, chain txmanager.ChainConnector, v txmanager.ChainObservation) *BumpPlanner {
	b := &BumpPlanner{limits: r, chain: chain, v: v, now: w.DatabaseTime(), first: w.LowestOpenNonce(), bounds: w.Bounds}
	b.spent = cmp.Or(w.BumpBudgetUsedWei, new(big.Int))
	if r.Bump != nil {
		b.left = BalanceOf(v, w.Open)
	}
	return b
}

// gasBump is a version of a transaction at a higher fee.
type gasBump struct {
	Call     txmanager.Call
	Kind     txmanager.VersionKind
	Params   txmanager.GasParams
	ExtraWei *big.Int // what it may cost beyond the version before
}

// Next is t's version at a higher fee. If a bump is due but not possible, wanted is true and
// reason is set. If the policy proposes nothing, a higher fee would not help, or it would exceed its
// caller's maximum, wanted is false.
func (b *BumpPlanner) Next(t txmanager.Tx) (next gasBump, reason string, wanted bool) {
	market := CompleteFees(txmanager.Call{}, t.Gas.Gas, b.v.Account)
	if *t.Nonce != b.first && t.IsAcknowledged() && PaysMarketPrice(*t.Gas, b.v.Account) {
		return next, "", false // it waits for lower nonces
	}
	call, kind, err := b.callOf(t)
	if err != nil {
		return next, err.Error(), true
	}
	fees, ok, problem := b.limits.Bump.propose(b.requestOf(t, kind, market))
	if !ok {
		return next, problem, problem != ""
	}
	caps := b.capsOf(kind, *t.Gas, market)
	ownLimit := call.FeeCapWei != nil && (caps.FeeWei == nil || call.FeeCapWei.Cmp(caps.FeeWei) <= 0)
	caps.FeeWei = txmanager.LowerLimit(caps.FeeWei, call.FeeCapWei)
	params, refused := limitReplacement(*t.Gas, fees, caps)
	switch {
	case refused != "" && ownLimit:
		return next, "", false
	case refused != "":
		return next, refused + " by " + b.limits.capNames(kind), true
	}
	extra := new(big.Int).Sub(params.WorstCostWei(), t.Gas.WorstCostWei())
	if reason := b.bounds.FeesUsedUpReason(extra); kind == txmanager.VersionBump && reason != "" {
		return next, reason, true
	}
	if reason := b.reserveExtra(*t.Gas, params, extra); reason != "" {
		return next, reason, true
	}
	if kind == txmanager.VersionBump {
		b.bounds = b.bounds.WithFee(extra)
	}
	return gasBump{Call: call, Kind: kind, Params: params, ExtraWei: extra}, "", true
}

// callOf is the call of t's next version: a placeholder's, or its own.
func (b *BumpPlanner) callOf(t txmanager.Tx) (txmanager.Call, txmanager.VersionKind, error) {
	if t.IsPlaceholder(t.Hash()) {
		return txmanager.Call{To: new(t.Submitter.Address())}, txmanager.VersionPlaceholder, nil
	}
	if reason := t.UnprovedReason(); reason != "" {
		return txmanager.Call{}, "", errors.New(reason)
	}
	call, err := b.chain.ParsePayload(t.Payload)
	return call, txmanager.VersionBump, err
}

// requestOf is what the policy is asked about t.
func (b *BumpPlanner) requestOf(t txmanager.Tx, kind txmanager.VersionKind, market txmanager.GasParams) BumpRequest {
	return BumpRequest{
		TxID: t.ID, Submitter: t.Submitter, Placeholder: kind == txmanager.VersionPlaceholder, Attempts: bumpCount(t),
		Age: b.now.Sub(*t.FirstSubmitAt), Last: CopyParams(*t.Gas), Market: CopyParams(market),
	}
}

// capsOf are the limits of a gas bump of the version last: the deployment's and those of the submitter's
// policy.
func (b *BumpPlanner) capsOf(kind txmanager.VersionKind, last, market txmanager.GasParams) FeeCaps {
	if kind == txmanager.VersionPlaceholder {
		return FeeCaps{FeeWei: b.limits.PlaceholderFeeCapWei, TipWei: b.maxPlaceholderTip(last, market)}
	}
	deployment := txmanager.LowerLimit(b.limits.Bump.FeeCapWei, b.limits.MaxFeePerGasWei)
	return FeeCaps{FeeWei: txmanager.LowerLimit(deployment, b.limits.MaxReplacementFee(b.bounds, last.Gas)), TipWei: b.limits.MaxTip(b.bounds, b.v.Account)}
}

// maxPlaceholderTip is the highest tip that a deployer's policy can propose for a placeholder; nil: no
// limit. A placeholder can always outbid the version before it: the submitter's limit of tips does not
// stop it, and without a policy the multiplier bounds it.
func (b *BumpPlanner) maxPlaceholderTip(last, market txmanager.GasParams) *big.Int {
	limit := b.limits.MaxTip(b.bounds, b.v.Account)
	if b.limits.Bump.Policy == nil || market.Legacy || limit == nil {
		return nil
	}
	return greater(limit, raiseFees(last, market, ReplaceFactor).TipCapWei)
}

// reserveExtra reserves what a replacement may cost beyond the version before, or returns why it
// cannot.
func (b *BumpPlanner) reserveExtra(before, after txmanager.GasParams, extraWei *big.Int) (reason string) {
	spent, limit := new(big.Int).Add(b.spent, extraWei), b.limits.Bump.BudgetWei
	if limit != nil && spent.Cmp(limit) > 0 {
		return "the submitter's budget of 24 hours is used up"
	}
	left := new(big.Int).Add(b.left.leftWei, CostWithPlaceholder(before))
	if left.Sub(left, CostWithPlaceholder(after)).Sign() < 0 {
		return "the account cannot pay for a higher fee, the open transactions and a placeholder for each"
	}
	b.spent, b.left.leftWei = spent, left
	return ""
}

// otherCapNames are settings that can also limit a gas bump.
const otherCapNames = ", or the bounds of fees.maxFeePerTx, fees.maxTipMultiple, nonce.placeholderMaxFeePerGas or the submitter's policy"

// MaxReplacementFee is the highest fee of a replacement that is no placeholder, wei per gas; nil:
// no limit. A placeholder can still outbid it. Its total fee is at most what two replacements make
// of the highest first version.
func (r Limits) MaxReplacementFee(b txmanager.Bounds, gas uint64) *big.Int {
	fee := b.MaxFeeOfTx()
	if r.TxFeeCapWei != nil {
		fee = txmanager.LowerLimit(fee, Thousandths(Thousandths(r.TxFeeCapWei, ReplaceFactor), ReplaceFactor))
	}
	var cap *big.Int
	if fee != nil {
		cap = new(big.Int).Div(fee, new(big.Int).SetUint64(max(gas, 1)))
	}
	if r.PlaceholderFeeCapWei != nil {
		below := new(big.Int).Mul(r.PlaceholderFeeCapWei, big.NewInt(1000))
		cap = txmanager.LowerLimit(cap, below.Div(below, big.NewInt(ReplaceFactor)))
	}
	return cap
}

// capNames names the settings that limit a gas bump of this kind.
func (r Limits) capNames(kind txmanager.VersionKind) string {
	switch {
	case kind == txmanager.VersionPlaceholder:
		return "nonce.placeholderMaxFeePerGas"
	case r.MaxFeePerGasWei != nil && txmanager.LowerLimit(r.Bump.FeeCapWei, r.MaxFeePerGasWei) == r.MaxFeePerGasWei:
		return "fees.maxFeePerGas" + otherCapNames
	}
	return "gasbump.maxFeePerGas" + otherCapNames
}
