package evm

import (
	"bytes"
	"encoding/hex"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// receipt holds the fields that are read of a receipt. If one of the parts in has is missing, it proves
// nothing: it is of a pending transaction, or older than Byzantium.
type receipt struct {
	tx, block txmanager.Hash
	number    uint64
	succeeded bool
	has       struct{ tx, block, number, status bool }

	text         []byte // the node's object
	bloom, after int    // text from bloom up to after is its logsBloom
}

// complete reports whether r proves anything.
func (r *receipt) complete() bool { return r.has.tx && r.has.block && r.has.number && r.has.status }

// found returns r as an answer, with its document in the space of into.
func (r *receipt) found(into []byte) txmanager.ReceiptAnswer {
	return txmanager.ReceiptAnswer{Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{TxHash: r.tx, BlockNumber: r.number,
		BlockHash: r.block, Succeeded: r.succeeded, Document: r.document(into)}}
}

// document appends the node's object without its logsBloom.
func (r *receipt) document(into []byte) []byte {
	return append(append(into, r.text[:r.bloom]...), r.text[r.after:]...)
}

// documentSize returns the length of what document appends.
func (r *receipt) documentSize() int { return r.bloom + len(r.text) - r.after }

// readReceipt reads the object at the position of c. ok is false for anything else. Of two equal names
// the last counts, as in encoding/json, which would be several times slower and allocate each part.
func readReceipt(c *cursor) (r receipt, ok bool) {
	c.space()
	start := c.at
	if !c.take('{') {
		return r, false
	}
	for before := c.at; !c.take('}'); before = c.at {
		if before > start+1 && !c.take(',') {
			return r, false
		}
		name := c.value()
		if !c.take(':') {
			return r, false
		}
		value := c.value()
		if len(value) == 0 {
			return r, false
		}
		if string(name) == `"logsBloom"` {
			r.bloom, r.after = before-start, c.at-start
			if before == start+1 { // the first member: the comma after it is removed too
				next := *c
				if next.take(',') {
					r.after = next.at - start
				}
			}
			continue
		}
		r.read(name, value)
	}
	r.text = c.text[start:c.at]
	return r, true
}

func (r *receipt) read(name, value []byte) {
	switch string(name) {
	case `"transactionHash"`:
		r.has.tx = readHash(&r.tx, value)
	case `"blockHash"`:
		r.has.block = readHash(&r.block, value)
	case `"blockNumber"`:
		r.number, r.has.number = readNumber(value)
	case `"status"`:
		status, ok := readNumber(value)
		r.succeeded, r.has.status = status == 1, ok && status <= 1
	}
}

// readNumber reads a JSON string of 0x and hex digits.
func readNumber(value []byte) (uint64, bool) {
	var number hexutil.Uint64
	ok := bytes.HasPrefix(value, []byte(`"0x`)) && number.UnmarshalJSON(value) == nil // it would take "" for 0
	return uint64(number), ok
}

// readHash reads a JSON string of 0x and 64 hex digits.
func readHash(h *txmanager.Hash, value []byte) bool {
	if len(value) != 4+2*len(h) || !bytes.HasPrefix(value, []byte(`"0x`)) {
		return false
	}
	_, err := hex.Decode(h[:], value[3:len(value)-1])
	return err == nil
}

// eachReceipt calls f with each receipt of a list until f returns false. It returns false if f did, or
// if text is not a list of objects.
func eachReceipt(text []byte, f func(receipt) bool) bool {
	c := &cursor{text: text}
	if !c.take('[') {
		return false
	}
	for first := true; !c.take(']'); first = false {
		if !first && !c.take(',') {
			return false
		}
		if r, ok := readReceipt(c); !ok || !f(r) {
			return false
		}
	}
	return true
}

// cursor reads JSON that the client has validated. With other text it stops or skips something else
// than a value, and never panics.
type cursor struct {
	text []byte
	at   int
}

func (c *cursor) space() {
	for c.at < len(c.text) && isSpace(c.text[c.at]) {
		c.at++
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// take skips space and, if it is next, b.
func (c *cursor) take(b byte) bool {
	c.space()
	if c.at == len(c.text) || c.text[c.at] != b {
		return false
	}
	c.at++
	return true
}

// value skips one value and returns its text; empty if there is none.
func (c *cursor) value() []byte {
	c.space()
	start, depth := c.at, 0
	for c.at < len(c.text) {
		switch b := c.text[c.at]; {
		case b == '"':
			c.quoted()
		case b == '{' || b == '[':
			depth++
			c.at++
		case depth == 0 && (b == ',' || b == ':' || b == '}' || b == ']' || isSpace(b)):
			return c.text[start:c.at]
		case b == '}' || b == ']':
			depth--
			c.at++
		default:
			c.at++
			continue // within a number or a word, or between the parts of a list
		}
		if depth == 0 {
			break
		}
	}
	return c.text[start:c.at]
}

// quoted skips a string.
func (c *cursor) quoted() {
	for c.at++; ; {
		n := bytes.IndexByte(c.text[c.at:], '"')
		if n < 0 {
			c.at = len(c.text)
			return
		}
		c.at += n + 1
		if before := c.text[:c.at-1]; (len(before)-len(bytes.TrimRight(before, `\\`)))%2 == 0 {
			return
		}
	}
}
