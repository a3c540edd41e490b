package txmanager

import (
	"bytes"
	"math/big"
	"slices"
	"strings"
)

// The selectors, in hex, of the ERC-20 functions whose amount a policy bounds. Source:
// https://eips.ethereum.org/EIPS/eip-20
const (
	selectorTransfer     = "0xa9059cbb" // transfer(address,uint256)
	selectorApprove      = "0x095ea7b3" // approve(address,uint256)
	selectorTransferFrom = "0x23b872dd" // transferFrom(address,address,uint256)
)

// tokenAddresses is the number of addresses before the amount.
var tokenAddresses = map[string]int{selectorTransfer: 1, selectorApprove: 1, selectorTransferFrom: 2}

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
