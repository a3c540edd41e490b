package txmanager

import (
	"fmt"
	"math/big"
)

// The fee factors of a replacement, in thousandths of the fee of the version before.
const (
	// nodesDemand is the lowest factor that go-ethereum, and nodes that follow it, accept: a tenth
	// more in both fees (core/txpool/legacypool, PriceBump 10).
	nodesDemand int64 = 1100

	// replaceFactor is the factor for both fees of a cancel, a placeholder and an operator's
	// replacement. A gas bump has its own factor in [GasBumpPolicy].
	replaceFactor int64 = 1125
)

// feeCaps are the limits of a replacement's fees, in wei per gas; nil: no limit.
type feeCaps struct{ feeWei, tipWei *big.Int }

// replacementFees returns the fees of a version that replaces one with the fees last. Both fees
// are last's times factor (in thousandths, rounded up), and at least the market's. Then they are
// lowered to caps. A chain without EIP-1559 has one price, which is in both fees.
//
// refused is the reason why nodes would not accept the lowered fees, or "". If both fees of last
// are zero, no version exists yet: then the market's fee must be within caps.
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

// thousandths is wei times n thousandths, rounded up. For n above 1,000 it is always more than
// wei.
func thousandths(wei *big.Int, n int64) *big.Int {
	more := new(big.Int).Mul(wei, big.NewInt(n))
	more.Add(more, big.NewInt(999)).Div(more, big.NewInt(1000))
	if n > 1000 && more.Cmp(wei) <= 0 {
		more.Add(wei, big.NewInt(1))
	}
	return more
}
