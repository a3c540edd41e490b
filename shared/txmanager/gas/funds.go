package gas

import (
	"cmp"
	"fmt"
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// PlaceholderGas is the gas reserved for a placeholder for each allocated nonce.
const PlaceholderGas = 21_000

// placeholderCostWei is what replacing a version that pays feeCapWei may cost.
func placeholderCostWei(feeCapWei *big.Int) *big.Int {
	cost := new(big.Int).Mul(feeCapWei, big.NewInt(PlaceholderGas*ReplaceFactor))
	return cost.Div(cost, big.NewInt(1000))
}

// TxGasCap is the gas limit of one transaction (EIP-7825).
const TxGasCap = 1 << 24

// LimitOf is the gas limit of call: its own, or the estimate plus one fifth, since state changes
// between the estimate and the block. A plain transfer needs exactly 21,000. maxPolicyGas is the
// limit of the submitter's policy; 0: no limit.
func LimitOf(call txmanager.Call, e txmanager.Estimate, maxPolicyGas uint64) (gas uint64, verdict txmanager.Outcome, reason string) {
	if call.Gas > 0 {
		return call.Gas, txmanager.Done, ""
	}
	limit := cmp.Or(call.MaxGas, TxGasCap)
	if maxPolicyGas > 0 && maxPolicyGas < limit {
		limit = maxPolicyGas
	}
	switch {
	case e.Outcome == txmanager.Done && limit == maxPolicyGas && e.Gas > limit:
		return 0, txmanager.Refused, fmt.Sprintf("the call needs %d gas, above the %d that the submitter's policy allows", e.Gas, limit)
	case e.Outcome == txmanager.Done && call.MaxGas > 0 && e.Gas > limit:
		return 0, txmanager.Refused, fmt.Sprintf("the call needs %d gas, above its maxGas %d", e.Gas, limit)
	case e.Outcome == txmanager.Done && e.Gas > 21_000 && e.Gas <= limit:
		return min(e.Gas+e.Gas/5, limit), txmanager.Done, ""
	case e.Outcome == txmanager.Refused:
		return 0, txmanager.Refused, txmanager.WithDetail("the call would revert", e.Reason)
	}
	return e.Gas, e.Outcome, txmanager.WithDetail("the node gave none", e.Reason)
}

// Balance is the account's balance minus the worst cost of each open nonce and of a
// placeholder for it.
type Balance struct{ leftWei *big.Int }

func BalanceOf(v txmanager.ChainObservation, unsettled []txmanager.Tx) Balance {
	p := Balance{new(big.Int).Set(v.Account.BalanceWei)}
	for _, t := range unsettled {
		paid := t.Receipt != nil && t.Receipt.BlockNumber <= v.OldestBlock() // the balance is of that block or later
		if t.Gas != nil && !paid {
			p.leftWei.Sub(p.leftWei, CostWithPlaceholder(*t.Gas))
		}
	}
	return p
}

// Reserve subtracts what g and a placeholder may cost. If the balance is too low, it subtracts
// nothing and returns the missing wei.
func (p *Balance) Reserve(g txmanager.GasParams) (shortWei *big.Int) {
	left := new(big.Int).Sub(p.leftWei, CostWithPlaceholder(g))
	if left.Sign() < 0 {
		return left.Neg(left)
	}
	p.leftWei = left
	return nil
}

func CostWithPlaceholder(g txmanager.GasParams) *big.Int {
	return new(big.Int).Add(g.WorstCostWei(), placeholderCostWei(g.FeeCapWei))
}
