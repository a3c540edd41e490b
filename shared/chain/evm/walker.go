package evm

import (
	"bytes"
	"encoding/json"
)

// walker reads nested JSON arrays once and copies none of them: decoding level by level would read and
// copy the inner arrays once for each level.
type walker struct {
	rest    []byte
	lengths []int // of the arrays that are not opened yet, in the order of their beginnings
}

// newWalker begins before the text. Invalid JSON counts as empty text, in which no array opens.
func newWalker(raw json.RawMessage) walker {
	if !json.Valid(raw) {
		return walker{}
	}
	w := walker{rest: raw}
	var open []int // indices of lengths
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i += stringSize(raw[i:]) - 1
		case '[', '{': // an object is not a value of any type: nothing after it is read
			open = append(open, len(w.lengths))
			first := 1
			if bytes.HasPrefix(bytes.TrimLeft(raw[i+1:], jsonSpace), []byte("]")) {
				first = 0
			}
			w.lengths = append(w.lengths, first)
		case ',':
			w.lengths[open[len(open)-1]]++
		case ']', '}':
			open = open[:len(open)-1]
		}
	}
	return w
}

const jsonSpace = " \t\r\n"

// stringSize returns the length of the JSON string at the start of text, with quotes.
func stringSize(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// open enters the next array and returns its number of elements.
func (w *walker) open() (n int, ok bool) {
	w.space()
	if !bytes.HasPrefix(w.rest, []byte("[")) {
		return 0, false
	}
	n, w.lengths = w.lengths[0], w.lengths[1:]
	w.rest = w.rest[1:]
	if n == 0 {
		w.next()
	}
	return n, true
}

// leaf takes the next string, number or literal. From an array or an object it takes a beginning, which
// is none of these.
func (w *walker) leaf() json.RawMessage {
	w.space()
	size := bytes.IndexAny(w.rest, jsonSpace+",]")
	switch {
	case bytes.HasPrefix(w.rest, []byte(`"`)):
		size = stringSize(w.rest)
	case size < 0:
		size = len(w.rest)
	}
	value := w.rest[:size]
	w.rest = w.rest[size:]
	return value
}

// next skips the comma or the bracket after an element.
func (w *walker) next() {
	w.space()
	if len(w.rest) > 0 {
		w.rest = w.rest[1:]
	}
}

func (w *walker) space() { w.rest = bytes.TrimLeft(w.rest, jsonSpace) }
