package txmanager

import "math/big"

// completeFees completes what the payload left open: the node's advice for the tip, and
// a cap that outlasts six blocks in a row that are full (each raises the base
// fee by at most 1/8, EIP-1559).
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
	if p.TipCapWei.Sign() == 0 { // nodes hold no transaction that pays nothing
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

// withGasPrice is p on a chain without EIP-1559: the node's advice, and no more than the
// caller's maxFeePerGas.
func (p GasParams) withGasPrice(adviceWei *big.Int) GasParams {
	if p.FeeCapWei == nil || p.FeeCapWei.Cmp(adviceWei) > 0 {
		p.FeeCapWei = adviceWei
	}
	p.Legacy, p.TipCapWei = true, p.FeeCapWei
	return p
}

// firstVersionFees is what a first version of call offers: below the deployment's ceiling, and,
// where it may be outbid later, no more than blocks are likely to take, however much
// more its caller allows.
func (r Rules) firstVersionFees(call Call, gas uint64, a Account) GasParams {
	p := completeFees(call, gas, a)
	if r.Bump != nil && !p.Legacy {
		enough := new(big.Int).Add(new(big.Int).Lsh(a.BaseFeeWei, 1), p.TipCapWei)
		p.FeeCapWei = lesser(p.FeeCapWei, enough)
	}
	return r.clampToCeiling(p)
}

// clampToCeiling lowers both fees to the deployment's ceiling. They are only the most
// that is paid: below the base fee the transaction waits.
func (r Rules) clampToCeiling(p GasParams) GasParams {
	if r.FeeCapWei != nil && p.FeeCapWei.Cmp(r.FeeCapWei) > 0 {
		p.FeeCapWei = r.FeeCapWei
	}
	if p.TipCapWei.Cmp(p.FeeCapWei) > 0 {
		p.TipCapWei = p.FeeCapWei
	}
	return p
}

// tooExpensiveReason says why no block would take the fees now, or "". On a chain without EIP-1559
// no rule says what a block takes: there it is what the node advises.
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

// tooExpensiveReason says why no block would take the fees now, whoever bounds them, or "".
func (r Rules) tooExpensiveReason(b Bounds, call Call, p GasParams, a Account) string {
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

// paysMarketPrice says that a block takes g's fees now, and is paid what it is paid by others.
func paysMarketPrice(g GasParams, a Account) bool {
	if a.GasPriceWei != nil {
		return g.FeeCapWei.Cmp(a.GasPriceWei) >= 0
	}
	room := new(big.Int).Sub(g.FeeCapWei, a.BaseFeeWei)
	return room.Cmp(a.TipWei) >= 0 && g.TipCapWei.Cmp(a.TipWei) >= 0
}
