package evm

import (
	"regexp"
	"strconv"
	"strings"
)

// Limits of a signature, far above those of real contracts.
const (
	maxSignature = 1024 // bytes
	maxDepth     = 8    // of tuples in tuples
	maxElements  = 1024 // of a fixed array: all its dimensions and those of its tuple's fields multiplied
)

var (
	functionName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)
	elementary   = regexp.MustCompile(`^(address|bool|string|bytes|bytes([1-9]|[12][0-9]|3[0-2])|u?int([1-9][0-9]*))$`)
	arraySuffix  = regexp.MustCompile(`^\[([1-9][0-9]{0,3})?\]`)
)

// signatureParser reads the canonical text of a signature. It is stricter than abi.ParseSelector, which
// accepts any byte as a comma, and no arrays of tuples but [].
type signatureParser struct {
	rest string
}

// kind is the encoding form of a type.
type kind byte

const (
	kindAddress kind = iota + 1
	kindBool
	kindString
	kindBytes      // any number of them
	kindFixedBytes // bytes1 to bytes32
	kindUint
	kindInt
	kindTuple
	kindSlice // T[]
	kindArray // T[n]
)

// wordSize is the number of bytes of each number, offset and length.
const wordSize = 32

// abiType is one type of a signature. It is plain data: a Go type made at run time would never be
// freed, and callers choose the signatures.
type abiType struct {
	kind    kind
	size    int       // bits of an integer, bytes of bytes1 to bytes32, elements of T[n]
	parts   []abiType // of a tuple; of an array its one element type
	dynamic bool      // its values are in the tail, and the head has their offset
	head    int       // its bytes in the head
	name    string    // of an elementary type
}

// parseSignature reads the types of "name(type,type)": canonical names (uint256, not uint), no spaces,
// no argument names, tuples as "(type,type)".
func parseSignature(text string) ([]abiType, error) {
	name, _, ok := strings.Cut(text, "(")
	if !ok || len(text) > maxSignature || !functionName.MatchString(name) {
		return nil, badSignature()
	}
	p := signatureParser{rest: text[len(name):]}
	types, _, err := p.tuple(0)
	if err != nil {
		return nil, err
	}
	if p.rest != "" {
		return nil, badSignature()
	}
	return types, nil
}

func badSignature() error {
	return invalid("payload.function", `want a signature such as "transfer(address,uint256)": `+
		"canonical types (uint256, not uint), no spaces, no argument names, tuples as (type,type)")
}

// tuple reads "(type,type)" and returns the number of elements with its fixed arrays expanded.
func (p *signatureParser) tuple(depth int) (parts []abiType, elements int, err error) {
	if depth > maxDepth || !p.take("(") {
		return nil, 0, badSignature()
	}
	if depth == 0 && p.take(")") {
		return nil, 0, nil
	}
	for {
		part, n, err := p.typ(depth)
		if err != nil {
			return nil, 0, err
		}
		parts, elements = append(parts, part), elements+n
		if p.take(")") {
			return parts, elements, nil
		}
		if !p.take(",") {
			return nil, 0, badSignature()
		}
	}
}

func (p *signatureParser) typ(depth int) (t abiType, elements int, err error) {
	if strings.HasPrefix(p.rest, "(") {
		var parts []abiType
		if parts, elements, err = p.tuple(depth + 1); err != nil {
			return t, 0, err
		}
		t = tupleOf(parts)
	} else if t, elements = p.elementary(), 1; t.name == "" {
		return t, 0, badSignature()
	}
	for {
		suffix := arraySuffix.FindStringSubmatch(p.rest)
		if suffix == nil {
			return t, elements, nil
		}
		p.rest = p.rest[len(suffix[0]):]
		n, _ := strconv.Atoi(suffix[1]) // 0: any number
		t = arrayOf(t, n)
		elements *= max(n, 1)
		if elements > maxElements {
			return t, 0, invalid("payload.function", "want fixed arrays of at most %d elements in all", maxElements)
		}
	}
}

func tupleOf(parts []abiType) abiType {
	t := abiType{kind: kindTuple, parts: parts, head: headsOf(parts)}
	for _, part := range parts {
		t.dynamic = t.dynamic || part.dynamic
	}
	if t.dynamic {
		t.head = wordSize
	}
	return t
}

// arrayOf returns the array of n elements; 0: of any number.
func arrayOf(elem abiType, n int) abiType {
	t := abiType{kind: kindArray, size: n, parts: []abiType{elem}, dynamic: n == 0 || elem.dynamic, head: wordSize}
	if n == 0 {
		t.kind = kindSlice
	}
	if !t.dynamic {
		t.head = n * elem.head
	}
	return t
}

// headsOf returns the bytes of the types' heads together.
func headsOf(types []abiType) (bytes int) {
	for _, t := range types {
		bytes += t.head
	}
	return bytes
}

// elementary reads one type without tuple and array. The result has no name if there is none.
func (p *signatureParser) elementary() (t abiType) {
	end := max(strings.IndexAny(p.rest, ",()["), 0)
	match := elementary.FindStringSubmatch(p.rest[:end])
	if match == nil {
		return t
	}
	length, bits := match[2], match[3]     // at most one of them is given
	size, _ := strconv.Atoi(length + bits) // 0 without both
	if bits != "" && (size == 0 || size > 256 || size%8 != 0) {
		return t
	}
	p.rest = p.rest[end:]
	t = abiType{name: match[0], size: size, head: wordSize}
	switch {
	case t.name == "address":
		t.kind = kindAddress
	case t.name == "bool":
		t.kind = kindBool
	case t.name == "string":
		t.kind, t.dynamic = kindString, true
	case t.name == "bytes":
		t.kind, t.dynamic = kindBytes, true
	case length != "":
		t.kind = kindFixedBytes
	case t.name[0] == 'u':
		t.kind = kindUint
	default:
		t.kind = kindInt
	}
	return t
}

func (p *signatureParser) take(token string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, token)
	return ok
}
