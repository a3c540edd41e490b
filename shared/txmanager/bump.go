package txmanager

import (
	"math/big"
	"slices"
	"strings"
	"time"
)

// GasBumpPolicy decides when a transaction without a receipt is replaced at the same nonce and a
// higher fee, and how much that may cost. Each version is stored before it is sent, and the mined
// one decides. A gas bump never allocates or frees a nonce.
type GasBumpPolicy struct {
	MinInterval time.Duration // since the version before was signed
	MaxAttempts int           // replacements of one transaction
	Multiplier  int64         // factor of both fees, in thousandths; nodes require at least 1,100
	FeeCapWei   *big.Int      // the highest fee of a replacement, wei per gas; nil: no limit
	TxFeeCapWei *big.Int      // the highest gas cost of one transaction, wei; nil: no limit
	BudgetWei   *big.Int      // the worst-case cost that all replacements of a submitter may add in 24 hours, wei; nil: no limit
}

// bumpCount is how often t was replaced by a version of the same kind as the last.
func (t Tx) bumpCount() int {
	if t.isPlaceholder(t.Hash()) {
		return len(t.Placeholders) - 1
	}
	return len(t.Versions) - 1
}

// bumpAt is when t may be replaced at a higher fee. The result ok is false for a transaction that
// has a receipt or a requested action, is STUCK, or has used up MaxAttempts. It is also false
// where the payload does not determine the call.
func (r Limits) bumpAt(t Tx) (at time.Time, ok bool) {
	waiting := t.State == Submitted || (t.State == Tracking && t.Sub == Pending)
	if r.Bump == nil || !waiting || t.RequestedAction != "" || t.isExecutedElsewhere() || t.FirstSubmitAt == nil || t.Gas == nil || t.bumpCount() >= r.Bump.MaxAttempts {
		return at, false
	}
	if t.isMadeElsewhere() && !t.isPlaceholder(t.Hash()) {
		return at, false
	}
	if t.NextBumpAt != nil {
		return *t.NextBumpAt, true
	}
	return t.FirstSubmitAt.Add(r.Bump.MinInterval), true
}

// isBumpDue reports whether t may be replaced now. The present version is then not rebroadcast,
// unless a bound blocks the bump.
func (r Limits) isBumpDue(t Tx, now time.Time) bool {
	at, ok := r.bumpAt(t)
	return ok && !now.Before(at)
}

// bumpBy is when t must be checked in order to replace it. It is not before the next check, since
// a receipt may have arrived.
func (r Limits) bumpBy(t Tx) (at time.Time, ok bool) {
	if at, ok = r.bumpAt(t); ok && t.NextCheckAt != nil && at.Before(*t.NextCheckAt) {
		at = *t.NextCheckAt
	}
	return at, ok
}

// isBumpUnknown reports whether t is due for a bump and the node gave no answer about a queried
// receipt. It may be mined, so the present version is sent instead.
func (r Limits) isBumpUnknown(t Tx, v ChainObservation, now time.Time) bool {
	return r.isBumpDue(t, now) && slices.ContainsFunc(t.Versions, func(h Hash) bool {
		a, asked := v.Receipts[h]
		return asked && a.Answer == AnswerUnknown
	})
}

// bumpLater is t with its next bump one interval later.
func (r Limits) bumpLater(t Tx, now time.Time) Tx {
	if r.Bump != nil {
		t.NextBumpAt = new(now.Add(r.Bump.MinInterval))
	}
	return t
}

// bumpBlockedPrefix begins the reason why a due gas bump is blocked.
const bumpBlockedPrefix = "gas bump: "

// isBumpBlocked reports whether a bound blocked t's due gas bump.
func (r Limits) isBumpBlocked(t Tx) bool {
	_, bids := r.bumpAt(t)
	return bids && strings.HasPrefix(t.LastError, bumpBlockedPrefix)
}

