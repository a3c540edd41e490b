package txmanager

import (
	"fmt"
	"math/big"
	"slices"
)

// Bounds are what a submitter's policy allows of one transaction, and of a day's fees.
// nil and 0 are no bound. A fee is the most that a version may pay: its gas limit times its
// maxFeePerGas.
type Bounds struct {
	ValueWei      *big.Int
	Targets       []string // receivers, functions of receivers (see [Call.Function]), or "deploy"
	Gas           uint64
	TipWei        *big.Int // wei per gas
	FeeWei        *big.Int
	FeesPerDayWei *big.Int // in any 24 hours
	FeesUsedWei   *big.Int // of that, by now; nil: nothing

	Tokens map[string]*big.Int // by the contract, the most of its smallest unit; nil: as much as it likes
}

// BoundedTerms is what is known of a transaction that is judged. nil, "" and 0: not known yet.
type BoundedTerms struct {
	ValueWei *big.Int
	Target   string
	Function string // see [Call.Function]
	Gas      uint64
	TipWei   *big.Int
	FeeWei   *big.Int

	AmountUnits *big.Int // see [Call.TokenAmount]; judged where Target is known
}

// RefusalReason says what of a is not allowed for as long as the policy is what it is, or "".
func (b Bounds) RefusalReason(a BoundedTerms) string {
	switch {
	case exceeds(a.ValueWei, b.ValueWei):
		return fmt.Sprintf("the submitter's policy allows at most %s wei in one transaction", b.ValueWei)
	case a.Target != "" && b.Targets != nil && !slices.Contains(b.Targets, a.Target) && !slices.Contains(b.Targets, a.Function):
		return "the submitter's policy does not allow this receiver, or this function of it"
	case b.refuseToken(a) != "":
		return b.refuseToken(a)
	case b.Gas > 0 && a.Gas > b.Gas:
		return fmt.Sprintf("the submitter's policy allows at most %d gas in one transaction", b.Gas)
	case exceeds(a.TipWei, b.TipWei):
		return fmt.Sprintf("the submitter's policy allows a tip of at most %s wei per gas", b.TipWei)
	case exceeds(a.FeeWei, b.maxFeeOfTx()):
		return fmt.Sprintf("the submitter's policy allows a fee of at most %s wei in one transaction", b.maxFeeOfTx())
	}
	return ""
}

// maxFeeOfTx is the most that the fee of one transaction comes to: no more than a day's.
func (b Bounds) maxFeeOfTx() *big.Int { return lesser(b.FeeWei, b.FeesPerDayWei) }

// feesUsedUpReason says that a further fee does not fit into the last 24 hours, or "".
func (b Bounds) feesUsedUpReason(feeWei *big.Int) string {
	if b.FeesPerDayWei == nil {
		return ""
	}
	if used := b.withFee(feeWei).FeesUsedWei; used.Cmp(b.FeesPerDayWei) > 0 {
		return fmt.Sprintf("fee: the submitter's policy allows fees of at most %s wei in 24 hours, and they are used up", b.FeesPerDayWei)
	}
	return ""
}

// withFee is b after a further fee.
func (b Bounds) withFee(feeWei *big.Int) Bounds {
	if b.FeesUsedWei == nil {
		b.FeesUsedWei = new(big.Int)
	}
	b.FeesUsedWei = new(big.Int).Add(b.FeesUsedWei, feeWei)
	return b
}

// exceeds says that a is known, and more than the bound. nil is no bound.
func exceeds(a, most *big.Int) bool { return a != nil && most != nil && a.Cmp(most) > 0 }

// feeWei is the most that g's gas may cost.
func (g GasParams) feeWei() *big.Int {
	return new(big.Int).Mul(g.FeeCapWei, new(big.Int).SetUint64(g.Gas))
}

// RefusalReason says what of a call, as it was asked for, is above b or the deployment's bound of
// one transaction's fee whatever the chain's fees are; or "". A fee cap is judged where the
// gas limit was given with it: else it is lowered to what is allowed, see [Rules.clampFees].
func (r Rules) RefusalReason(b Bounds, c Call) string {
	g := GasParams{Gas: max(c.Gas, placeholderGas), FeeCapWei: big.NewInt(1)} // no transaction costs less
	if c.Gas > 0 && c.FeeCapWei != nil {
		g.FeeCapWei = c.FeeCapWei
	}
	if reason := b.RefusalReason(BoundedTerms{Gas: c.Gas, TipWei: c.TipCapWei, FeeWei: g.feeWei()}); reason != "" {
		return reason
	}
	return r.FeeTooHighReason(c)
}

// forbiddenReason says what of t, which waits for its nonce, the submitter's policy or callers do not
// allow by now, or "". What a handler will make of t is judged once it is made. How much is
// allowed in a minute and in a day is not asked again: t was counted when it was accepted.
func (r Rules) forbiddenReason(b Bounds, t Tx, c Call) string {
	if t.BarredReason != "" {
		return t.BarredReason
	}
	if t.Handler == "" {
		if exceeds(c.Value, t.MaxValueWei) {
			return fmt.Sprintf("the submitter's policy allows this caller at most %s wei in one transaction", t.MaxValueWei)
		}
		if reason := b.RefusalReason(BoundedTerms{ValueWei: c.Value, Target: c.target(), Function: c.Function(), AmountUnits: c.TokenAmount()}); reason != "" {
			return reason
		}
	}
	return r.RefusalReason(b, c)
}

