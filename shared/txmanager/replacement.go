package txmanager

import (
	"fmt"
	"math/big"
)

// The fee of a replacement, in thousandths of the fee of the version before.
const (
	// nodesDemand is the least that go-ethereum, and nodes that follow it, accept: a tenth
	// more in both fees (core/txpool/legacypool, PriceBump 10).
	nodesDemand int64 = 1100

	// replaceFactor is what a cancel, a placeholder and an operator's replacement raise both
	// fees by. An automatic gas bump has its factor in [GasBumpPolicy].
	replaceFactor int64 = 1125
)

// feeCaps are the most that a replacement may offer, in wei per gas; nil: no bound.
type feeCaps struct{ feeWei, tipWei *big.Int }

// replacementFees returns the fees of a version that replaces one with the fees last. Both
// fees are last's times factor (in thousandths, rounded up), and at least what blocks take
// now (market); then they are lowered to caps. A chain without EIP-1559 has one price, which
// is in both fees.
//
// refused says why there is no such version: nodes would not accept what caps leave. Else it
// is "". A last with both fees zero is no version: then what blocks take must be within caps.
func replacementFees(last, market GasParams, factor int64, caps feeCaps) (g GasParams, refused string) {
	g = GasParams{
		Gas: last.Gas, ValueWei: last.ValueWei, Legacy: market.Legacy,
		TipCapWei: greater(thousandths(last.TipCapWei, factor), market.TipCapWei),
		FeeCapWei: greater(thousandths(last.FeeCapWei, factor), market.FeeCapWei),
	}
	g.FeeCapWei = greater(g.FeeCapWei, g.TipCapWei)
	if g.Legacy {
		caps.tipWei = nil
	}
	needFee, needTip := thousandths(last.FeeCapWei, nodesDemand), thousandths(last.TipCapWei, nodesDemand)
	if last.FeeCapWei.Sign() == 0 { // no version yet
		needFee, needTip = g.FeeCapWei, new(big.Int)
	}
	g.FeeCapWei = lesser(g.FeeCapWei, caps.feeWei)
	g.TipCapWei = lesser(lesser(g.TipCapWei, caps.tipWei), g.FeeCapWei)
	if g.Legacy {
		g.TipCapWei = g.FeeCapWei
	}
	switch {
	case g.FeeCapWei.Cmp(needFee) < 0:
		return g, fmt.Sprintf("a replacement must offer at least %s wei per gas, a tenth more than the last version, and only %s is allowed", needFee, g.FeeCapWei)
	case g.TipCapWei.Cmp(needTip) < 0:
		return g, fmt.Sprintf("a replacement must tip at least %s wei per gas, a tenth more than the last version, and only %s is allowed", needTip, g.TipCapWei)
	}
	return g, ""
}

// thousandths is wei times n thousandths, rounded up, and more than wei for n above
// 1,000.
func thousandths(wei *big.Int, n int64) *big.Int {
	more := new(big.Int).Mul(wei, big.NewInt(n))
	more.Add(more, big.NewInt(999)).Div(more, big.NewInt(1000))
	if n > 1000 && more.Cmp(wei) <= 0 {
		more.Add(wei, big.NewInt(1))
	}
	return more
}
