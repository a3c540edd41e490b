package evm

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strconv"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// compileCall replaces function and args in fields by the data they stand for.
func compileCall(fields map[string]json.RawMessage) error {
	signature, called := fields["function"]
	args, given := fields["args"]
	if !called && !given {
		return nil
	}
	if !called {
		return invalid("payload.args", "args without function: want both, or neither")
	}
	if _, both := fields["data"]; both {
		return invalid("payload.data", "data beside function: want one of them")
	}
	if _, deploy := fields["to"]; !deploy {
		return invalid("payload.to", "function without to: want the contract to call")
	}
	text, err := readString(signature, "payload.function")
	if err != nil {
		return err
	}
	if !given {
		args = json.RawMessage("[]")
	}
	data, err := encodeCall(text, args)
	if err != nil {
		return err
	}
	delete(fields, "function")
	delete(fields, "args")
	fields["data"] = json.RawMessage(`"0x` + hex.EncodeToString(data) + `"`)
	return nil
}

// encodeCall is the selector of the signature and the arguments, by the rules of
// https://docs.soliditylang.org/en/latest/abi-spec.html.
func encodeCall(signature string, args json.RawMessage) ([]byte, error) {
	types, err := parseSignature(signature)
	if err != nil {
		return nil, err
	}
	values, err := goValues(types, args, "payload.args")
	if err != nil {
		return nil, err
	}
	arguments := make(abi.Arguments, len(types))
	for i, t := range types {
		arguments[i].Type = t
	}
	packed, err := arguments.Pack(values...)
	if err != nil {
		return nil, invalid("payload.args", "do not fit %s: %v", signature, err)
	}
	data := append(crypto.Keccak256([]byte(signature))[:4], packed...)
	if len(data) > maxData {
		return nil, invalid("payload.args", "make %d bytes of data: want at most %d", len(data), maxData)
	}
	return data, nil
}

// goValues turns a JSON array into the Go values that package abi packs as the
// given types.
func goValues(types []abi.Type, raw json.RawMessage, field string) ([]any, error) {
	items, err := readArray(raw, field)
	if err != nil {
		return nil, err
	}
	if len(items) != len(types) {
		return nil, invalid(field, "%d elements: want %d", len(items), len(types))
	}
	values := make([]any, len(types))
	for i := range types {
		if values[i], err = goValue(&types[i], items[i], element(field, i)); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func readArray(raw json.RawMessage, field string) (items []json.RawMessage, err error) {
	if !bytes.HasPrefix(raw, []byte("[")) || json.Unmarshal(raw, &items) != nil {
		return nil, invalid(field, "want a JSON array")
	}
	return items, nil
}

func goValue(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	switch t.T {
	case abi.AddressTy:
		address, err := readAddress(raw, field)
		if err != nil {
			return nil, err
		}
		return common.Address(*address), nil
	case abi.BoolTy:
		switch string(raw) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, invalid(field, "want true or false")
	case abi.StringTy:
		return readString(raw, field)
	case abi.BytesTy:
		return readHex(raw, field, maxData)
	case abi.FixedBytesTy:
		return goFixedBytes(t, raw, field)
	case abi.UintTy, abi.IntTy:
		return goInteger(t, raw, field)
	case abi.TupleTy:
		return goTuple(t, raw, field)
	default:
		return goList(t, raw, field)
	}
}

func goFixedBytes(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	decoded, err := readHex(raw, field, t.Size)
	if err != nil {
		return nil, err
	}
	if len(decoded) != t.Size {
		return nil, invalid(field, "%d bytes: want %d, as 0x and %d hex digits", len(decoded), t.Size, 2*t.Size)
	}
	array := reflect.New(t.GetType()).Elem()
	reflect.Copy(array, reflect.ValueOf(decoded))
	return array.Interface(), nil
}

// goInteger checks the range of the type: package abi does not.
func goInteger(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	n, err := readInteger(raw, field)
	if err != nil {
		return nil, err
	}
	bits := t.Size
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(bits))
	if t.T == abi.IntTy {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	if n.Cmp(low) < 0 || n.Cmp(high) >= 0 {
		return nil, invalid(field, "%s is out of range: want %s", n, t)
	}
	goType := t.GetType()
	if goType == reflect.TypeFor[*big.Int]() {
		return n, nil
	}
	value := reflect.New(goType).Elem()
	if t.T == abi.IntTy {
		value.SetInt(n.Int64())
	} else {
		value.SetUint(n.Uint64())
	}
	return value.Interface(), nil
}

func goTuple(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	types := make([]abi.Type, len(t.TupleElems))
	for i, e := range t.TupleElems {
		types[i] = *e
	}
	values, err := goValues(types, raw, field)
	if err != nil {
		return nil, err
	}
	tuple := reflect.New(t.TupleType).Elem()
	for i, v := range values {
		tuple.Field(i).Set(reflect.ValueOf(v))
	}
	return tuple.Interface(), nil
}

func goList(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	items, err := readArray(raw, field)
	if err != nil {
		return nil, err
	}
	list := reflect.New(t.GetType()).Elem()
	switch t.T {
	case abi.ArrayTy:
		if len(items) != t.Size {
			return nil, invalid(field, "%d elements: want %d", len(items), t.Size)
		}
	case abi.SliceTy:
		list = reflect.MakeSlice(t.GetType(), len(items), len(items))
	default:
		return nil, fmt.Errorf("%s: no values of type %s", field, t)
	}
	for i, item := range items {
		v, err := goValue(t.Elem, item, element(field, i))
		if err != nil {
			return nil, err
		}
		list.Index(i).Set(reflect.ValueOf(v))
	}
	return list.Interface(), nil
}
