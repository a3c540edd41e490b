package pgproxy

import (
	"bytes"
	"testing"
)

// A reply is never cut between two messages, where a client could take it as complete.
func TestHalfEndsInsideAMessage(t *testing.T) {
	t.Parallel()
	short, long := []byte("Z\x00\x00\x00\x05I"), []byte("C\x00\x00\x00\x0bCOMMIT\x00")
	for name, messages := range map[string][][]byte{
		"one": {short}, "even": {short, short}, "long first": {long, short}, "long last": {short, long},
		"three": {short, long, short}, "four": {long, short, short, long},
	} {
		whole := bytes.Join(messages, nil)
		got := half(whole)
		if !bytes.HasPrefix(whole, got) || len(got) < len(whole)/2 || len(got) > len(whole)/2+1 {
			t.Errorf("%s: got %d of %d bytes, want half", name, len(got), len(whole))
		}
		for i := range messages {
			if edge := len(bytes.Join(messages[:i], nil)); len(got) == edge {
				t.Errorf("%s: cut at %d, between two messages", name, edge)
			}
		}
	}
}
