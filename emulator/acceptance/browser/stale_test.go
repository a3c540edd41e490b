package browser

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/stack"
)

// Two tabs act on one submitter. The second act is one of a page that shows an older state: it changes nothing. By the back
// button after an act a person sees the state of now.
func TestAnOldPageShowsTheStateOfNow(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.changing.Lock()
	defer h.changing.Unlock()
	defer func() {
		must(h.operator.ResumeSubmitter(t.Context(), h.changed(), "the test is over"))(t)
	}()
	path := submitterPath(h.changed())
	first, second := h.as(t, stack.OperatorAccount), h.as(t, stack.OperatorAccount)
	for _, b := range []*tab{first, second} {
		b.open(path + "/suspend")
		b.shows("submitter-act", "ACTIVE")
		b.fill("reason", "seen in two tabs")
	}
	first.submit("button")
	first.shows("submitter", "SUSPENDED")
	second.submits("button", http.StatusConflict)
	second.shows("submitter-act", "SUSPENDED")
	first.evaluate(`history.back()`, nil)
	poll(t, "the form shows the state of now", func() bool {
		const shown = `document.querySelector("main").dataset.page + ": " + document.querySelector("main").textContent`
		text, err := chromedp.Run(first.ctx, chromedp.Evaluate[string](shown)) // fails while the page is being read
		return err == nil && strings.HasPrefix(text, "submitter-act: ") && strings.Contains(text, "SUSPENDED")
	})
	first.fill("reason", "by the back button")
	first.submits("button", http.StatusConflict)
}

var (
	hidden = regexp.MustCompile(`(?s)<pre.*?</pre>|<script.*?</script>|<details.*?</details>`)
	tag    = regexp.MustCompile(`(?s)<[^>]*>`)
	odd    = regexp.MustCompile(`0001-01-01|1970-01-01|\bnull\b|\bundefined\b|<nil>|%!|&(amp|lt|gt|quot|#\d+);|map\[|\bNaN\b|\[object|\d{4,} d\b|…/`)
	todo   = regexp.MustCompile(`data-field="todo">([^<]*)<`)
)

// No page shows a value as a program has it: a time that was never set, a missing value, or a text that was escaped twice.
// What to do is said without routes.
func TestPagesShowNoValuesOfPrograms(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	todos := 0
	for _, path := range h.all() {
		status, page := h.asks(t, b, strings.TrimPrefix(h.console, "http://"), path, nil)
		text := html.UnescapeString(tag.ReplaceAllString(hidden.ReplaceAllString(page, " "), " "))
		equal(t, path, status, http.StatusOK)
		if found := odd.FindStringIndex(text); found != nil {
			t.Errorf("%s: got %q, want no such value", path, text[max(0, found[0]-60):min(len(text), found[1]+60)])
		}
		for _, m := range todo.FindAllStringSubmatch(page, -1) {
			todos++
			if strings.Contains(m[1], "GET ") || strings.Contains(m[1], "POST ") {
				t.Errorf("%s: got %q, want what to do in the console", path, m[1])
			}
		}
	}
	if todos < 3 {
		t.Errorf("texts of what to do: got %d, want those of the pages about what waits", todos)
	}
}
