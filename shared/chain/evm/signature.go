package evm

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
)

// Bounds of a signature, far above what contracts have. Types become Go types
// before there are values, so their size is bounded first.
const (
	maxSignature = 1024 // bytes
	maxDepth     = 8    // of tuples in tuples
	maxElements  = 1024 // of a fixed array, all its dimensions and those of its tuple's fields multiplied
)

var (
	functionName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)
	elementary   = regexp.MustCompile(`^(address|bool|string|bytes|bytes([1-9]|[12][0-9]|3[0-2])|u?int([1-9][0-9]*))$`)
	arraySuffix  = regexp.MustCompile(`^\[([1-9][0-9]{0,3})?\]`)
)

// signatureParser walks over the canonical text of a signature. It is stricter
// than abi.ParseSelector, which takes any byte for a comma and no arrays of
// tuples but [].
type signatureParser struct {
	rest string
}

// parseSignature reads the types of "name(type,type)": canonical names
// (uint256, not uint), no spaces, no argument names, tuples as "(type,type)".
func parseSignature(text string) ([]abi.Type, error) {
	name, _, ok := strings.Cut(text, "(")
	if !ok || len(text) > maxSignature || !functionName.MatchString(name) {
		return nil, badSignature()
	}
	p := signatureParser{rest: text[len(name):]}
	components, _, err := p.tuple(0)
	if err != nil {
		return nil, err
	}
	if p.rest != "" {
		return nil, badSignature()
	}
	types := make([]abi.Type, len(components))
	for i, c := range components {
		if types[i], err = abi.NewType(c.Type, "", c.Components); err != nil {
			return nil, invalid("payload.function", "%v", err)
		}
	}
	return types, nil
}

func badSignature() error {
	return invalid("payload.function", `want a signature such as "transfer(address,uint256)": `+
		"canonical types (uint256, not uint), no spaces, no argument names, tuples as (type,type)")
}

// tuple reads "(type,type)" and says how many elements it has when its fixed
// arrays are written out.
func (p *signatureParser) tuple(depth int) (parts []abi.ArgumentMarshaling, elements int, err error) {
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
		part.Name = "Field" + strconv.Itoa(len(parts))
		parts, elements = append(parts, part), elements+n
		if p.take(")") {
			return parts, elements, nil
		}
		if !p.take(",") {
			return nil, 0, badSignature()
		}
	}
}

func (p *signatureParser) typ(depth int) (part abi.ArgumentMarshaling, elements int, err error) {
	if strings.HasPrefix(p.rest, "(") {
		part.Type = "tuple"
		if part.Components, elements, err = p.tuple(depth + 1); err != nil {
			return part, 0, err
		}
	} else if part.Type, elements = p.elementary(), 1; part.Type == "" {
		return part, 0, badSignature()
	}
	for {
		suffix := arraySuffix.FindStringSubmatch(p.rest)
		if suffix == nil {
			return part, elements, nil
		}
		p.rest = p.rest[len(suffix[0]):]
		part.Type += suffix[0]
		if n, _ := strconv.Atoi(suffix[1]); n > 0 {
			elements *= n
		}
		if elements > maxElements {
			return part, 0, invalid("payload.function", "want fixed arrays of at most %d elements in all", maxElements)
		}
	}
}

// elementary takes one type without tuple and array, or "".
func (p *signatureParser) elementary() string {
	end := strings.IndexAny(p.rest, ",()[")
	if end < 0 {
		return ""
	}
	match := elementary.FindStringSubmatch(p.rest[:end])
	if match == nil {
		return ""
	}
	if bits := match[3]; bits != "" {
		if n, err := strconv.Atoi(bits); err != nil || n > 256 || n%8 != 0 {
			return ""
		}
	}
	p.rest = p.rest[end:]
	return match[0]
}

func (p *signatureParser) take(token string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, token)
	return ok
}
