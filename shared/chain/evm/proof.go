package evm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// transferCall and transferEvent are those of ERC-20, which requires the event for each transfer.
//
// Source: https://eips.ethereum.org/EIPS/eip-20
const transferCall = "transfer(address,uint256)"

var transferEvent = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

// PaymentPayload returns the payload, in the form of [Family.ParsePayload], that pays amount to an address: in
// the chain's own coin if token is nil, else by that contract's transfer. The payment is refused if it
// needs more than maxGas.
func (Family) PaymentPayload(token *txmanager.Address, to txmanager.Address, amount *big.Int, maxGas uint64) ([]byte, error) {
	fields := map[string]any{"to": to, "value": amount.String()}
	if token != nil {
		fields = map[string]any{"to": token, "function": transferCall, "args": []string{to.String(), amount.String()}}
	}
	fields["maxGas"] = strconv.FormatUint(maxGas, 10)
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write payload: %w", err)
	}
	canonical, _, err := Family{}.ParsePayload(raw)
	return canonical, err
}

// ParseAddress reads 0x and 40 hex digits. An address in mixed case must have the checksum of EIP-55.
// The error is a [*chain.FieldError].
func (Family) ParseAddress(text string) (txmanager.Address, error) {
	return parseAddress(text, "address")
}

// ReadCost returns the fees of a node's receipt, in wei: its gas, and on a rollup the fee of the chain below.
func (Family) ReadCost(receipt []byte) (*big.Int, error) {
	var r struct {
		GasUsed *hexutil.Big `json:"gasUsed"`
		Price   *hexutil.Big `json:"effectiveGasPrice"`
		Below   *hexutil.Big `json:"l1Fee"`
	}
	if err := json.Unmarshal(receipt, &r); err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	if r.GasUsed == nil || r.Price == nil {
		return nil, errors.New("receipt: no gasUsed or no effectiveGasPrice")
	}
	cost := new(big.Int).Mul(r.GasUsed.ToInt(), r.Price.ToInt())
	if r.Below != nil {
		cost.Add(cost, r.Below.ToInt())
	}
	return cost, nil
}

// ReadProof reads a node's receipt. It ignores events that are not exactly ERC-20's Transfer. The error
// names the missing part.
func (Family) ReadProof(receipt []byte) (chain.PaymentProof, error) {
	var r struct {
		From   *common.Address
		To     *common.Address
		Status *hexutil.Uint64
		Logs   []eventLog
	}
	if err := json.Unmarshal(receipt, &r); err != nil {
		return chain.PaymentProof{}, fmt.Errorf("read receipt: %w", err)
	}
	if r.From == nil || r.Status == nil {
		return chain.PaymentProof{}, errors.New("read receipt: it has no sender or no status")
	}
	p := chain.PaymentProof{From: eip155.Address(*r.From), Succeeded: *r.Status == 1}
	if r.To != nil {
		p.To = eip155.Address(*r.To)
	}
	for _, l := range r.Logs {
		if t, ok := l.transfer(); ok {
			p.Transfers = append(p.Transfers, t)
		}
	}
	return p, nil
}

// isAddress reports whether a topic is an address.
func isAddress(topic common.Hash) bool { return [12]byte(topic[:12]) == [12]byte{} }
