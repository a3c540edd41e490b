package admin

import (
	"os"
	"testing"

	"github.com/fencepost/fencepost/shared/store"
)

// Each kind of what needs a person says what an operator can do, and names a runbook that exists. The causes of waits
// have their own.
func TestAttentionNamesRunbooks(t *testing.T) {
	t.Parallel()
	for _, kind := range store.AttentionKinds() {
		g, listed := attentionGuides[kind]
		if kind == store.AttentionBlocked {
			continue
		}
		if _, err := os.Stat("../../docs/runbooks/" + g.runbook + ".md"); !listed || err != nil || g.action == "" {
			t.Errorf("%s: got %+v, %v; want an action and a runbook", kind, g, err)
		}
	}
}
