package txmanager

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
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
	case ExceedsLimit(a.ValueWei, b.ValueWei):
		return fmt.Sprintf("the submitter's policy allows at most %s wei in one transaction", b.ValueWei)
	case a.Target != "" && b.Targets != nil && !slices.Contains(b.Targets, a.Target) && !slices.Contains(b.Targets, a.Function):
		return "the submitter's policy does not allow this target, or this function of it"
	case b.refuseToken(a) != "":
		return b.refuseToken(a)
	case b.Gas > 0 && a.Gas > b.Gas:
		return fmt.Sprintf("the submitter's policy allows at most %d gas in one transaction", b.Gas)
	case ExceedsLimit(a.TipWei, b.TipWei):
		return fmt.Sprintf("the submitter's policy allows a tip of at most %s wei per gas", b.TipWei)
	case ExceedsLimit(a.FeeWei, b.MaxFeeOfTx()):
		return fmt.Sprintf("the submitter's policy allows a fee of at most %s wei in one transaction", b.MaxFeeOfTx())
	}
	return ""
}

// MaxFeeOfTx is the highest fee of one transaction, which is never above a day's.
func (b Bounds) MaxFeeOfTx() *big.Int { return LowerLimit(b.FeeWei, b.FeesPerDayWei) }

// FeesUsedUpReason is why a further fee exceeds the limit of 24 hours, or "".
func (b Bounds) FeesUsedUpReason(feeWei *big.Int) string {
	if !ExceedsLimit(b.WithFee(feeWei).FeesUsedWei, b.FeesPerDayWei) {
		return ""
	}
	return fmt.Sprintf("fee: the submitter's policy allows fees of at most %s wei in 24 hours, and they are used up", b.FeesPerDayWei)
}

// WithFee is b with a further fee used.
func (b Bounds) WithFee(feeWei *big.Int) Bounds {
	b.FeesUsedWei = new(big.Int).Add(cmp.Or(b.FeesUsedWei, new(big.Int)), feeWei)
	return b
}

// ExceedsLimit reports whether a is known and above the limit. nil is no limit.
func ExceedsLimit(a, limit *big.Int) bool { return a != nil && limit != nil && a.Cmp(limit) > 0 }

// FeeWei is the highest gas cost of g.
func (g GasParams) FeeWei() *big.Int {
	return new(big.Int).Mul(g.FeeCapWei, new(big.Int).SetUint64(g.Gas))
}

// Target is the policy's name for the receiver of c.
func (c Call) Target() string {
	if c.To == nil {
		return "deploy"
	}
	return c.To.String()
}

// SelectorSize is the number of bytes of the function selector in a contract call's data.
const SelectorSize = 4

// Function is the policy's name for the function that c calls: the receiver, a colon and the
// selector in hex. It is "" for a deployment, and where the data is too short.
func (c Call) Function() string {
	if c.To == nil || len(c.Data) < SelectorSize {
		return ""
	}
	return fmt.Sprintf("%s:0x%x", c.To, c.Data[:SelectorSize])
}

// LowerLimit is the lower of two limits; nil is no limit.
func LowerLimit(a, b *big.Int) *big.Int {
	if a == nil || b != nil && b.Cmp(a) < 0 {
		return b
	}
	return a
}

// tokenAddresses has the ERC-20 functions whose amount a policy bounds, by selector in hex, with the number
// of addresses before the amount. Source: https://eips.ethereum.org/EIPS/eip-20
var tokenAddresses = map[string]int{
	"0xa9059cbb": 1, // transfer(address,uint256)
	"0x095ea7b3": 1, // approve(address,uint256)
	"0x23b872dd": 2, // transferFrom(address,address,uint256)
}

// The size of an argument in bytes, and how many of an address's are zero.
const (
	wordSize     = 32
	addressZeros = 12
)

// TokenAmount is the amount that c transfers or approves as a call of an ERC-20 contract: of its
// transfer, approve or transferFrom. It is nil for any other call, and where the arguments are not
// ABI-encoded: 32 bytes each, an address with 12 zero bytes before it.
func (c Call) TokenAmount() *big.Int {
	_, selector, _ := strings.Cut(c.Function(), ":")
	addresses, known := tokenAddresses[selector]
	if !known || len(c.Data) != SelectorSize+(addresses+1)*wordSize {
		return nil
	}
	arguments := c.Data[SelectorSize:]
	for range addresses {
		if !bytes.Equal(arguments[:addressZeros], make([]byte, addressZeros)) {
			return nil
		}
		arguments = arguments[wordSize:]
	}
	return new(big.Int).SetBytes(arguments)
}

// BoundedFunction reports whether a policy bounds the amount of this function of a token contract.
// function is written as [Call.Function] writes it.
func BoundedFunction(function string) bool {
	_, selector, _ := strings.Cut(function, ":")
	_, known := tokenAddresses[selector]
	return known
}

// refuseToken is why a policy refuses a call of a token, or "". It also allows functions that
// targets lists, with any amount, unless their amount is bounded.
func (b Bounds) refuseToken(a BoundedTerms) string {
	limit, named := b.Tokens[a.Target]
	switch {
	case !named:
		return ""
	case a.AmountUnits == nil && !(a.Function != "" && !BoundedFunction(a.Function) && slices.Contains(b.Targets, a.Function)):
		return "the submitter's policy bounds amounts of this token, and allows of it transfer, approve and transferFrom as the ABI encodes them, and functions that targets names"
	case ExceedsLimit(a.AmountUnits, limit):
		return "the submitter's policy allows at most " + limit.String() + " of this token's smallest unit in one transaction"
	}
	return ""
}
