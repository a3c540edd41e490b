package gas

import (
	"cmp"
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// CompleteFees fills in the fees that the payload leaves open: the node's advice for the tip, and
// a cap of twice the base fee plus the tip. That cap outlasts about six full blocks in a row (each
// raises the base fee by at most 1/8, EIP-1559).
func CompleteFees(call txmanager.Call, gas uint64, a txmanager.Account) txmanager.GasParams {
	p := txmanager.GasParams{Gas: gas, FeeCapWei: call.FeeCapWei, TipCapWei: cmp.Or(call.TipCapWei, a.TipWei), ValueWei: cmp.Or(call.Value, new(big.Int))}
	if a.GasPriceWei != nil { // the chain has no EIP-1559
		p.FeeCapWei = txmanager.LowerLimit(p.FeeCapWei, a.GasPriceWei)
		p.Legacy, p.TipCapWei = true, p.FeeCapWei
		return p
	}
	if p.TipCapWei.Sign() == 0 { // nodes hold no transaction without a tip
		p.TipCapWei = big.NewInt(1)
	}
	if p.FeeCapWei == nil {
		p.FeeCapWei = new(big.Int).Add(new(big.Int).Lsh(a.BaseFeeWei, 1), p.TipCapWei)
	}
	p.TipCapWei = txmanager.LowerLimit(p.TipCapWei, p.FeeCapWei)
	return p
}

// FirstVersionFees are the fees of a first version of call, at most fees.maxFeePerGas. Where gas
// bumps are on, the cap is also at most what blocks are likely to require, even if its caller
// allows more.
func (r Limits) FirstVersionFees(call txmanager.Call, gas uint64, a txmanager.Account) txmanager.GasParams {
	p := CompleteFees(call, gas, a)
	if r.Bump != nil && !p.Legacy {
		enough := new(big.Int).Add(new(big.Int).Lsh(a.BaseFeeWei, 1), p.TipCapWei)
		p.FeeCapWei = txmanager.LowerLimit(p.FeeCapWei, enough)
	}
	return r.ClampToCeiling(p)
}

// ClampToCeiling lowers both fees to fees.maxFeePerGas. Both are upper limits: below the base fee
// the transaction waits.
func (r Limits) ClampToCeiling(p txmanager.GasParams) txmanager.GasParams {
	return FeeCaps{FeeWei: r.MaxFeePerGasWei}.lower(p)
}

// leastFee is the lowest fee that a block accepts now. On a chain without EIP-1559 no rule defines
// it, so it is the node's advice.
func leastFee(a txmanager.Account) (wei *big.Int, name string) {
	if a.GasPriceWei != nil {
		return a.GasPriceWei, "node's gas price"
	}
	return a.BaseFeeWei, "base fee"
}

// TooExpensiveReason is why no block would accept the fees now, or "".
func TooExpensiveReason(call txmanager.Call, p txmanager.GasParams, a txmanager.Account) string {
	least, what := leastFee(a)
	switch {
	case p.FeeCapWei.Cmp(least) >= 0:
		return ""
	case call.FeeCapWei != nil && call.FeeCapWei.Cmp(least) < 0:
		return "fee: maxFeePerGas is below the " + what
	}
	return "fee: the " + what + " is above fees.maxFeePerGas"
}

// TooExpensiveReason is why no block would accept the fees now, with the setting or policy that
// limits them, or "".
func (r Limits) TooExpensiveReason(b txmanager.Bounds, call txmanager.Call, p txmanager.GasParams, a txmanager.Account) string {
	if p.FeeCapWei.Sign() == 0 {
		return "fee: its gas costs more than maxFeePerTx allows at any price"
	}
	reason := TooExpensiveReason(call, p, a)
	if reason == "" {
		return ""
	}
	least, _ := leastFee(a)
	if txmanager.ExceedsLimit(least, r.MaxFeePerGasWei) || txmanager.ExceedsLimit(least, call.FeeCapWei) {
		return reason
	}
	if b.MaxFeeOfTx() != nil && !txmanager.ExceedsLimit(b.MaxFeeOfTx(), r.TxFeeCapWei) {
		return "fee: at the current fees its gas costs more than the submitter's policy allows"
	}
	return "fee: at the current fees its gas costs more than fees.maxFeePerTx"
}

// PaysMarketPrice reports whether a block accepts g's fees now, and g tips at least the market's
// tip.
func PaysMarketPrice(g txmanager.GasParams, a txmanager.Account) bool {
	if a.GasPriceWei != nil {
		return g.FeeCapWei.Cmp(a.GasPriceWei) >= 0
	}
	room := new(big.Int).Sub(g.FeeCapWei, a.BaseFeeWei)
	return room.Cmp(a.TipWei) >= 0 && g.TipCapWei.Cmp(a.TipWei) >= 0
}

// OwnBound is the limit of call itself that blocks it, even with no open transaction.
// gas is 0 where it is not known. Other intents may then pass it, since they need not have such a
// limit. A balance in use by open transactions does not count as an own limit: smaller intents
// would pass the intent forever.
func (r Limits) OwnBound(b txmanager.Bounds, call txmanager.Call, gas uint64, a txmanager.Account) txmanager.Wait {
	least, _ := leastFee(a)
	if call.FeeCapWei != nil && call.FeeCapWei.Cmp(least) < 0 {
		return txmanager.WaitFor(txmanager.WaitOwnBounds, TooExpensiveReason(call, txmanager.GasParams{FeeCapWei: call.FeeCapWei}, a))
	}
	params := r.ClampFees(b, r.FirstVersionFees(call, max(gas, PlaceholderGas), a), a)
	if dear := r.TooExpensiveReason(b, call, params, a); dear != "" && gas > 0 && !txmanager.ExceedsLimit(least, r.MaxFeePerGasWei) {
		return txmanager.Wait{Cause: txmanager.WaitFeeCeiling, Reason: dear} // the gas that it needs exceeds the cost limit of one transaction
	}
	if params.FeeCapWei.Sign() > 0 && CostWithPlaceholder(params).Cmp(a.BalanceWei) > 0 {
		return ownBalance
	}
	return txmanager.Wait{}
}

// ownBalance is why an intent waits that the account could not pay even with no open transaction.
var ownBalance = txmanager.Wait{Cause: txmanager.WaitBalance, Reason: "balance: the account cannot pay for it and a placeholder, even with no open transaction"}
