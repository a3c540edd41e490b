package txmanager

import "math/big"

// completeFees fills in the fees that the payload leaves open: the node's advice for the tip, and
// a cap of twice the base fee plus the tip. That cap outlasts about six full blocks in a row (each
// raises the base fee by at most 1/8, EIP-1559).
func completeFees(call Call, gas uint64, a Account) GasParams {
	p := GasParams{Gas: gas, FeeCapWei: call.FeeCapWei, TipCapWei: call.TipCapWei, ValueWei: call.Value}
	if p.ValueWei == nil {
		p.ValueWei = new(big.Int)
	}
	if a.GasPriceWei != nil {
		return p.withGasPrice(a.GasPriceWei)
	}
	if p.TipCapWei == nil {
		p.TipCapWei = a.TipWei
	}
	if p.TipCapWei.Sign() == 0 { // nodes hold no transaction without a tip
		p.TipCapWei = big.NewInt(1)
	}
	if p.FeeCapWei == nil {
		p.FeeCapWei = new(big.Int).Add(new(big.Int).Lsh(a.BaseFeeWei, 1), p.TipCapWei)
	}
	if p.TipCapWei.Cmp(p.FeeCapWei) > 0 {
		p.TipCapWei = p.FeeCapWei
	}
	return p
}

// withGasPrice is p on a chain without EIP-1559: the node's advice, and at most the caller's
// maxFeePerGas.
func (p GasParams) withGasPrice(adviceWei *big.Int) GasParams {
	if p.FeeCapWei == nil || p.FeeCapWei.Cmp(adviceWei) > 0 {
		p.FeeCapWei = adviceWei
	}
	p.Legacy, p.TipCapWei = true, p.FeeCapWei
	return p
}

// firstVersionFees are the fees of a first version of call, at most fees.maxFeePerGas. Where gas
// bumps are on, the cap is also at most what blocks are likely to require, even if its caller
// allows more.
func (r Limits) firstVersionFees(call Call, gas uint64, a Account) GasParams {
	p := completeFees(call, gas, a)
	if r.Bump != nil && !p.Legacy {
		enough := new(big.Int).Add(new(big.Int).Lsh(a.BaseFeeWei, 1), p.TipCapWei)
		p.FeeCapWei = lesser(p.FeeCapWei, enough)
	}
	return r.clampToCeiling(p)
}

// clampToCeiling lowers both fees to fees.maxFeePerGas. Both are upper limits: below the base fee
// the transaction waits.
func (r Limits) clampToCeiling(p GasParams) GasParams {
	if r.FeeCapWei != nil && p.FeeCapWei.Cmp(r.FeeCapWei) > 0 {
		p.FeeCapWei = r.FeeCapWei
	}
	if p.TipCapWei.Cmp(p.FeeCapWei) > 0 {
		p.TipCapWei = p.FeeCapWei
	}
	return p
}

// tooExpensiveReason is why no block would accept the fees now, or "". On a chain without EIP-1559
// no rule defines what a block accepts, so the node's advice is the limit.
func tooExpensiveReason(call Call, p GasParams, a Account) string {
	least, what := a.BaseFeeWei, "base fee"
	if a.GasPriceWei != nil {
		least, what = a.GasPriceWei, "node's gas price"
	}
	switch {
	case p.FeeCapWei.Cmp(least) >= 0:
		return ""
	case call.FeeCapWei != nil && call.FeeCapWei.Cmp(least) < 0:
		return "fee: maxFeePerGas is below the " + what
	}
	return "fee: the " + what + " is above fees.maxFeePerGas"
}

// tooExpensiveReason is why no block would accept the fees now, with the setting or policy that
// limits them, or "".
func (r Limits) tooExpensiveReason(b Bounds, call Call, p GasParams, a Account) string {
	if p.FeeCapWei.Sign() == 0 {
		return "fee: its gas costs more than maxFeePerTx allows at any price"
	}
	reason := tooExpensiveReason(call, p, a)
	if reason == "" {
		return ""
	}
	least := a.BaseFeeWei
	if a.GasPriceWei != nil {
		least = a.GasPriceWei
	}
	if exceeds(least, r.FeeCapWei) || exceeds(least, call.FeeCapWei) {
		return reason
	}
	if b.maxFeeOfTx() != nil && !exceeds(b.maxFeeOfTx(), r.TxFeeCapWei) {
		return "fee: at what blocks take now its gas costs more than the submitter's policy allows"
	}
	return "fee: at what blocks take now its gas costs more than fees.maxFeePerTx"
}

// paysMarketPrice reports whether a block accepts g's fees now, and g tips at least the market's
// tip.
func paysMarketPrice(g GasParams, a Account) bool {
	if a.GasPriceWei != nil {
		return g.FeeCapWei.Cmp(a.GasPriceWei) >= 0
	}
	room := new(big.Int).Sub(g.FeeCapWei, a.BaseFeeWei)
	return room.Cmp(a.TipWei) >= 0 && g.TipCapWei.Cmp(a.TipWei) >= 0
}
