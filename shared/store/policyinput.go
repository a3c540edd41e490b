package store

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// policyInput has the values that a policy checks. A value that is not known yet is nil. fee
// is the most that its gas may cost, or the least if the intent sets no maximum.
type policyInput struct {
	value, gas, tip, fee *string
	targets              []string
	amount               *string // see [txmanager.Call.TokenAmount]
}

// leastFee is what the cheapest transaction costs: 21,000 gas at one wei.
const leastFee = "21000"

// policyInputOf reads the values of an intent. A handler's intent has only the least fee.
func policyInputOf(in Intent) (policyInput, error) {
	if in.Handler != "" {
		return policyInput{fee: new(leastFee)}, nil
	}
	payload := struct{ To, Data, Value, Gas, MaxFeePerGas, MaxPriorityFeePerGas *string }{Value: new("0")}
	if err := json.Unmarshal(in.Payload, &payload); err != nil {
		return policyInput{}, fmt.Errorf("payload of %s: %w", in.RequestID, err)
	}
	call, err := payloadCall(payload.To, payload.Data)
	if err != nil {
		return policyInput{}, fmt.Errorf("payload of %s: %w", in.RequestID, err)
	}
	a := policyInput{value: payload.Value, targets: targetsOf(call), amount: amountOf(call), gas: payload.Gas, tip: payload.MaxPriorityFeePerGas, fee: new(leastFee)}
	if payload.Gas == nil {
		return a, nil
	}
	gas, price := new(big.Int), big.NewInt(1)
	gas.SetString(*payload.Gas, 10)
	if payload.MaxFeePerGas != nil {
		price.SetString(*payload.MaxFeePerGas, 10)
	}
	a.fee = new(gas.Mul(gas, price).String())
	return a, nil
}

// payloadCall reads the recipient and the call of a payload in canonical form.
func payloadCall(to, data *string) (c txmanager.Call, err error) {
	if to == nil {
		return c, nil
	}
	address := txmanager.Address(*to)
	if data == nil {
		return txmanager.Call{To: &address}, nil
	}
	text, isHex := strings.CutPrefix(*data, "0x")
	if !isHex {
		return c, errors.New("the data is no hex")
	}
	raw, err := hex.DecodeString(text)
	return txmanager.Call{To: &address, Data: raw}, err
}

// amountOf is the token amount that a policy counts for c; nil if c moves and approves none.
func amountOf(c txmanager.Call) *string {
	if amount := c.TokenAmount(); amount != nil {
		return new(amount.String())
	}
	return nil
}
