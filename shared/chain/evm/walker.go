package evm

import (
	"bytes"
	"encoding/json"
)

// walker goes once through nested JSON arrays, and copies none of them: decoding
// level by level would read and copy the inner arrays once for each level.
type walker struct {
	rest    []byte
	lengths []int // of the arrays not yet opened, in the order in which they begin
}

// newWalker begins before the text. A text that is no JSON it takes for an empty one,
// in which no array opens.
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
		case '[', '{': // an object is no value of any type: nothing after it is read
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

// stringSize is the length of the JSON string that text begins with, quotes included.
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

// open enters the array that comes next, and says how many elements it has.
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

// leaf takes the string, number or literal that comes next. Of an array or an object
// it takes a beginning, which is none of these.
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

// next goes past the comma or the bracket that follows an element.
func (w *walker) next() {
	w.space()
	if len(w.rest) > 0 {
		w.rest = w.rest[1:]
	}
}

func (w *walker) space() { w.rest = bytes.TrimLeft(w.rest, jsonSpace) }
