package acceptance

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// lostNonces returns all pages of the list, and the final count on its last page.
func (b bench) lostNonces(t *testing.T, s txmanager.Submitter) (all []client.LostNonce, final uint64) {
	t.Helper()
	operator := must(b.Client(stack.OperatorAccount))(t)
	for token := ""; ; {
		page := must(operator.Lost(b.ctx, string(s), token))(t)
		if all = append(all, page.Nonces...); page.FinalCount != nil {
			final = *page.FinalCount
		}
		if token = page.NextPageToken; token == "" {
			return all, final
		}
	}
}

// askRelease requests a release with this query. It repeats the call while the answer says to, or
// while no node returns a transaction.
func (b bench) askRelease(t *testing.T, s txmanager.Submitter, query string, body map[string]any) (status int, text string) {
	t.Helper()
	call := func() answered {
		return b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/release"+query, body)
	}
	return b.repeat(t, "release", call, func(a answered) bool {
		return a.status == http.StatusServiceUnavailable || strings.Contains(a.text, "is not known")
	})
}

func (b bench) released(t *testing.T, s txmanager.Submitter, query string, body map[string]any) (answer client.ReleaseReport) {
	t.Helper()
	status, text := b.askRelease(t, s, query, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("release of %s%s: got %d %s, want 200", s, query, status, text)
	}
	return answer
}

// refusedRelease calls askRelease and requires a refusal with these texts.
func (b bench) refusedRelease(t *testing.T, what string, s txmanager.Submitter, body map[string]any, wants ...string) (text string) {
	t.Helper()
	status, text := b.askRelease(t, s, "", body)
	for _, want := range wants {
		if status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want 400 with %q", what, status, text, want)
		}
	}
	return text
}

// allEnded waits until each transaction is terminal.
func (b bench) allEnded(t *testing.T) {
	t.Helper()
	b.awaitCount(t, "not all transactions ended", 0, `select count(*) from managed_tx where state not in ('CONFIRMED', 'FAILED')`)
}
