package evm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strconv"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// oracleCall is the reference for [encodeCall]: go-ethereum's packer, for a signature whose types are
// given beside its text. It makes Go types at run time, which are never freed; so it is used in tests
// only.
func oracleCall(signature string, inputs []abi.ArgumentMarshaling, args json.RawMessage) ([]byte, error) {
	arguments := make(abi.Arguments, len(inputs))
	types := make([]*abi.Type, len(inputs))
	for i, in := range inputs {
		t, err := abi.NewType(in.Type, "", in.Components)
		if err != nil {
			return nil, fmt.Errorf("oracle: %w", err)
		}
		arguments[i].Type, types[i] = t, &t
	}
	values, err := oracleValues(types, args, "payload.args")
	if err != nil {
		return nil, err
	}
	packed, err := arguments.Pack(values...)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	data := append(crypto.Keccak256([]byte(signature))[:4], packed...)
	if len(data) > maxData {
		return nil, invalid("payload.args", "make %d bytes of data: want at most %d", len(data), maxData)
	}
	return data, nil
}

func oracleArray(raw json.RawMessage, field string, want int) (items []json.RawMessage, err error) {
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, invalid(field, "want a JSON array")
	}
	if want >= 0 && len(items) != want {
		return nil, invalid(field, "%d elements: want %d", len(items), want)
	}
	return items, nil
}

func oracleValues(types []*abi.Type, raw json.RawMessage, field string) ([]any, error) {
	items, err := oracleArray(raw, field, len(types))
	if err != nil {
		return nil, err
	}
	values := make([]any, len(types))
	for i, t := range types {
		if values[i], err = oracleValue(t, items[i], field+"["+strconv.Itoa(i)+"]"); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// oracleValue returns the Go value that package abi packs as the type.
func oracleValue(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	switch t.T {
	case abi.AddressTy:
		address, err := readAddress(raw, field)
		if err != nil {
			return nil, err
		}
		return common.HexToAddress(string(*address)), nil
	case abi.BoolTy:
		if text := string(raw); text == "true" || text == "false" {
			return text == "true", nil
		}
		return nil, invalid(field, "want true or false")
	case abi.StringTy:
		return readString(raw, field)
	case abi.BytesTy:
		return readHex(raw, field, maxData)
	case abi.FixedBytesTy:
		return oracleFixedBytes(t, raw, field)
	case abi.UintTy, abi.IntTy:
		return oracleInteger(t, raw, field)
	case abi.TupleTy:
		values, err := oracleValues(t.TupleElems, raw, field)
		if err != nil {
			return nil, err
		}
		tuple := reflect.New(t.TupleType).Elem()
		for i, v := range values {
			tuple.Field(i).Set(reflect.ValueOf(v))
		}
		return tuple.Interface(), nil
	case abi.ArrayTy, abi.SliceTy:
		return oracleList(t, raw, field)
	}
	return nil, errors.New("oracle: no values of type " + t.String())
}

func oracleList(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	want := -1
	if t.T == abi.ArrayTy {
		want = t.Size
	}
	items, err := oracleArray(raw, field, want)
	if err != nil {
		return nil, err
	}
	list := reflect.New(t.GetType()).Elem()
	if t.T == abi.SliceTy {
		list = reflect.MakeSlice(t.GetType(), len(items), len(items))
	}
	for i, item := range items {
		v, err := oracleValue(t.Elem, item, field+"["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		list.Index(i).Set(reflect.ValueOf(v))
	}
	return list.Interface(), nil
}

func oracleFixedBytes(t *abi.Type, raw json.RawMessage, field string) (any, error) {
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

// oracleInteger also checks the range, which package abi does not.
func oracleInteger(t *abi.Type, raw json.RawMessage, field string) (any, error) {
	n, err := readInteger(raw, field)
	if err != nil {
		return nil, err
	}
	least, limit := "0", 0
	if limit = t.Size; t.T == abi.IntTy {
		limit--
		least = new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), uint(limit))).String()
	}
	low, _ := new(big.Int).SetString(least, 10)
	if n.Cmp(low) < 0 || n.Sign() > 0 && n.BitLen() > limit {
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
