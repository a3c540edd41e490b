package operation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// A refusal after an attempt without an answer is no proof that nothing was changed.
func TestUnknownComesBeforeTheCode(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"TOO_LATE", "NOT_FOUND", ""} {
		refused := &client.Problem{Status: 409, Code: code}
		got := endpointWayOn(fmt.Errorf("POST x: %w; of an earlier attempt %w", refused, client.ErrUnknown))
		if !strings.HasPrefix(got, page.Unknown) || strings.Contains(got, "Nothing was changed") {
			t.Errorf("%s after an unanswered attempt: got %q, want %q first", code, got, page.Unknown)
		}
	}
}
