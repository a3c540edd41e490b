package gas

import (
	"fmt"
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// The fee factors of a replacement, in thousandths of the fee of the version before.
const (
	// nodesDemand is the lowest factor that go-ethereum, and nodes that follow it, accept: a tenth
	// more in both fees (core/txpool/legacypool, PriceBump 10).
	nodesDemand int64 = 1100

	// ReplaceFactor is the factor for both fees of a cancel, a placeholder and an operator's
	// replacement. A gas bump has what its [BumpPolicy] proposes.
	ReplaceFactor int64 = 1125
)

// FeeCaps are limits of a version's fees, in wei per gas; nil: no limit.
type FeeCaps struct{ FeeWei, TipWei *big.Int }

// lower is g with its fees lowered to the limits. On a chain without EIP-1559 the tip is the price itself.
func (c FeeCaps) lower(g txmanager.GasParams) txmanager.GasParams {
	g.FeeCapWei = txmanager.LowerLimit(g.FeeCapWei, c.FeeWei)
	if g.TipCapWei = txmanager.LowerLimit(txmanager.LowerLimit(g.TipCapWei, c.TipWei), g.FeeCapWei); g.Legacy {
		g.TipCapWei = g.FeeCapWei
	}
	return g
}

// ReplacementFees returns the fees of a version that replaces one with the fees last. Both fees
// are last's times [ReplaceFactor], rounded up, and at least the market's. Then they are
// lowered to caps. A chain without EIP-1559 has one price, which is in both fees.
//
// refused is the reason why nodes would not accept the lowered fees, or "". If both fees of last
// are zero, no version exists yet: then the market's fee must be within caps.
func ReplacementFees(last, market txmanager.GasParams, caps FeeCaps) (g txmanager.GasParams, refused string) {
	return limitReplacement(last, raiseFees(last, market, ReplaceFactor), caps)
}

// raiseFees are last's fees times factor, and at least the market's.
func raiseFees(last, market txmanager.GasParams, factor int64) txmanager.GasParams {
	g := txmanager.GasParams{
		Gas: last.Gas, ValueWei: last.ValueWei, Legacy: market.Legacy,
		TipCapWei: greater(Thousandths(last.TipCapWei, factor), market.TipCapWei),
		FeeCapWei: greater(Thousandths(last.FeeCapWei, factor), market.FeeCapWei),
	}
	g.FeeCapWei = greater(g.FeeCapWei, g.TipCapWei)
	return g
}

// limitReplacement lowers the fees of g to caps. refused is the reason why nodes would not accept them
// in place of last's, or "".
func limitReplacement(last, g txmanager.GasParams, caps FeeCaps) (_ txmanager.GasParams, refused string) {
	needFee, needTip := Thousandths(last.FeeCapWei, nodesDemand), Thousandths(last.TipCapWei, nodesDemand)
	if last.FeeCapWei.Sign() == 0 { // no version yet
		needFee, needTip = g.FeeCapWei, new(big.Int)
	}
	switch g = caps.lower(g); {
	case g.FeeCapWei.Cmp(needFee) < 0:
		return g, fmt.Sprintf("a replacement must offer at least %s wei per gas, a tenth more than the last version, and only %s is allowed", needFee, g.FeeCapWei)
	case g.TipCapWei.Cmp(needTip) < 0:
		return g, fmt.Sprintf("a replacement must tip at least %s wei per gas, a tenth more than the last version, and only %s is allowed", needTip, g.TipCapWei)
	}
	return g, ""
}

// Thousandths is wei times n thousandths, rounded up. For n above 1,000 it is always more than
// wei.
func Thousandths(wei *big.Int, n int64) *big.Int {
	more := new(big.Int).Mul(wei, big.NewInt(n))
	more.Add(more, big.NewInt(999)).Div(more, big.NewInt(1000))
	if n > 1000 && more.Cmp(wei) <= 0 {
		more.Add(wei, big.NewInt(1))
	}
	return more
}

func greater(a, b *big.Int) *big.Int {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}
