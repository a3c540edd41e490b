package queues

import (
	"cmp"
	"math/big"
	"strings"

	"github.com/fencepost/fencepost/shared/client"
)

// payload is what a caller asked for, with its data decoded.
type payload struct {
	client.TxPayload
	Function string // such as transfer(address,uint256), or the selector; "": there is no call
	Words    []word // the arguments, 32 bytes each; none: the data has another form, or is cut
}

// word is an argument of a call.
type word struct {
	Name    string // such as to; "": the function is not known
	Address string // "": it is none
	Number  string // decimal; "": the function says that it is an address
}

// function is a function of ERC-20 by its selector.
type function struct {
	name string
	args []string // each but amount is an address
}

var functions = map[string]function{
	"a9059cbb": {"transfer(address,uint256)", []string{"to", "amount"}},
	"095ea7b3": {"approve(address,uint256)", []string{"spender", "amount"}},
	"23b872dd": {"transferFrom(address,address,uint256)", []string{"from", "to", "amount"}},
}

const (
	selectorDigits = 8
	wordDigits     = 64
	addressDigits  = 40
	leastAddress   = 24 // a number of fewer digits is no address
	maxWords       = 32 // that are shown decoded
)

// payloadOf decodes a stored payload; nil: there is none.
func payloadOf(p *client.TxPayload) *payload {
	if p == nil {
		return nil
	}
	out := &payload{TxPayload: *p}
	digits := strings.TrimPrefix(p.Data, "0x")
	if p.To == "" || len(digits) < selectorDigits {
		return out
	}
	known := functions[digits[:selectorDigits]]
	out.Function = cmp.Or(known.name, "0x"+digits[:selectorDigits])
	rest := digits[selectorDigits:]
	whole := p.DataBytes == nil || 2**p.DataBytes == len(digits)
	if !whole || len(rest)%wordDigits != 0 || len(rest) > maxWords*wordDigits {
		return out
	}
	for i := 0; i < len(rest); i += wordDigits {
		name := ""
		if n := i / wordDigits; n < len(known.args) {
			name = known.args[n]
		}
		out.Words = append(out.Words, wordOf(name, rest[i:i+wordDigits]))
	}
	return out
}

// Size is the length of the whole data, in bytes; 0: there are none.
func (p payload) Size() int {
	if p.DataBytes == nil {
		return 0
	}
	return *p.DataBytes
}

// wordOf reads a word. One with a name is an amount or an address. One without is a number, and an address if it can be one.
// An address is in the last 20 bytes.
func wordOf(name, digits string) word {
	w := word{Name: name}
	if n, ok := new(big.Int).SetString(digits, 16); ok && (name == "" || name == "amount") {
		w.Number = n.String()
	}
	value := strings.TrimLeft(digits, "0")
	if name == "" && len(value) <= addressDigits && len(value) >= leastAddress || name != "" && name != "amount" {
		w.Address = "0x" + digits[wordDigits-addressDigits:]
	}
	return w
}
