package txmanager

import (
	"fmt"
	"math/big"
	"slices"
)

// Bounds are the limits of a submitter's policy on one transaction and on a day's fees. nil and 0
// mean no limit. The fee of a version is its gas limit times its maxFeePerGas.
type Bounds struct {
	ValueWei      *big.Int
	Targets       []string // receivers, functions of receivers (see [Call.Function]), or "deploy"
	Gas           uint64
	TipWei        *big.Int // wei per gas
	FeeWei        *big.Int
	FeesPerDayWei *big.Int // in any 24 hours
	FeesUsedWei   *big.Int // used in the last 24 hours; nil: nothing

	Tokens map[string]*big.Int // by token contract, the most of its smallest unit; nil: no limit
}

// BoundedTerms are the known terms of a transaction under evaluation. nil, "" and 0: not known
// yet.
type BoundedTerms struct {
	ValueWei *big.Int
	Target   string
	Function string // see [Call.Function]
	Gas      uint64
	TipWei   *big.Int
	FeeWei   *big.Int

	AmountUnits *big.Int // see [Call.TokenAmount]; checked where Target is known
}

// RefusalReason is why the present policy does not allow a, or "".
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

// maxFeeOfTx is the highest fee of one transaction, which is never above a day's.
func (b Bounds) maxFeeOfTx() *big.Int { return lesser(b.FeeWei, b.FeesPerDayWei) }

// feesUsedUpReason is why a further fee exceeds the limit of 24 hours, or "".
func (b Bounds) feesUsedUpReason(feeWei *big.Int) string {
	if b.FeesPerDayWei == nil {
		return ""
	}
	if used := b.withFee(feeWei).FeesUsedWei; used.Cmp(b.FeesPerDayWei) > 0 {
		return fmt.Sprintf("fee: the submitter's policy allows fees of at most %s wei in 24 hours, and they are used up", b.FeesPerDayWei)
	}
	return ""
}

// withFee is b with a further fee used.
func (b Bounds) withFee(feeWei *big.Int) Bounds {
	if b.FeesUsedWei == nil {
		b.FeesUsedWei = new(big.Int)
	}
	b.FeesUsedWei = new(big.Int).Add(b.FeesUsedWei, feeWei)
	return b
}

// exceeds reports whether a is known and above the limit. nil is no limit.
func exceeds(a, most *big.Int) bool { return a != nil && most != nil && a.Cmp(most) > 0 }

// feeWei is the highest gas cost of g.
func (g GasParams) feeWei() *big.Int {
	return new(big.Int).Mul(g.FeeCapWei, new(big.Int).SetUint64(g.Gas))
}

// RefusalReason is why b, or the deployment's fee limit for one transaction, does not allow a
// requested call at any fee of the chain, or "". A fee cap is checked only together with a gas
// limit. Otherwise [Limits.clampFees] lowers it.
func (r Limits) RefusalReason(b Bounds, c Call) string {
	g := GasParams{Gas: max(c.Gas, placeholderGas), FeeCapWei: big.NewInt(1)} // no transaction costs less
	if c.Gas > 0 && c.FeeCapWei != nil {
		g.FeeCapWei = c.FeeCapWei
	}
	if reason := b.RefusalReason(BoundedTerms{Gas: c.Gas, TipWei: c.TipCapWei, FeeWei: g.feeWei()}); reason != "" {
		return reason
	}
	return r.FeeTooHighReason(c)
}

// forbiddenReason is why the submitter's policy or callers no longer allow queued t, or "". A
// handler's transaction is checked once it is made. The limits of a minute and of a day are not
// checked again: t counted against them when it was accepted.
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

// target is the policy's name for the receiver of c.
func (c Call) target() string {
	if c.To == nil {
		return "deploy"
	}
	return c.To.String()
}

// selectorSize is the number of bytes of the function selector in a contract call's data.
const selectorSize = 4

// Function is the policy's name for the function that c calls: the receiver, a colon and the
// selector in hex. It is "" for a deployment, and where the data is too short.
func (c Call) Function() string {
	if c.To == nil || len(c.Data) < selectorSize {
		return ""
	}
	return fmt.Sprintf("%s:0x%x", c.To, c.Data[:selectorSize])
}

// FeeTooHighReason is why a call with both gas and maxFeePerGas may cost more than
// fees.maxFeePerTx, or "". A call without both is not checked.
func (r Limits) FeeTooHighReason(c Call) string {
	if c.Gas == 0 || c.FeeCapWei == nil {
		return ""
	}
	g := GasParams{Gas: c.Gas, FeeCapWei: lesser(c.FeeCapWei, r.FeeCapWei)}
	if !exceeds(g.feeWei(), r.TxFeeCapWei) {
		return ""
	}
	return fmt.Sprintf("its gas may cost %s wei (gas times maxFeePerGas), above fees.maxFeePerTx %s", g.feeWei(), r.TxFeeCapWei)
}

// maxTip is the highest tip of a first version or gas bump; nil: no limit. It is a multiple of the
// node's advice, but not below the floor. It is never above the policy's limit.
func (r Limits) maxTip(b Bounds, a Account) *big.Int {
	if r.TipMultiple == 0 || a.TipWei == nil {
		return b.TipWei
	}
	most := new(big.Int).Mul(a.TipWei, big.NewInt(r.TipMultiple))
	if r.TipFloorWei != nil {
		most = greater(most, r.TipFloorWei)
	}
	return lesser(most, b.TipWei)
}

// clampFees lowers p's fee cap and tip to what b and the deployment allow. Both are upper limits:
// below the base fee the transaction waits. On a chain without EIP-1559 the tip is the price
// itself.
func (r Limits) clampFees(b Bounds, p GasParams, a Account) GasParams {
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

// signedFeesReason is why bytes signed elsewhere are above b or the deployment's fee limit for one
// transaction, or "". Their fees cannot be lowered. For bytes with a single price the tip is the
// part above the base fee. The deployment's tip limit does not apply to them, since their signer
// has the key.
func (r Limits) signedFeesReason(b Bounds, g GasParams, a Account) string {
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

// feeUses lists what wr adds at worst to its submitter's fees, by transaction. An allocated nonce
// adds its whole fee. A later version adds what it may cost beyond the one before. A placeholder
// adds nothing, since the version before it was counted.
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