// afterUnderpriced is t after a node reported another version of its nonce that pays as much. A
// higher version is due at once, unless a bound blocks it. ok is false where no bump is possible.
func (r Rules) afterUnderpriced(t Tx, head Header, now time.Time) (Tx, bool) {
	if _, ok := r.bumpAt(t); !ok {
		return t, false
	}
	t.NextResubmitAt = new(now.Add(r.retryDelay(t.SubmitAttempts)))
	if r.isBumpBlocked(t) {
		return r.withNextCheck(t, r.afterBlocks(1, head, now)), true
	}
	t.LastError, t.NextBumpAt, t.NextCheckAt = "", &now, &now
	return t, true
}

// bumpPlanner plans the replacements of one iteration.
type bumpPlanner struct {
	limits Limits
	chain  ChainConnector
	v      ChainObservation
	first  uint64           // the lowest open nonce
	left   availableBalance // the balance that no open nonce needs
	bounds Bounds           // of the submitter's policy
	spent  *big.Int         // of the budget, wei
}

func (r Limits) newBumpPlanner(w SubmitterState, chain ChainConnector, v ChainObservation) *bumpPlanner {
	b := &bumpPlanner{limits: r, chain: chain, v: v, first: w.lowestOpenNonce(), spent: new(big.Int), bounds: w.Bounds}
	if w.BumpBudgetUsedWei != nil {
		b.spent.Set(w.BumpBudgetUsedWei)
	}
	if r.Bump != nil {
		b.left = newAvailableBalance(v, w.Open)
	}
	return b
}

// planBump is t's next version, or else t's transition: it is due again after an interval, with a
// reason if there is one, or an operator must decide.
func (r Rules) planBump(b *bumpPlanner, t Tx, now time.Time) (signingJob, *Transition) {
	next, reason, wanted := b.next(t)
	switch {
	case wanted && reason == "" && r.AskBeforePlaceholder:
		return signingJob{}, &Transition{From: t.State, To: r.markStuck(t, now, bumpNeedsOperator)}
	case wanted && reason == "":
		t.Gas = &next.params
		return signingJob{tx: t, kind: next.kind, unsigned: buildUnsigned(t, next.call), extraWei: next.extraWei}, nil
	case wanted:
		t.LastError = bumpBlockedPrefix + reason
	case r.isBumpBlocked(t):
		t.LastError = ""
	}
	return signingJob{}, &Transition{From: t.State, To: r.bumpLater(t, now)}
}

// gasBump is a version of a transaction at a higher fee.
type gasBump struct {
	call     Call
	kind     VersionKind
	params   GasParams
	extraWei *big.Int // what it may cost beyond the version before
}

// next is t's version at a higher fee. If a bump is due but not possible, wanted is true and
// reason is set. If a higher fee would not help, or would exceed its caller's maximum, wanted is
// false.
func (b *bumpPlanner) next(t Tx) (next gasBump, reason string, wanted bool) {
	market := completeFees(Call{}, t.Gas.Gas, b.v.Account)
	if *t.Nonce != b.first && t.isAcknowledged() && paysMarketPrice(*t.Gas, b.v.Account) {
		return next, "", false // it waits for lower nonces
	}
	call, kind, cap := Call{To: new(t.Submitter.Address())}, VersionPlaceholder, b.limits.PlaceholderFeeCapWei
	if !t.isPlaceholder(t.Hash()) {
		if reason := t.unprovedReason(); reason != "" {
			return next, reason, true
		}
		var err error
		if call, err = b.chain.ParsePayload(t.Payload); err != nil {
			return next, err.Error(), true
		}
		kind, cap = VersionBump, lesser(lesser(b.limits.Bump.FeeCapWei, b.limits.FeeCapWei), b.limits.maxReplacementFee(b.bounds, t.Gas.Gas))
	}
	caps := feeCaps{feeWei: lesser(cap, call.FeeCapWei)}
	if kind == VersionBump {
		caps.tipWei = b.limits.maxTip(b.bounds, b.v.Account)
	}
	params, refused := b.limits.Bump.replacementFees(*t.Gas, market, caps)
	switch {
	case refused != "" && call.FeeCapWei != nil && (cap == nil || call.FeeCapWei.Cmp(cap) <= 0):
		return next, "", false
	case refused != "":
		return next, refused + " by " + b.limits.capNames(kind), true
	}
	extra := new(big.Int).Sub(params.worstCostWei(), t.Gas.worstCostWei())
	if reason := b.bounds.feesUsedUpReason(extra); kind == VersionBump && reason != "" {
		return next, reason, true
	}
	if reason := b.reserveExtra(*t.Gas, params, extra); reason != "" {
		return next, reason, true
	}
	if kind == VersionBump {
		b.bounds = b.bounds.withFee(extra)
	}
	return gasBump{call: call, kind: kind, params: params, extraWei: extra}, "", true
}

