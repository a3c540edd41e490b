package evm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Limits of a payload. Nodes accept transactions of up to 128 KiB; 1 KiB of it is left for everything
// but the data.
const (
	maxData    = 127 << 10 // bytes
	maxPayload = 1 << 20   // bytes of JSON as the caller wrote it
	minGas     = 21_000    // the least gas of a transaction
	maxGas     = 1 << 24   // the maximum gas of one transaction (EIP-7825)

	maxInitcode = 49_152 // bytes of the code that deploys a contract (EIP-3860)
)

// payload is an intent in canonical form, as stored: fields in this order, addresses and data in lower
// case, amounts as decimal strings, a function call as its data. Omitted fields stay omitted.
type payload struct {
	To       *string `json:"to,omitempty"`
	Value    *string `json:"value,omitempty"`
	Data     *string `json:"data,omitempty"`
	Gas      *string `json:"gas,omitempty"`
	MaxGas   *string `json:"maxGas,omitempty"`
	FeeCap   *string `json:"maxFeePerGas,omitempty"`
	Priority *string `json:"maxPriorityFeePerGas,omitempty"`
}

// ParsePayload reads a caller's payload:
//
//	{to?, value?, data? | function + args, gas? | maxGas?, maxFeePerGas?, maxPriorityFeePerGas?}
//
// Amounts are decimal strings in wei, gas a decimal string or a JSON integer. Without gas it is
// estimated; a call that needs more than maxGas is refused then. Without "to", "data" is deployed as a
// contract. An address in mixed case must have the checksum of EIP-55. "function" is a signature such
// as "transfer(address,uint256)". "args" are its arguments. Integers are written as gas is, bytes as 0x
// and hex digits, arrays and tuples as JSON arrays.
//
// canonical is the form to store. fingerprint, its SHA-256, is equal for payloads with exactly the
// same meaning. A function call equals its data, a value of 0 differs from no value. The error is a
// [*chain.FieldError].
func (Family) ParsePayload(raw json.RawMessage) (canonical []byte, fingerprint [32]byte, err error) {
	fields, err := readObject(raw, "to", "value", "data", "function", "args", "gas", "maxGas", "maxFeePerGas", "maxPriorityFeePerGas")
	if err != nil {
		return nil, fingerprint, err
	}
	if err := compileCall(fields); err != nil {
		return nil, fingerprint, err
	}
	p, call, err := readPayload(fields)
	if err != nil {
		return nil, fingerprint, err
	}
	if err := checkCall(call); err != nil {
		return nil, fingerprint, err
	}
	if canonical, err = json.Marshal(p); err != nil {
		return nil, fingerprint, fmt.Errorf("write payload: %w", err)
	}
	return canonical, sha256.Sum256(canonical), nil
}

// ParsePayload implements [txmanager.ChainConnector]: see [Family.StoredCall].
func (c *Connector) ParsePayload(stored []byte) (txmanager.Call, error) {
	return Family{}.StoredCall(stored)
}

// StoredCall reads the canonical form of [Family.ParsePayload], in any order and spacing of a JSON column, and
// nothing else.
func (Family) StoredCall(stored []byte) (txmanager.Call, error) {
	fields, err := readObject(stored, "to", "value", "data", "gas", "maxGas", "maxFeePerGas", "maxPriorityFeePerGas")
	if err != nil {
		return txmanager.Call{}, err
	}
	p, call, err := readPayload(fields)
	if err != nil {
		return txmanager.Call{}, err
	}
	for name, canonical := range p.all() {
		if raw, given := fields[name]; given && string(raw) != strconv.Quote(*canonical) {
			return txmanager.Call{}, invalid("payload."+name, "want the canonical form %q", *canonical)
		}
	}
	return call, checkCall(call)
}

// CheckCall implements [txmanager.ChainConnector].
func (c *Connector) CheckCall(call txmanager.Call) error { return checkCall(call) }

// all returns the given fields by name.
func (p payload) all() map[string]*string {
	return map[string]*string{"to": p.To, "value": p.Value, "data": p.Data, "gas": p.Gas, "maxGas": p.MaxGas,
		"maxFeePerGas": p.FeeCap, "maxPriorityFeePerGas": p.Priority}
}

func readPayload(fields map[string]json.RawMessage) (p payload, call txmanager.Call, err error) {
	readData := func(raw json.RawMessage, field string) ([]byte, error) { return readHex(raw, field, maxData) }
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	err = cmp.Or(
		readMember(fields, "to", readAddress, &call.To, &p.To, (*txmanager.Address).String),
		readMember(fields, "data", readData, &call.Data, &p.Data, hexutil.Encode),
		readMember(fields, "gas", readGas, &call.Gas, &p.Gas, decimal),
		readMember(fields, "maxGas", readGas, &call.MaxGas, &p.MaxGas, decimal),
		readMember(fields, "value", readAmount, &call.Value, &p.Value, (*big.Int).String),
		readMember(fields, "maxFeePerGas", readAmount, &call.FeeCapWei, &p.FeeCap, (*big.Int).String),
		readMember(fields, "maxPriorityFeePerGas", readAmount, &call.TipCapWei, &p.Priority, (*big.Int).String),
	)
	if call.Value == nil {
		call.Value = new(big.Int)
	}
	return p, call, err
}

