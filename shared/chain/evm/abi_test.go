package evm

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/check"
)

// drawn is a type in a signature's notation and in that of package abi.
type drawn struct {
	text string
	in   abi.ArgumentMarshaling
}

// draw draws types and JSON values, independently of this package's own types.
type draw struct {
	*rand.Rand
	wrong float64 // the probability that a value is invalid
}

func (d draw) signature() (text string, types []drawn) {
	var parts []string
	for i := range d.IntN(5) {
		t := d.typ(3, i)
		types, parts = append(types, t), append(parts, t.text)
	}
	return "f(" + strings.Join(parts, ",") + ")", types
}

func (d draw) typ(depth, place int) (t drawn) {
	t.in.Name = "Field" + strconv.Itoa(place)
	if depth > 0 && d.IntN(3) == 0 {
		t.in.Type = "tuple"
		var parts []string
		for i := range 1 + d.IntN(4) {
			part := d.typ(depth-1, i)
			t.in.Components, parts = append(t.in.Components, part.in), append(parts, part.text)
		}
		t.text = "(" + strings.Join(parts, ",") + ")"
	} else {
		t.text = d.elementary()
		t.in.Type = t.text
	}
	for depth > 0 && d.IntN(3) == 0 {
		suffix := "[]"
		if d.IntN(2) == 0 {
			suffix = "[" + strconv.Itoa(1+d.IntN(3)) + "]"
		}
		t.text, t.in.Type, depth = t.text+suffix, t.in.Type+suffix, depth-1
	}
	return t
}

func (d draw) elementary() string {
	switch d.IntN(7) {
	case 0:
		return "address"
	case 1:
		return "bool"
	case 2:
		return "string"
	case 3:
		return "bytes"
	case 4:
		return "bytes" + strconv.Itoa(1+d.IntN(32))
	case 5:
		return "uint" + strconv.Itoa(8+8*d.IntN(32))
	default:
		return "int" + strconv.Itoa(8+8*d.IntN(32))
	}
}

func (d draw) values(types []drawn) string {
	ins := make([]abi.ArgumentMarshaling, len(types))
	for i, t := range types {
		ins[i] = t.in
	}
	return d.tuple(ins)
}

func (d draw) tuple(types []abi.ArgumentMarshaling) string {
	var items []string
	for _, t := range types {
		items = append(items, d.value(t, t.Type))
	}
	return d.list(items)
}

// list writes a JSON array with white space, and sometimes with one element too many.
func (d draw) list(items []string) string {
	if d.Float64() < d.wrong/4 {
		items = append(items, "true")
	}
	space := func() string { return strings.Repeat(" ", d.IntN(2)) + strings.Repeat("\n", d.IntN(2)) }
	var b strings.Builder
	b.WriteString("[" + space())
	for i, item := range items {
		if i > 0 {
			b.WriteString("," + space())
		}
		b.WriteString(item + space())
	}
	return b.String() + "]"
}

// value writes a value of the type. name may still have array suffixes.
func (d draw) value(in abi.ArgumentMarshaling, name string) string {
	if d.Float64() < d.wrong {
		return []string{`null`, `{"a":[1,2]}`, `[[],"]",{}]`, `"\"x]"`, `-1`, `true`, `"0xab"`, `[]`, `1e3`, `"` + maxUint256 + `"`}[d.IntN(10)]
	}
	if elem, found := strings.CutSuffix(name, "]"); found {
		open := strings.LastIndexByte(elem, '[')
		n, err := strconv.Atoi(elem[open+1:])
		if err != nil {
			n = d.IntN(4)
		}
		var items []string
		for range n {
			items = append(items, d.value(in, elem[:open]))
		}
		return d.list(items)
	}
	if name == "tuple" {
		return d.tuple(in.Components)
	}
	return d.leaf(name)
}

