package evm

import "encoding/json"

// walker reads nested JSON arrays once and copies none of them: decoding level by level would read and
// copy the inner arrays once for each level.
type walker struct {
	cursor
	lengths []int // of the arrays that are not opened yet, in the order of their beginnings
}

// newWalker begins before the text. Invalid JSON counts as empty text, in which no array opens.
func newWalker(raw json.RawMessage) walker {
	if !json.Valid(raw) {
		return walker{}
	}
	w := walker{cursor: cursor{text: raw}}
	var open []int // indices of lengths
	for c := w.cursor; c.at < len(raw); {
		switch raw[c.at] {
		case '"':
			c.quoted()
			continue
		case '[', '{': // an object is not a value of any type: nothing after it is read
			open = append(open, len(w.lengths))
			length := 1
			if after := (cursor{raw, c.at + 1}); after.take(']') {
				length = 0
			}
			w.lengths = append(w.lengths, length)
		case ',':
			w.lengths[open[len(open)-1]]++
		case ']', '}':
			open = open[:len(open)-1]
		}
		c.at++
	}
	return w
}

// open enters the next array and returns its number of elements.
func (w *walker) open() (n int, ok bool) {
	if !w.take('[') {
		return 0, false
	}
	n, w.lengths = w.lengths[0], w.lengths[1:]
	if n == 0 {
		w.next()
	}
	return n, true
}

// next skips the comma or the bracket after an element.
func (w *walker) next() { _ = w.take(',') || w.take(']') }
