// Package gas calculates what versions pay: fees, replacements, gas bumps, and the balance and daily
// fees that they may use. It is pure: each function depends only on its arguments.
package gas

import (
	"fmt"
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Limits are the deployment's limits on fees, and its policy for gas bumps.
type Limits struct {
	MaxFeePerGasWei      *big.Int    // the highest fee of a first version, wei per gas; nil: no limit
	TxFeeCapWei          *big.Int    // the highest gas cost of a first version, wei; nil: no limit
	TipMultiple          int64       // the tip of a first version or gas bump is at most this multiple of the nodes' advice; 0: no limit
	TipFloorWei          *big.Int    // the tip limit is never below this, wei per gas; nil: no floor
	PlaceholderFeeCapWei *big.Int    // the highest fee of a placeholder, wei per gas; nil: no limit
	Bump                 *BumpLimits // nil: only a decision replaces a transaction
}

// RefusalReason is why b, or the deployment's fee limit for one transaction, does not allow a
// requested call at any fee of the chain, or "". A fee cap is checked only together with a gas
// limit. Otherwise [Limits.ClampFees] lowers it.
func (r Limits) RefusalReason(b txmanager.Bounds, c txmanager.Call) string {
	g := txmanager.GasParams{Gas: max(c.Gas, PlaceholderGas), FeeCapWei: big.NewInt(1)} // no transaction costs less
	if c.Gas > 0 && c.FeeCapWei != nil {
		g.FeeCapWei = c.FeeCapWei
	}
	if reason := b.RefusalReason(txmanager.BoundedTerms{Gas: c.Gas, TipWei: c.TipCapWei, FeeWei: g.FeeWei()}); reason != "" {
		return reason
	}
	return r.FeeTooHighReason(c)
}

// FeeTooHighReason is why a call with both gas and maxFeePerGas may cost more than
// fees.maxFeePerTx, or "". A call without both is not checked.
func (r Limits) FeeTooHighReason(c txmanager.Call) string {
	if c.Gas == 0 || c.FeeCapWei == nil {
		return ""
	}
	g := txmanager.GasParams{Gas: c.Gas, FeeCapWei: txmanager.LowerLimit(c.FeeCapWei, r.MaxFeePerGasWei)}
	if !txmanager.ExceedsLimit(g.FeeWei(), r.TxFeeCapWei) {
		return ""
	}
	return fmt.Sprintf("its gas may cost %s wei (gas times maxFeePerGas), above fees.maxFeePerTx %s", g.FeeWei(), r.TxFeeCapWei)
}

// MaxTip is the highest tip of a first version or gas bump; nil: no limit. It is a multiple of the
// node's advice, but not below the floor. It is never above the policy's limit.
func (r Limits) MaxTip(b txmanager.Bounds, a txmanager.Account) *big.Int {
	if r.TipMultiple == 0 || a.TipWei == nil {
		return b.TipWei
	}
	limit := new(big.Int).Mul(a.TipWei, big.NewInt(r.TipMultiple))
	if r.TipFloorWei != nil {
		limit = greater(limit, r.TipFloorWei)
	}
	return txmanager.LowerLimit(limit, b.TipWei)
}

// ClampFees lowers p's fee cap and tip to what b and the deployment allow. Both are upper limits:
// below the base fee the transaction waits.
func (r Limits) ClampFees(b txmanager.Bounds, p txmanager.GasParams, a txmanager.Account) txmanager.GasParams {
	caps := FeeCaps{TipWei: r.MaxTip(b, a)}
	if limit := txmanager.LowerLimit(b.MaxFeeOfTx(), r.TxFeeCapWei); limit != nil {
		caps.FeeWei = new(big.Int).Div(limit, new(big.Int).SetUint64(max(p.Gas, 1)))
	}
	return caps.lower(p)
}

// SignedFeesReason is why bytes signed elsewhere are above b or the deployment's fee limit for one
// transaction, or "". Their fees cannot be lowered. For bytes with a single price the tip is the
// part above the base fee. The deployment's tip limit does not apply to them, since their signer
// has the key.
func (r Limits) SignedFeesReason(b txmanager.Bounds, g txmanager.GasParams, a txmanager.Account) string {
	tip := g.TipCapWei
	switch {
	case a.GasPriceWei != nil:
		tip = nil
	case g.Legacy, g.TipCapWei.Cmp(g.FeeCapWei) == 0:
		tip = new(big.Int).Sub(g.FeeCapWei, a.BaseFeeWei)
	}
	if reason := b.RefusalReason(txmanager.BoundedTerms{Gas: g.Gas, TipWei: tip, FeeWei: g.FeeWei()}); reason != "" {
		return reason
	}
	if txmanager.ExceedsLimit(g.FeeWei(), r.TxFeeCapWei) {
		return fmt.Sprintf("the fee may come to %s wei, above fees.maxFeePerTx %s", g.FeeWei(), r.TxFeeCapWei)
	}
	return ""
}

// FeeUses lists what wr adds at worst to its submitter's fees, by transaction. An allocated nonce
// adds its whole fee. A later version adds what it may cost beyond the one before. A placeholder
// adds nothing, since the version before it was counted.
func FeeUses(w txmanager.SubmitterState, wr txmanager.Commit) (all []txmanager.FeeUse) {
	if w.Bounds.FeesPerDayWei == nil {
		return nil
	}
	add := func(id string, after *txmanager.GasParams, before *txmanager.GasParams) {
		added := after.FeeWei()
		if before != nil {
			added.Sub(added, before.FeeWei())
		}
		if added.Sign() > 0 {
			all = append(all, txmanager.FeeUse{TxID: id, AddedWei: added})
		}
	}
	before := make(map[string]*txmanager.GasParams, len(w.Open))
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
		if v.Kind != txmanager.VersionPlaceholder {
			add(v.Tx.ID, v.Tx.Gas, before[v.Tx.ID])
		}
	}
	if m := wr.Mark; m != nil && m.To == txmanager.Used {
		add(m.TxID, m.Gas, before[m.TxID])
	}
	return all
}

// WeiPerGwei converts prices of gas, which settings and metrics give in gwei, to wei.
const WeiPerGwei = 1_000_000_000
