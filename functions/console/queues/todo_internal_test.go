package queues

import (
	"regexp"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// No text for a person with a browser names a route or a member of the API.
func TestTodosNameNoRoutes(t *testing.T) {
	t.Parallel()
	ofAPI := regexp.MustCompile(`GET |POST |…/|blockedBy|lastErrorDetail`)
	causes := txmanager.WaitCauses()
	if len(causes) < 20 {
		t.Fatalf("causes: got %d, want all", len(causes))
	}
	// The kinds of items whose text of the API has a route.
	for _, kind := range []string{"DATABASE", "PROTECT", "HALT", "FINDING", "STUCK", "PAYOUT", "TRANSFER", "REFUND", "ACCOUNT", "FOREIGN", "HELD", "PAUSED", "PROPOSAL"} {
		if text := todos[kind]; text == "" || ofAPI.MatchString(text) {
			t.Errorf("%s: got %q, want what to do in the console", kind, text)
		}
	}
	for _, cause := range causes {
		if text := todo(string(cause), cause.Guide().Action); text == "" || ofAPI.MatchString(text) {
			t.Errorf("%s: got %q, want what to do in the console", cause, text)
		}
	}
}
