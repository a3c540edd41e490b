package evm

import (
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// compileCall replaces function and args in fields by the data that they encode.
func compileCall(fields map[string]json.RawMessage) error {
	signature, called := fields["function"]
	args, given := fields["args"]
	if !called && !given {
		return nil
	}
	if !called {
		return invalid("payload.args", "args were given without function: send both, or neither")
	}
	if _, both := fields["data"]; both {
		return invalid("payload.data", "data and function were both given: send one of them")
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

// encodeCall returns the selector of the signature and the encoded arguments, by the rules of
// https://docs.soliditylang.org/en/latest/abi-spec.html.
func encodeCall(signature string, args json.RawMessage) ([]byte, error) {
	types, err := parseSignature(signature)
	if err != nil {
		return nil, err
	}
	e := encoder{from: newWalker(args)}
	e.grow(selectorSize)
	e.put(0, crypto.Keccak256([]byte(signature))[:selectorSize])
	call := abiType{kind: kindTuple, parts: types, dynamic: true}
	if err := e.value(&call, selectorSize, "payload.args"); err != nil {
		return nil, err
	}
	if e.size > maxData {
		return nil, invalid("payload.args", "make %d bytes of data: want at most %d", e.size, maxData)
	}
	return e.data, nil
}

// selectorSize is the number of bytes with which the data of a call names its function.
const selectorSize = 4

// encoder reads arguments once and writes their encoding. Its memory and its work grow only with the
// length of the arguments' text.
type encoder struct {
	from walker
	data []byte // at most maxData bytes of it
	size int    // length of the full data, kept or not
}

// grow adds n zero bytes at the end.
func (e *encoder) grow(n int) {
	e.size += n
	if n = min(e.size, maxData) - len(e.data); n > 0 {
		e.data = append(e.data, make([]byte, n)...)
	}
}

// put writes bytes into grown space, unless the data has become too long.
func (e *encoder) put(at int, b []byte) {
	if at+len(b) <= len(e.data) {
		copy(e.data[at:], b)
	}
}

// putInt writes a number as one word.
func (e *encoder) putInt(at, n int) {
	var word [wordSize]byte
	big.NewInt(int64(n)).FillBytes(word[:])
	e.put(at, word[:])
}

// value reads one value and writes it from at on. at is the value's offset in the head; for a dynamic
// value it is the end of the data.
func (e *encoder) value(t *abiType, at int, field string) error {
	switch t.kind {
	case kindTuple, kindArray, kindSlice:
		return e.values(t, at, field)
	case kindString, kindBytes:
		return e.text(t, at, field)
	default:
		word, err := readWord(t, e.from.value(), field)
		e.put(at, word[:])
		return err
	}
}

// values reads a JSON array as a tuple or an array: first the heads of all elements,
// then the tails of those that are dynamic. Offsets count from the first head.
func (e *encoder) values(t *abiType, at int, field string) error {
	n, ok := e.from.open()
	if !ok {
		return invalid(field, "want a JSON array")
	}
	want, heads := t.elements(n)
	if n != want {
		return invalid(field, "%d elements: want %d", n, want)
	}
	if t.kind == kindSlice {
		e.grow(wordSize)
		e.putInt(at, n)
		at += wordSize
	}
	if t.dynamic {
		e.grow(heads)
	}
	first := at
	for i := range n {
		part := t.part(i)
		place := at
		if part.dynamic {
			place = e.size
			e.putInt(at, place-first)
		}
		if err := e.value(part, place, element(field, i)); err != nil {
			return err
		}
		e.from.next()
		at += part.head
	}
	return nil
}

// elements returns how many elements the type requires if n are given, and the bytes of their heads.
func (t *abiType) elements(n int) (want, heads int) {
	switch t.kind {
	case kindTuple:
		return len(t.parts), headsOf(t.parts)
	case kindArray:
		n = t.size
	}
	return n, n * t.parts[0].head
}

// part returns the type of the element at i. An array has one type for all.
func (t *abiType) part(i int) *abiType { return &t.parts[min(i, len(t.parts)-1)] }

// text reads a string or bytes, and writes the length and the bytes, padded to whole words.
func (e *encoder) text(t *abiType, at int, field string) error {
	var b []byte
	var err error
	if t.kind == kindBytes {
		b, err = readHex(e.from.value(), field, maxData)
	} else {
		var s string
		s, err = readString(e.from.value(), field)
		b = []byte(s)
	}
	if err != nil {
		return err
	}
	e.grow(wordSize + (len(b)+wordSize-1)/wordSize*wordSize)
	e.putInt(at, len(b))
	e.put(at+wordSize, b)
	return nil
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// readWord reads a value of one word.
func readWord(t *abiType, raw json.RawMessage, field string) (word [wordSize]byte, err error) {
	switch t.kind {
	case kindAddress:
		address, err := readAddress(raw, field)
		if err != nil {
			return word, err
		}
		return common.HexToHash(string(*address)), nil
	case kindBool:
		switch string(raw) {
		case "true":
			word[wordSize-1] = 1
		case "false":
		default:
			return word, invalid(field, "want true or false")
		}
	case kindFixedBytes:
		b, err := readHex(raw, field, t.size)
		if err == nil && len(b) != t.size {
			err = invalid(field, "%d bytes: want %d, as 0x and %d hex digits", len(b), t.size, 2*t.size)
		}
		copy(word[:], b)
		return word, err
	default:
		n, err := readInRange(t, raw, field)
		if err != nil {
			return word, err
		}
		n.FillBytes(word[:])
	}
	return word, nil
}

// readInRange reads an integer within the type's range. It returns a negative one in two's complement.
func readInRange(t *abiType, raw json.RawMessage, field string) (*big.Int, error) {
	n, err := readInteger(raw, field)
	if err != nil {
		return nil, err
	}
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(t.size))
	if t.kind == kindInt {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	if n.Cmp(low) < 0 || n.Cmp(high) >= 0 {
		return nil, invalid(field, "%s is out of range: want %s", n, t.name)
	}
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), 8*wordSize))
	}
	return n, nil
}