func (d draw) leaf(name string) string {
	hexOf := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(d.Uint32())
		}
		return `"0x` + hex.EncodeToString(b) + `"`
	}
	switch {
	case name == "address":
		return hexOf(20)
	case name == "bool":
		return strconv.FormatBool(d.IntN(2) == 0)
	case name == "string":
		text, _ := json.Marshal(strings.Repeat("é\"[,]\\", d.IntN(12)) + "x"[:d.IntN(2)])
		return string(text)
	case name == "bytes":
		return hexOf(d.IntN(100))
	case strings.HasPrefix(name, "bytes"):
		n, _ := strconv.Atoi(name[len("bytes"):])
		return hexOf(n)
	}
	return d.integer(name)
}

// integer is often at a limit of the type.
func (d draw) integer(name string) string {
	signed := strings.HasPrefix(name, "int")
	bits, _ := strconv.Atoi(strings.TrimLeft(name, "uint"))
	if signed {
		bits--
	}
	top := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	var n *big.Int
	switch d.IntN(4) {
	case 0:
		n = new(big.Int).Sub(top, big.NewInt(1))
	case 1:
		n = new(big.Int)
	default:
		b := make([]byte, 32)
		for i := range b {
			b[i] = byte(d.Uint32())
		}
		n = new(big.Int).SetBytes(b)
		n.Mod(n, top)
	}
	if signed && d.IntN(2) == 0 {
		n.Sub(n, top) // from the minimum to -1
	}
	if d.Float64() < d.wrong { // the first beyond a limit
		n = new(big.Int).Set(top)
		if d.IntN(2) == 0 {
			n.Neg(n.Add(n, big.NewInt(1)))
		}
	}
	if n.CmpAbs(maxSafeInteger) <= 0 && d.IntN(2) == 0 {
		return n.String()
	}
	return `"` + n.String() + `"`
}

// same compares the encoding of a call with the oracle's: bytes, and error texts.
func same(t *testing.T, signature, args string, in []abi.ArgumentMarshaling) {
	t.Helper()
	want, refused := oracleCall(signature, in, json.RawMessage(args))
	got, err := encodeCall(signature, json.RawMessage(args))
	switch {
	case (err == nil) != (refused == nil), err != nil && err.Error() != refused.Error():
		t.Fatalf("%s of %s: got error %v, want %v", signature, args, err, refused)
	case !bytes.Equal(got, want):
		t.Fatalf("%s of %s:\ngot  %x\nwant %x", signature, args, got, want)
	}
}

// Thousands of random signatures and values are encoded as go-ethereum packs them, or refused with the
// same text.
func TestEncodeCallIsGoEthereums(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6_000) {
		d := draw{Rand: rand.New(rand.NewPCG(seed, 1))}
		if seed%3 == 0 {
			d.wrong = 0.1
		}
		signature, types := d.signature()
		in := make([]abi.ArgumentMarshaling, len(types))
		for i := range types {
			in[i] = types[i].in
		}
		same(t, signature, d.values(types), in)
	}
}

// marshaling converts a parsed type to the form of package abi.
func marshaling(t abiType, place int) abi.ArgumentMarshaling {
	in := abi.ArgumentMarshaling{Name: "Field" + strconv.Itoa(place), Type: t.name}
	switch t.kind {
	case kindTuple:
		in.Type = "tuple"
		for i, part := range t.parts {
			in.Components = append(in.Components, marshaling(part, i))
		}
	case kindSlice, kindArray:
		in = marshaling(t.parts[0], place)
		size := ""
		if t.kind == kindArray {
			size = strconv.Itoa(t.size)
		}
		in.Type += "[" + size + "]"
	}
	return in
}

