package txmanager

import (
	"math/big"
	"slices"
	"strings"
	"time"
)

// GasBumpPolicy says when a transaction that stays without a receipt is replaced by
// itself at the same nonce, at a higher fee, and how much that may cost. It changes
// nothing else: each version is stored before it is sent, whichever is mined decides,
// and no nonce is given or freed by it.
type GasBumpPolicy struct {
	MinInterval time.Duration // since the version before was signed
	MaxAttempts int           // replacements of one transaction
	Multiplier  int64         // of both fees, in thousandths; nodes demand 1,100 at least
	FeeCapWei   *big.Int      // the most that a replacement offers, wei per gas; nil: no bound
	TxFeeCapWei *big.Int      // the most that the gas of one transaction costs, wei; nil: no bound
	BudgetWei   *big.Int      // what all replacements of a submitter in 24 hours may add to what it pays at worst, wei; nil: no bound
}

// bumpCount is how often t's last version, or one like it, was replaced already.
func (t Tx) bumpCount() int {
	if t.isPlaceholder(t.Hash()) {
		return len(t.Placeholders) - 1
	}
	return len(t.Versions) - 1
}

// bumpAt is when t may be replaced at a higher fee; ok is false for what never is: what
// has a receipt, an order or all its attempts behind it, what is STUCK, and what its
// payload does not tell.
func (r Rules) bumpAt(t Tx) (at time.Time, ok bool) {
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

// isBumpDue says that t may be replaced now. What is, is not sent again as it is; what a
// bound has held is.
func (r Rules) isBumpDue(t Tx, now time.Time) bool {
	at, ok := r.bumpAt(t)
	return ok && !now.Before(at)
}

// bumpBy is when somebody has to look at t in order to replace it: with its next check
// at the earliest, since a receipt may have come.
func (r Rules) bumpBy(t Tx) (at time.Time, ok bool) {
	if at, ok = r.bumpAt(t); ok && t.NextCheckAt != nil {
		at = laterOf(at, *t.NextCheckAt)
	}
	return at, ok
}

// isBumpUnknown says that t is due for a bump, and that the node, asked for its receipts,
// gave no answer: what may be mined is not replaced now, and is sent as it is.
func (r Rules) isBumpUnknown(t Tx, v ChainObservation, now time.Time) bool {
	return r.isBumpDue(t, now) && slices.ContainsFunc(t.Versions, func(h Hash) bool {
		a, asked := v.Receipts[h]
		return asked && a.Answer == AnswerUnknown
	})
}

// bumpLater is t, not to be replaced for another interval.
func (r Rules) bumpLater(t Tx, now time.Time) Tx {
	if r.Bump != nil {
		t.NextBumpAt = new(now.Add(r.Bump.MinInterval))
	}
	return t
}

// bumpHeldPrefix begins the reason why a bid that is due is not made.
const bumpHeldPrefix = "gas bump: "

// isBumpHeld says that t's next bid was due, and a bound forbade it.
func (r Rules) isBumpHeld(t Tx) bool {
	_, bids := r.bumpAt(t)
	return bids && strings.HasPrefix(t.LastError, bumpHeldPrefix)
}

// afterUnderpriced is t after a node said that another version of its nonce pays as much: the
// next bid is higher, and made at once, unless a bound holds it. ok is false where there
// is none.
func (r Rules) afterUnderpriced(t Tx, head Header, now time.Time) (Tx, bool) {
	if _, ok := r.bumpAt(t); !ok {
		return t, false
	}
	t.NextResubmitAt = new(now.Add(r.retryDelay(t.SubmitAttempts)))
	if r.isBumpHeld(t) {
		return r.withNextCheck(t, r.afterBlocks(1, head, now)), true
	}
	t.LastError, t.NextBumpAt, t.NextCheckAt = "", &now, &now
	return t, true
}

// bumpPlanner is the replacements of one round.
type bumpPlanner struct {
	rules  Rules
	chain  ChainConnector
	v      ChainObservation
	now    time.Time
	first  uint64           // the lowest nonce that is unsettled
	left   availableBalance // what no nonce has a claim on
	bounds Bounds           // of the submitter's policy
	spent  *big.Int         // of the budget, wei
}

func (r Rules) newBumpPlanner(w SubmitterState, chain ChainConnector, v ChainObservation) *bumpPlanner {
	b := &bumpPlanner{rules: r, chain: chain, v: v, now: w.now(), first: w.lowestOpenNonce(), spent: new(big.Int), bounds: w.Bounds}
	if w.BumpBudgetUsedWei != nil {
		b.spent.Set(w.BumpBudgetUsedWei)
	}
	if r.Bump != nil {
		b.left = newAvailableBalance(v, w.Open)
	}
	return b
}

// planBump is t's next version, or what becomes of t without one: it is looked at again
// after an interval, with the reason, if there is one; or an operator is to be asked.
func (r Rules) planBump(b *bumpPlanner, t Tx) (signingJob, *Transition) {
	job, reason, wanted := b.next(t)
	switch {
	case wanted && reason == "" && r.AskBeforePlaceholder:
		return signingJob{}, &Transition{From: t.State, To: r.markStuck(t, b.now, bumpNeedsOperator)}
	case wanted && reason == "":
		return job, nil
	case wanted:
		t.LastError = bumpHeldPrefix + reason
	case r.isBumpHeld(t):
		t.LastError = ""
	}
	return signingJob{}, &Transition{From: t.State, To: r.bumpLater(t, b.now)}
}

// next is t's version at a higher fee; or why there is none although one is due; or
// neither, where a higher fee would not help or is not its caller's wish.
func (b *bumpPlanner) next(t Tx) (job signingJob, reason string, wanted bool) {
	market := completeFees(Call{}, t.Gas.Gas, b.v.Account)
	if *t.Nonce != b.first && t.isAcknowledged() && paysMarketPrice(*t.Gas, b.v.Account) {
		return job, "", false // it waits for those below it
	}
	call, kind, cap := Call{To: new(t.Submitter.Address())}, VersionPlaceholder, b.rules.PlaceholderFeeCapWei
	if !t.isPlaceholder(t.Hash()) {
		if reason := t.unprovedReason(); reason != "" {
			return job, reason, true
		}
		var err error
		if call, err = b.chain.ParsePayload(t.Payload); err != nil {
			return job, err.Error(), true
		}
		kind, cap = VersionBump, lesser(lesser(b.rules.Bump.FeeCapWei, b.rules.FeeCapWei), b.rules.maxReplacementFee(b.bounds, t.Gas.Gas))
	}
	caps := feeCaps{feeWei: lesser(cap, call.FeeCapWei)}
	if kind == VersionBump {
		caps.tipWei = b.rules.maxTip(b.bounds, b.v.Account)
	}
	params, refused := b.rules.Bump.replacementFees(*t.Gas, market, caps)
	switch {
	case refused != "" && call.FeeCapWei != nil && (cap == nil || call.FeeCapWei.Cmp(cap) <= 0):
		return job, "", false
	case refused != "":
		return job, refused + " by " + b.rules.capNames(kind), true
	}
	extra := new(big.Int).Sub(params.worstCostWei(), t.Gas.worstCostWei())
	if reason := b.bounds.feesUsedUpReason(extra); kind == VersionBump && reason != "" {
		return job, reason, true
	}
	if reason := b.reserveExtra(*t.Gas, params, extra); reason != "" {
		return job, reason, true
	}
	if kind == VersionBump {
		b.bounds = b.bounds.withFee(extra)
	}
	t.Gas = &params
	return signingJob{tx: t, kind: kind, unsigned: buildUnsigned(t, call), extraWei: extra}, "", true
}

// reserveExtra sets aside what a replacement may cost beyond the version before it, or says why
// it may not.
func (b *bumpPlanner) reserveExtra(before, after GasParams, extraWei *big.Int) (reason string) {
	spent, most := new(big.Int).Add(b.spent, extraWei), b.rules.Bump.BudgetWei
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

// otherCapNames bound a bid wherever they are lower.
const otherCapNames = ", or the bounds of fees.maxFeePerTx, fees.maxTipMultiple, nonce.placeholderMaxFeePerGas or the submitter's policy"

// maxReplacementFee is the most that a replacement which is no placeholder offers, wei per gas: a
// placeholder can still outbid it, and its fee is no more than what two replacements make of
// the highest first version; nil: no bound.
func (r Rules) maxReplacementFee(b Bounds, gas uint64) *big.Int {
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

// capNames names what bounds a bid of this kind.
func (r Rules) capNames(kind VersionKind) string {
	switch {
	case kind == VersionPlaceholder:
		return "nonce.placeholderMaxFeePerGas or gasbump.maxFeePerTx"
	case r.FeeCapWei != nil && lesser(r.Bump.FeeCapWei, r.FeeCapWei) == r.FeeCapWei:
		return "fees.maxFeePerGas or gasbump.maxFeePerTx" + otherCapNames
	}
	return "gasbump.maxFeePerGas or gasbump.maxFeePerTx" + otherCapNames
}

// replacementFees is the fees of the next version by the policy; see [replacementFees].
func (p GasBumpPolicy) replacementFees(last, market GasParams, caps feeCaps) (g GasParams, refused string) {
	if p.TxFeeCapWei != nil {
		caps.feeWei = lesser(caps.feeWei, new(big.Int).Div(p.TxFeeCapWei, new(big.Int).SetUint64(max(last.Gas, 1))))
	}
	return replacementFees(last, market, p.Multiplier, caps)
}

// lesser is the lesser of two bounds; nil is none.
func lesser(a, b *big.Int) *big.Int {
	if a == nil || b != nil && b.Cmp(a) < 0 {
		return b
	}
	return a
}

// withBumpedVersion is the version that withVersion made, in the life of the transaction: the time
// after which it is STUCK counts from its first broadcast.
func (r Rules) withBumpedVersion(t Tx, job signingJob) Tx {
	if job.extraWei != nil {
		t.FirstSubmitAt = job.tx.FirstSubmitAt
	}
	return r.bumpLater(t, *t.LastSubmitAt)
}

// bumpNeedsOperator is why an operator has to decide about a bump.
const bumpNeedsOperator = "a higher fee is due, and nonce.placeholder=ask: an operator must decide"