// reserveExtra reserves what a replacement may cost beyond the version before, or returns why it
// cannot.
func (b *bumpPlanner) reserveExtra(before, after GasParams, extraWei *big.Int) (reason string) {
	spent, most := new(big.Int).Add(b.spent, extraWei), b.limits.Bump.BudgetWei
	if most != nil && spent.Cmp(most) > 0 {
		return "the submitter's budget of 24 hours is used up"
	}
	left := new(big.Int).Add(b.left.leftWei, costWithPlaceholder(before))
	if left.Sub(left, costWithPlaceholder(after)).Sign() < 0 {
		return "the account cannot pay for a higher bid, what is in flight and a placeholder for each"
	}
	b.spent, b.left.leftWei = spent, left
	return ""
}

// otherCapNames are settings that can also limit a gas bump.
const otherCapNames = ", or the bounds of fees.maxFeePerTx, fees.maxTipMultiple, nonce.placeholderMaxFeePerGas or the submitter's policy"

// maxReplacementFee is the highest fee of a replacement that is no placeholder, wei per gas; nil:
// no limit. A placeholder can still outbid it. Its total fee is at most what two replacements make
// of the highest first version.
func (r Limits) maxReplacementFee(b Bounds, gas uint64) *big.Int {
	fee := b.maxFeeOfTx()
	if r.TxFeeCapWei != nil {
		fee = lesser(fee, thousandths(thousandths(r.TxFeeCapWei, replaceFactor), replaceFactor))
	}
	var cap *big.Int
	if fee != nil {
		cap = new(big.Int).Div(fee, new(big.Int).SetUint64(max(gas, 1)))
	}
	if r.PlaceholderFeeCapWei != nil {
		below := new(big.Int).Mul(r.PlaceholderFeeCapWei, big.NewInt(1000))
		cap = lesser(cap, below.Div(below, big.NewInt(replaceFactor)))
	}
	return cap
}

// capNames names the settings that limit a gas bump of this kind.
func (r Limits) capNames(kind VersionKind) string {
	switch {
	case kind == VersionPlaceholder:
		return "nonce.placeholderMaxFeePerGas or gasbump.maxFeePerTx"
	case r.FeeCapWei != nil && lesser(r.Bump.FeeCapWei, r.FeeCapWei) == r.FeeCapWei:
		return "fees.maxFeePerGas or gasbump.maxFeePerTx" + otherCapNames
	}
	return "gasbump.maxFeePerGas or gasbump.maxFeePerTx" + otherCapNames
}

// replacementFees calculates the next version's fees by the policy; see [replacementFees].
func (p GasBumpPolicy) replacementFees(last, market GasParams, caps feeCaps) (g GasParams, refused string) {
	if p.TxFeeCapWei != nil {
		caps.feeWei = lesser(caps.feeWei, new(big.Int).Div(p.TxFeeCapWei, new(big.Int).SetUint64(max(last.Gas, 1))))
	}
	return replacementFees(last, market, p.Multiplier, caps)
}

// lesser is the lower of two limits; nil is no limit.
func lesser(a, b *big.Int) *big.Int {
	if a == nil || b != nil && b.Cmp(a) < 0 {
		return b
	}
	return a
}

// withBumpedVersion is the version from withVersion. For a gas bump, the STUCK timer continues
// from the first broadcast.
func (r Rules) withBumpedVersion(t Tx, job signingJob) Tx {
	if job.extraWei != nil {
		t.FirstSubmitAt = job.tx.FirstSubmitAt
	}
	return r.bumpLater(t, *t.LastSubmitAt)
}

// bumpNeedsOperator is why an operator must decide about a gas bump.
const bumpNeedsOperator = "a higher fee is due, and nonce.placeholder=ask: an operator must decide"
