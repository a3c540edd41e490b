package shared_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	released = regexp.MustCompile(`^\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$`)
	groups   = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
)

// The changelog has the headings of Keep a Changelog, so that programs can read it: [Unreleased], then the releases. Each
// has groups, each once, in one order.
func TestChangelogHasItsHeadings(t *testing.T) {
	t.Parallel()
	sections := strings.Split(readPage(t, "../CHANGELOG.md"), "\n## ")[1:]
	for i, section := range sections {
		title, text, _ := strings.Cut(section, "\n")
		switch {
		case i == 0 && title == "[Unreleased]", i > 0 && released.MatchString(title), i > 0 && title == history:
		default:
			t.Errorf("section %d: got %q, want [Unreleased] first, then [version] - date, then %q", i, title, history)
		}
		last := -1
		for _, part := range strings.Split(text, "\n### ")[1:] {
			group, _, _ := strings.Cut(part, "\n")
			at := slices.Index(groups, group)
			if at <= last {
				t.Errorf("%s: got the heading %q, want each of %v once, in this order", title, group, groups)
			}
			last = at
		}
		if strings.Contains(text, "\n### ") && !strings.Contains(text, "\n|") && !strings.Contains(text, "\n- ") {
			t.Errorf("%s: has no entry", title)
		}
	}
	atLeast(t, "sections", len(sections), 2)
}

// history is the section of what changed before the first release.
const history = "Before 0.1.0"
