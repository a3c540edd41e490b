package functions_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/runbooks"
)

// The API takes the parameters of each list that a runbook names.
func TestListsOfRunbooksAreTaken(t *testing.T) {
	t.Parallel()
	h := build(t)
	values := strings.NewReplacer("submitter=…", "submitter=eip155:1337:0x00000000000000000000000000000000000000a1")
	lists := 0
	for name, page := range check.Value(runbooks.Pages("../docs/runbooks"))(t) {
		for _, m := range regexp.MustCompile("`GET (/admin/v1/[^`{]*\\?[^`]*)`").FindAllStringSubmatch(page, -1) {
			lists++
			if got := h.as("ann", http.MethodGet, values.Replace(m[1]), nil); got.status != http.StatusOK {
				t.Errorf("%s: GET %s: got %d %s, want 200", name, m[1], got.status, got.is("detail"))
			}
		}
	}
	if lists < 10 {
		t.Errorf("lists: got %d, too few to be all", lists)
	}
}
