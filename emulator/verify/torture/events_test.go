package main

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// A missing event, an event after the final one, and a wrong final event are found. Correct
// events pass.
func TestWrongEventsAreFound(t *testing.T) {
	t.Parallel()
	const final, more = `{"final": true}`, `{"final": false}`
	for name, c := range map[string]struct {
		state                txmanager.State
		counted, n, sequence int
		kind, data           string
		wrong                bool
	}{
		"the first":              {txmanager.Confirmed, 5, 1, 1, "TxAccepted", "{}", false},
		"the end":                {txmanager.Confirmed, 5, 5, 5, "TxConfirmed", final, false},
		"failed":                 {txmanager.Failed, 2, 2, 2, "TxFailed", "{}", false},
		"a hole":                 {txmanager.Confirmed, 5, 3, 4, "TxConfirmed", more, true},
		"none":                   {txmanager.Queued, 1, 1, 0, "", "{}", true},
		"before the end":         {txmanager.Confirmed, 5, 4, 4, "TxConfirmed", final, true},
		"no end":                 {txmanager.Confirmed, 5, 5, 5, "TxConfirmed", more, true},
		"another end":            {txmanager.Failed, 5, 5, 5, "TxConfirmed", final, true},
		"confirmed, told failed": {txmanager.Confirmed, 5, 5, 5, "TxFailed", "{}", true},
		"not ended, told so":     {txmanager.Tracking, 5, 5, 5, "TxConfirmed", final, true},
		"no data":                {txmanager.Tracking, 5, 4, 4, "TxSubmitted", "", true},
	} {
		if got := eventProblem(c.state, c.counted, c.n, c.sequence, c.kind, c.data); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want it wrong: %t", name, got, c.wrong)
		}
	}
}
