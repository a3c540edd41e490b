package console_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

var (
	crumbs = regexp.MustCompile(`<p class="crumbs">(.*?)</p>`)
	linked = regexp.MustCompile(`<a [^>]*>.*?</a>|\{\{link [^}]*\}\}`)
	way    = regexp.MustCompile(`^link( › link)*$`)
	spaces = regexp.MustCompile(`<(td|dd)\b[^>]*>\s+</(td|dd)>`)
)

// The way back above each page has one form: links to the pages above it, with the same mark between them. A cell that can
// be empty has no space within, so that the style sheet draws a dash.
func TestTemplatesHaveOneForm(t *testing.T) {
	t.Parallel()
	files := check.Value(filepath.Glob("*/templates/*.html"))(t)
	found := 0
	for _, file := range files {
		text := check.Value(os.ReadFile(file))(t)
		for _, m := range crumbs.FindAllStringSubmatch(string(text), -1) {
			found++
			if got := linked.ReplaceAllString(m[1], "link"); !way.MatchString(got) {
				t.Errorf("%s: got the crumbs %q, want links with › between them", file, got)
			}
		}
		for _, m := range spaces.FindAllString(string(text), -1) {
			t.Errorf("%s: got %q, want it without spaces", file, m)
		}
	}
	if found < 10 {
		t.Errorf("crumbs: got %d, want those of all pages", found)
	}
}
