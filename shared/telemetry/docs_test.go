package telemetry_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/check"
)

// The page lists each metric that the code declares, once, and no other.
func TestDocsHaveEveryMetric(t *testing.T) {
	t.Parallel()
	code := check.Value(os.ReadFile("metrics.go"))(t)
	page := check.Value(os.ReadFile("../../docs/telemetry.md"))(t)
	var declared, listed []string
	for _, m := range regexp.MustCompile(`= (?:counter|seconds|histogram|gauge|last)\("(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		declared = append(declared, m[1])
	}
	for line := range strings.Lines(string(page)) {
		if m := regexp.MustCompile("^\\| `([a-zA-Z_]+)` \\|").FindStringSubmatch(line); m != nil {
			listed = append(listed, "fencepost_"+m[1])
		}
	}
	slices.Sort(declared)
	slices.Sort(listed)
	if diff := cmp.Diff(declared, listed); diff != "" || len(declared) < 19 {
		t.Errorf("metrics of docs/telemetry.md (-declared +listed):\n%s", diff)
	}
}