// target is what a policy calls the receiver of c.
func (c Call) target() string {
	if c.To == nil {
		return "deploy"
	}
	return c.To.String()
}

// selectorSize is the number of bytes with which the data of a contract's call names the
// function.
const selectorSize = 4

// Function is what a policy calls the function that c calls: the receiver, a colon and the
// selector in hex. It is "" for a deployment, and where the data is too short to name one.
func (c Call) Function() string {
	if c.To == nil || len(c.Data) < selectorSize {
		return ""
	}
	return fmt.Sprintf("%s:0x%x", c.To, c.Data[:selectorSize])
}

// FeeTooHighReason says why what a call asks for may cost more than the deployment lets one
// transaction cost, or "". What was not given is not judged.
func (r Rules) FeeTooHighReason(c Call) string {
	if c.Gas == 0 || c.FeeCapWei == nil {
		return ""
	}
	g := GasParams{Gas: c.Gas, FeeCapWei: lesser(c.FeeCapWei, r.FeeCapWei)}
	if !exceeds(g.feeWei(), r.TxFeeCapWei) {
		return ""
	}
	return fmt.Sprintf("its gas may cost %s wei (gas times maxFeePerGas), above fees.maxFeePerTx %s", g.feeWei(), r.TxFeeCapWei)
}

// maxTip is the most that a first version or a bid tips: a multiple of what the node
// advises, and not below the floor. nil: no bound.
func (r Rules) maxTip(b Bounds, a Account) *big.Int {
	if r.TipMultiple == 0 || a.TipWei == nil {
		return b.TipWei
	}
	most := new(big.Int).Mul(a.TipWei, big.NewInt(r.TipMultiple))
	if r.TipFloorWei != nil {
		most = greater(most, r.TipFloorWei)
	}
	return lesser(most, b.TipWei)
}

// clampFees lowers p's tip, and its fee cap, to what b and the deployment allow. They are only
// the most that is paid: below the base fee the transaction waits. A tip of a chain without
// EIP-1559 is the price itself.
func (r Rules) clampFees(b Bounds, p GasParams, a Account) GasParams {
	if most := lesser(b.maxFeeOfTx(), r.TxFeeCapWei); most != nil {
		p.FeeCapWei = lesser(p.FeeCapWei, new(big.Int).Div(most, new(big.Int).SetUint64(max(p.Gas, 1))))
	}
	if p.Legacy {
		p.TipCapWei = p.FeeCapWei
		return p
	}
	p.TipCapWei = lesser(lesser(p.TipCapWei, r.maxTip(b, a)), p.FeeCapWei)
	return p
}

// signedFeesReason says why bytes that came signed, whose fees nobody can lower, are above b or
// the deployment's bound of one transaction's fee, or "". Of bytes with one price the tip is
// what it leaves above the base fee. The deployment's bound of tips does not hold for them:
// whoever signed them has the key.
func (r Rules) signedFeesReason(b Bounds, g GasParams, a Account) string {
	tip := g.TipCapWei
	switch {
	case a.GasPriceWei != nil:
		tip = nil
	case g.Legacy, g.TipCapWei.Cmp(g.FeeCapWei) == 0:
		tip = new(big.Int).Sub(g.FeeCapWei, a.BaseFeeWei)
	}
	if reason := b.RefusalReason(BoundedTerms{Gas: g.Gas, TipWei: tip, FeeWei: g.feeWei()}); reason != "" {
		return reason
	}
	if exceeds(g.feeWei(), r.TxFeeCapWei) {
		return fmt.Sprintf("the fee may come to %s wei, above fees.maxFeePerTx %s", g.feeWei(), r.TxFeeCapWei)
	}
	return ""
}

// feeUses is what wr adds to the fees of its submitter at worst, by transaction: all of a
// nonce that it binds, and of a later version what it may cost beyond the one before. A
// placeholder adds nothing: the version before it was counted.
func (w SubmitterState) feeUses(wr Commit) (all []FeeUse) {
	if w.Bounds.FeesPerDayWei == nil {
		return nil
	}
	add := func(id string, after *GasParams, before *GasParams) {
		added := after.feeWei()
		if before != nil {
			added.Sub(added, before.feeWei())
		}
		if added.Sign() > 0 {
			all = append(all, FeeUse{TxID: id, AddedWei: added})
		}
	}
	before := make(map[string]*GasParams, len(w.Open))
	for _, t := range w.Open {
		before[t.ID] = t.Gas
	}
	for _, a := range wr.Allocations {
		add(a.Tx.ID, a.Tx.Gas, nil)
	}
	for _, k := range wr.Reservations {
		add(k.Tx.ID, k.Tx.Gas, nil)
	}
	for _, v := range wr.Versions {
		if v.Kind != VersionPlaceholder {
			add(v.Tx.ID, v.Tx.Gas, before[v.Tx.ID])
		}
	}
	if m := wr.Mark; m != nil && m.To == Used {
		add(m.TxID, m.Gas, before[m.TxID])
	}
	return all
}