// readMember reads a field, if it is given. It stores the value in into, and its canonical form in text.
func readMember[T any](fields map[string]json.RawMessage, name string, read func(json.RawMessage, string) (T, error),
	into *T, text **string, canonical func(T) string) error {
	raw, given := fields[name]
	if !given {
		return nil
	}
	value, err := read(raw, "payload."+name)
	if err == nil {
		*into, *text = value, new(canonical(value))
	}
	return err
}

// intrinsicGas returns the gas of a transaction before any execution, below which no node accepts
// it. It is 21,000, and 16 for each byte of data, 4 for a zero byte (EIP-2028). A deployment costs
// 32,000 more, and 2 for each word of its code (EIP-3860). The minimum is 21,000 and 10 for each
// token, of which a byte has 4 and a zero byte 1 (EIP-7623).
func intrinsicGas(call txmanager.Call) uint64 {
	zeros := uint64(bytes.Count(call.Data, []byte{0}))
	others := uint64(len(call.Data)) - zeros
	gas := 21_000 + 16*others + 4*zeros
	if call.To == nil {
		gas += 32_000 + 2*((uint64(len(call.Data))+31)/32)
	}
	return max(gas, 21_000+10*(4*others+zeros))
}

// checkRecipient refuses a recipient that is not in canonical form. Code that makes calls can give any text.
func checkRecipient(to *txmanager.Address) error {
	if to == nil {
		return nil
	}
	if a, err := eip155.ParseAddress(string(*to)); err != nil || a != *to {
		return invalid("payload.to", "%q is not an address in canonical form: want 0x and 40 lower-case hex digits", string(*to))
	}
	return nil
}

// checkCall refuses a call that no chain can execute.
func checkCall(call txmanager.Call) error {
	if call.To == nil && len(call.Data) == 0 {
		return invalid("payload.to", "has neither to nor data: give to (the account to call), or data (the code of a contract to deploy)")
	}
	if err := checkRecipient(call.To); err != nil {
		return err
	}
	if len(call.Data) > maxData {
		return invalid("payload.data", "has %d bytes: want at most %d", len(call.Data), maxData)
	}
	if err := checkGas(call); err != nil {
		return err
	}
	if call.To == nil && len(call.Data) > maxInitcode {
		return invalid("payload.data", "deploys %d bytes: at most %d are allowed (EIP-3860)", len(call.Data), maxInitcode)
	}
	if call.FeeCapWei != nil && call.TipCapWei != nil && call.TipCapWei.Cmp(call.FeeCapWei) > 0 {
		return invalid("payload.maxPriorityFeePerGas", "%s is more than maxFeePerGas %s: want at most that",
			call.TipCapWei, call.FeeCapWei)
	}
	return nil
}

// checkGas refuses a gas limit, or a bound of one, outside of what one transaction may have.
func checkGas(call txmanager.Call) error {
	if call.Gas > 0 && call.MaxGas > 0 {
		return invalid("payload.maxGas", "and gas were both given; send gas (a fixed limit) or maxGas (an upper bound for the estimate)")
	}
	least := intrinsicGas(call)
	for name, gas := range map[string]uint64{"gas": call.Gas, "maxGas": call.MaxGas} {
		if gas > 0 && gas < least {
			return invalid("payload."+name, "%d is less than the %d that every node charges before the call begins: want at least that, or no gas to have it estimated",
				gas, least)
		}
		if gas > maxGas {
			return invalid("payload."+name, "%d is more than the %d that one transaction may have (EIP-7825)", gas, maxGas)
		}
	}
	return nil
}

func readGas(raw json.RawMessage, field string) (uint64, error) {
	n, err := readInteger(raw, field)
	if err != nil {
		return 0, err
	}
	if !n.IsUint64() || n.Uint64() < minGas {
		return 0, invalid(field, "want at least %d and less than 2^64", minGas)
	}
	return n.Uint64(), nil
}

func readAmount(raw json.RawMessage, field string) (*big.Int, error) {
	text, err := readString(raw, field)
	if err != nil {
		return nil, err
	}
	n, ok := parseDecimal(text)
	if !ok || n.Sign() < 0 || n.BitLen() > 256 {
		return nil, invalid(field, "want wei as a decimal string, from 0 to 2^256-1, without sign, leading zeros or spaces")
	}
	return n, nil
}

// maxSafeInteger is the largest number that every JSON writer keeps exact (RFC 8259, section 6).
var maxSafeInteger = big.NewInt(1<<53 - 1)

// readInteger reads a decimal string, or a JSON integer that cannot have been rounded.
func readInteger(raw json.RawMessage, field string) (*big.Int, error) {
	text := string(raw)
	quoted := strings.HasPrefix(text, `"`)
	if quoted {
		var err error
		if text, err = readString(raw, field); err != nil {
			return nil, err
		}
	}
	n, ok := parseDecimal(text)
	if !ok {
		return nil, invalid(field, "want a whole number as a decimal string, without leading zeros, spaces or exponent")
	}
	if !quoted && n.CmpAbs(maxSafeInteger) > 0 {
		return nil, invalid(field, "want a number above 2^53-1 as a decimal string: as a JSON number it may have been rounded")
	}
	return n, nil
}

// maxDigits is enough for 2^256 and its sign.
const maxDigits = 79

// parseDecimal reads a whole number in its canonical decimal form.
func parseDecimal(text string) (*big.Int, bool) {
	if len(text) > maxDigits {
		return nil, false
	}
	n, ok := new(big.Int).SetString(text, 10)
	return n, ok && n.String() == text
}
