package admin

import (
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
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

// Each cause of a wait has its sentence, and one more where the wait is too long.
func TestWaitsAreSaidInSentences(t *testing.T) {
	t.Parallel()
	for _, cause := range txmanager.WaitCauses() {
		item := store.AttentionItem{Kind: store.AttentionBlocked, Name: string(cause)}
		why := attentionOf(item).Why
		item.Overdue = true
		if late := attentionOf(item).Why; !strings.HasSuffix(why, ".") || strings.Contains(why, "_") || late != why+" It has waited longer than this cause allows." {
			t.Errorf("%s: got %q and %q, want a sentence, and one more where it is overdue", cause, why, late)
		}
	}
}
