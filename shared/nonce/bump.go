package nonce

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

// bumps is how often t's last version, or one like it, was replaced already.
func (t Tx) bumps() int {
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
	if r.Bump == nil || !waiting || t.Ordered != "" || t.spent() || t.FirstSubmitAt == nil || t.Gas == nil || t.bumps() >= r.Bump.MaxAttempts {
		return at, false
	}
	if t.opaque() && !t.isPlaceholder(t.Hash()) {
		return at, false
	}
	if t.NextBumpAt != nil {
		return *t.NextBumpAt, true
	}
	return t.FirstSubmitAt.Add(r.Bump.MinInterval), true
}

// bumpDue says that t may be replaced now. What is, is not sent again as it is; what a
// bound has held is.
func (r Rules) bumpDue(t Tx, now time.Time) bool {
	at, ok := r.bumpAt(t)
	return ok && !now.Before(at)
}

// bumpBy is when somebody has to look at t in order to replace it: with its next check
// at the earliest, since a receipt may have come.
func (r Rules) bumpBy(t Tx) (at time.Time, ok bool) {
	if at, ok = r.bumpAt(t); ok && t.NextCheckAt != nil {
		at = later(at, *t.NextCheckAt)
	}
	return at, ok
}

// bumpUnknown says that t is due for a bump, and that the node, asked for its receipts,
// gave no answer: what may be mined is not replaced now, and is sent as it is.
func (r Rules) bumpUnknown(t Tx, v View, now time.Time) bool {
	return r.bumpDue(t, now) && slices.ContainsFunc(t.Versions, func(h Hash) bool {
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

// heldBid begins the reason why a bid that is due is not made.
const heldBid = "gas bump: "

// bidHeld says that t's next bid was due, and a bound forbade it.
func (r Rules) bidHeld(t Tx) bool {
	_, bids := r.bumpAt(t)
	return bids && strings.HasPrefix(t.LastError, heldBid)
}

// outbidden is t after a node said that another version of its nonce pays as much: the
// next bid is higher, and made at once, unless a bound holds it. ok is false where there
// is none.
func (r Rules) outbidden(t Tx, head Header, now time.Time) (Tx, bool) {
	if _, ok := r.bumpAt(t); !ok {
		return t, false
	}
	t.NextResubmitAt = new(now.Add(r.patience(t.SubmitAttempts)))
	if r.bidHeld(t) {
		return r.checkNext(t, r.afterBlocks(1, head, now)), true
	}
	t.LastError, t.NextBumpAt, t.NextCheckAt = "", &now, &now
	return t, true
}

// bumping is the replacements of one round.
type bumping struct {
	rules  Rules
	chain  ChainConnector
	v      View
	now    time.Time
	first  uint64   // the lowest nonce that is unsettled
	left   purse    // what no nonce has a claim on
	bounds Bounds   // of the submitter's policy
	spent  *big.Int // of the budget, wei
}

func (r Rules) bumping(w Work, chain ChainConnector, v View) *bumping {
	b := &bumping{rules: r, chain: chain, v: v, now: w.now(), first: w.lowest(), spent: new(big.Int), bounds: w.Bounds}
	if w.BumpSpentWei != nil {
		b.spent.Set(w.BumpSpentWei)
	}
	if r.Bump != nil {
		b.left = newPurse(v, w.Unsettled)
	}
	return b
}

// bumpNow is t's next version, or what becomes of t without one: it is looked at again
// after an interval, with the reason, if there is one; or an operator is to be asked.
func (r Rules) bumpNow(b *bumping, t Tx) (signing, *Move) {
	job, reason, wanted := b.next(t)
	switch {
	case wanted && reason == "" && r.AskBeforePlaceholder:
		return signing{}, &Move{From: t.State, To: r.stuck(t, b.now, notUnasked)}
	case wanted && reason == "":
		return job, nil
	case wanted:
		t.LastError = heldBid + reason
	case r.bidHeld(t):
		t.LastError = ""
	}
	return signing{}, &Move{From: t.State, To: r.bumpLater(t, b.now)}
}

// next is t's version at a higher fee; or why there is none although one is due; or
// neither, where a higher fee would not help or is not its caller's wish.
func (b *bumping) next(t Tx) (job signing, reason string, wanted bool) {
	market := fees(Call{}, t.Gas.Gas, b.v.Account)
	if *t.Nonce != b.first && t.acknowledged() && taken(*t.Gas, b.v.Account) {
		return job, "", false // it waits for those below it
	}
	call, kind, cap := Call{To: new(t.Submitter.Address())}, VersionPlaceholder, b.rules.PlaceholderFeeCapWei
	if !t.isPlaceholder(t.Hash()) {
		if reason := t.unproved(); reason != "" {
			return job, reason, true
		}
		var err error
		if call, err = b.chain.Call(t.Payload); err != nil {
			return job, err.Error(), true
		}
		kind, cap = VersionBump, least(least(b.rules.Bump.FeeCapWei, b.rules.FeeCapWei), b.rules.replaceCap(b.bounds, t.Gas.Gas))
	}
	caps := feeCaps{feeWei: least(cap, call.FeeCapWei)}
	if kind == VersionBump {
		caps.tipWei = b.rules.tipMost(b.bounds, b.v.Account)
	}
	params, refused := b.rules.Bump.bid(*t.Gas, market, caps)
	switch {
	case refused != "" && call.FeeCapWei != nil && (cap == nil || call.FeeCapWei.Cmp(cap) <= 0):
		return job, "", false
	case refused != "":
		return job, refused + " by " + b.rules.capOf(kind), true
	}
	extra := new(big.Int).Sub(params.worstCostWei(), t.Gas.worstCostWei())
	if reason := b.bounds.usedUp(extra); kind == VersionBump && reason != "" {
		return job, reason, true
	}
	if reason := b.take(*t.Gas, params, extra); reason != "" {
		return job, reason, true
	}
	if kind == VersionBump {
		b.bounds = b.bounds.used(extra)
	}
	t.Gas = &params
	return signing{tx: t, kind: kind, unsigned: unsigned(t, call), extraWei: extra}, "", true
}

// take sets aside what a replacement may cost beyond the version before it, or says why
// it may not.
func (b *bumping) take(before, after GasParams, extraWei *big.Int) (reason string) {
	spent, most := new(big.Int).Add(b.spent, extraWei), b.rules.Bump.BudgetWei
	if most != nil && spent.Cmp(most) > 0 {
		return "the submitter's budget of 24 hours is used up"
	}
	left := new(big.Int).Add(b.left.leftWei, cost(before))
	if left.Sub(left, cost(after)).Sign() < 0 {
		return "the account cannot pay for a higher bid, what is in flight and a placeholder for each"
	}
	b.spent, b.left.leftWei = spent, left
	return ""
}

// otherCaps bound a bid wherever they are lower.
const otherCaps = ", or the bounds of fees.maxFeePerTx, fees.maxTipMultiple, nonce.placeholderMaxFeePerGas or the submitter's policy"

// replaceCap is the most that a replacement which is no placeholder offers, wei per gas: a
// placeholder can still outbid it, and its fee is no more than what two replacements make of
// the highest first version; nil: no bound.
func (r Rules) replaceCap(b Bounds, gas uint64) *big.Int {
	fee := b.ofOneTx()
	if r.TxFeeCapWei != nil {
		fee = least(fee, thousandths(thousandths(r.TxFeeCapWei, replaceFactor), replaceFactor))
	}
	var cap *big.Int
	if fee != nil {
		cap = new(big.Int).Div(fee, new(big.Int).SetUint64(max(gas, 1)))
	}
	if r.PlaceholderFeeCapWei != nil {
		below := new(big.Int).Mul(r.PlaceholderFeeCapWei, big.NewInt(1000))
		cap = least(cap, below.Div(below, big.NewInt(replaceFactor)))
	}
	return cap
}

// capOf names what bounds a bid of this kind.
func (r Rules) capOf(kind VersionKind) string {
	switch {
	case kind == VersionPlaceholder:
		return "nonce.placeholderMaxFeePerGas or gasbump.maxFeePerTx"
	case r.FeeCapWei != nil && least(r.Bump.FeeCapWei, r.FeeCapWei) == r.FeeCapWei:
		return "fees.maxFeePerGas or gasbump.maxFeePerTx" + otherCaps
	}
	return "gasbump.maxFeePerGas or gasbump.maxFeePerTx" + otherCaps
}

// bid is the fees of the next version by the policy; see [replacementFees].
func (p GasBumpPolicy) bid(last, market GasParams, caps feeCaps) (g GasParams, refused string) {
	if p.TxFeeCapWei != nil {
		caps.feeWei = least(caps.feeWei, new(big.Int).Div(p.TxFeeCapWei, new(big.Int).SetUint64(max(last.Gas, 1))))
	}
	return replacementFees(last, market, p.Multiplier, caps)
}

// least is the lesser of two bounds; nil is none.
func least(a, b *big.Int) *big.Int {
	if a == nil || b != nil && b.Cmp(a) < 0 {
		return b
	}
	return a
}

// bumped is the version that signedAs made, in the life of the transaction: the time
// after which it is STUCK counts from its first broadcast.
func (r Rules) bumped(t Tx, job signing) Tx {
	if job.extraWei != nil {
		t.FirstSubmitAt = job.tx.FirstSubmitAt
	}
	return r.bumpLater(t, *t.LastSubmitAt)
}

// notUnasked is why an operator has to decide about a bump.
const notUnasked = "a higher fee is due, and nonce.placeholder=ask: an operator must decide"
