package main

import (
	"testing"

	"github.com/fencepost/fencepost/shared/nonce"
)

// A missing event, an event after the final one, and a wrong final event are found. Correct
// events pass.
func TestWrongEventsAreFound(t *testing.T) {
	t.Parallel()
	const final, more = `{"final": true}`, `{"final": false}`
	for name, c := range map[string]struct {
		state                nonce.State
		counted, n, sequence int
		kind, data           string
		wrong                bool
	}{
		"the first":              {nonce.Confirmed, 5, 1, 1, "TxAccepted", "{}", false},
		"the end":                {nonce.Confirmed, 5, 5, 5, "TxConfirmed", final, false},
		"failed":                 {nonce.Failed, 2, 2, 2, "TxFailed", "{}", false},
		"a hole":                 {nonce.Confirmed, 5, 3, 4, "TxConfirmed", more, true},
		"none":                   {nonce.Queued, 1, 1, 0, "", "{}", true},
		"before the end":         {nonce.Confirmed, 5, 4, 4, "TxConfirmed", final, true},
		"no end":                 {nonce.Confirmed, 5, 5, 5, "TxConfirmed", more, true},
		"another end":            {nonce.Failed, 5, 5, 5, "TxConfirmed", final, true},
		"confirmed, told failed": {nonce.Confirmed, 5, 5, 5, "TxFailed", "{}", true},
		"not ended, told so":     {nonce.Tracking, 5, 5, 5, "TxConfirmed", final, true},
		"no data":                {nonce.Tracking, 5, 4, 4, "TxSubmitted", "", true},
	} {
		if got := eventProblem(c.state, c.counted, c.n, c.sequence, c.kind, c.data); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want it wrong: %t", name, got, c.wrong)
		}
	}
}