// Any signature and arguments are refused, or encoded as go-ethereum packs them.
func FuzzEncodeCall(f *testing.F) {
	for seed := range uint64(40) {
		d := draw{Rand: rand.New(rand.NewPCG(seed, 2)), wrong: float64(seed%2) / 10}
		signature, types := d.signature()
		f.Add(signature, d.values(types))
	}
	f.Add("f(bool)", "")
	f.Add("f(bool)", "[true")
	f.Add("f(bool[2][])", `[[[true,false],{}]]`)
	f.Add("f(string)", `["\"]"]`)
	f.Fuzz(func(t *testing.T, signature, args string) {
		types, err := parseSignature(signature)
		if err != nil || !json.Valid([]byte(args)) {
			if data, err := encodeCall(signature, json.RawMessage(args)); err == nil {
				t.Errorf("%q of %q: got %x, want an error", signature, args, data)
			}
			return
		}
		in := make([]abi.ArgumentMarshaling, len(types))
		for i := range types {
			in[i] = marshaling(types[i], i)
		}
		same(t, signature, string(bytes.TrimSpace([]byte(args))), in)
	})
}

// Data that is too long is refused with its length.
func TestEncodeCallBoundsItsData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signature, args string
		size            int // 0: accepted
	}{
		{"f(bool[])", `[[` + strings.TrimSuffix(strings.Repeat("true,", (maxData-4)/32-2), ",") + `]]`, 0},
		{"f(bool[])", `[[` + strings.TrimSuffix(strings.Repeat("true,", (maxData-4)/32-1), ",") + `]]`, 4 + 32*(1+(maxData-4)/32)},
		{"f(bool[][])", `[[` + strings.TrimSuffix(strings.Repeat("[],", 300_000), ",") + `]]`, 4 + 64 + 64*300_000},
	} {
		data, err := encodeCall(c.signature, json.RawMessage(c.args))
		var problem *chain.FieldError
		switch {
		case c.size == 0 && (err != nil || len(data) > maxData):
			t.Errorf("%s: got %d bytes, %v, want at most %d", c.signature, len(data), err, maxData)
		case c.size > 0 && (!errors.As(err, &problem) || problem.Problem != fmt.Sprintf("make %d bytes of data: want at most %d", c.size, maxData)):
			t.Errorf("%s: got %v, want its %d bytes refused", c.signature, err, c.size)
		}
	}
}

// The encoder keeps at most the maximum data, however long the encoding would be.
func TestEncoderKeepsNoMoreThanMayBe(t *testing.T) {
	t.Parallel()
	var e encoder
	e.grow(maxData - 32)
	e.grow(1 << 40)
	e.put(maxData-1, []byte{1, 2})
	if e.size != maxData-32+1<<40 || len(e.data) != maxData || cap(e.data) > 2*maxData || e.data[maxData-1] != 0 {
		t.Errorf("got %d of %d bytes, capacity %d, the last %d; want %d and nothing beyond", len(e.data), e.size, cap(e.data), e.data[len(e.data)-1], maxData)
	}
}

// hostile is a payload with a signature that no earlier payload had.
func hostile(number int) json.RawMessage {
	var parts, values []string
	for bit := range 12 {
		part, value := "(uint8,bool)", "[1,true]"
		if number>>bit&1 == 1 {
			part, value = "(bool,int16[2])", "[true,[1,2]]"
		}
		parts, values = append(parts, part), append(values, value)
	}
	return json.RawMessage(`{` + to + `,"function":"f((` + strings.Join(parts, ",") + `))","args":[[` + strings.Join(values, ",") + `]]}`)
}

// Signatures leave no memory behind. Go types made at run time would never be freed.
func TestSignaturesAreFreed(t *testing.T) {
	const signatures = 4_000
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	parse := func(number int) {
		check.OK(t)(Family{}.ParsePayload(hostile(number)))
	}
	parse(0)
	before := live()
	for n := range signatures {
		parse(n)
	}
	if after := live(); after > before+signatures*100 {
		t.Errorf("heap after %d signatures: got %d bytes more, want less than 100 for each", signatures, after-before)
	}
}

// BenchmarkSignatures parses payloads with new signatures.
func BenchmarkSignatures(b *testing.B) {
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if _, _, err := (Family{}).ParsePayload(hostile(n)); err != nil {
			b.Fatal(err)
		}
	}
}
