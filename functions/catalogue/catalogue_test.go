package catalogue_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/catalogue"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

var update = flag.Bool("update", false, "write docs/errors.md anew")

const docs = "../../docs/errors.md"

const introduction = `<!-- Generated from functions/catalogue by: go test ./functions/catalogue -update -->

# Error codes

A refusal is ` + "`application/problem+json`" + `. Its ` + "`code`" + ` is one of these and never changes its meaning. Its ` + "`type`, `/errors/`" + `
and the code, is a page of the deployment with the same text, without a token.

The last column tells whether the same request may be sent again as it is:

- **yes**: after ` + "`Retry-After`" + `, if the answer has it. Keep the ` + "`requestId`, `cid` or `id`" + `: the repeat has no second effect. ` + catalogue.WithoutCID + `
- **later**: once the cause is gone. Until then the answer stays the same.
- **no**: the same request gets the same answer.

An answer without a code, such as a load balancer's 502, or none at all, tells nothing: send the same request again, or read the state. A transfer or payout
without a cid is not sent again before you have read your list.

| code | HTTP | cause | what the caller does | again |
| --- | --- | --- | --- | --- |
`

// The page has the table.
func TestPageIsTheTable(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	want.WriteString(introduction)
	for _, e := range catalogue.Entries {
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", e.Code, e.Statuses(), e.Cause, e.Action, e.Repeat)
	}
	if *update {
		check.OK(t)(os.WriteFile(docs, []byte(want.String()), 0o644))
	}
	got := check.Value(os.ReadFile(docs))(t)
	check.Same(t, "docs/errors.md, beside the table; go test ./functions/catalogue -update writes it", string(got), want.String())
}

// Each code has one entry, whose sentences fit a cell of the page.
func TestEntriesAreWhole(t *testing.T) {
	t.Parallel()
	sentence := regexp.MustCompile(`^["A-Z` + "`" + `][^|\n]*\.$`)
	seen := map[string]bool{}
	for _, e := range catalogue.Entries {
		if seen[e.Code] {
			t.Errorf("%s: got it twice", e.Code)
		}
		seen[e.Code] = true
		if len(e.Status) == 0 || !sentence.MatchString(e.Cause) || !sentence.MatchString(e.Action) {
			t.Errorf("%s: got %+v, want statuses and sentences", e.Code, e)
		}
	}
}

// A transfer or payout without a cid has no key: its repeat is a second one. Each text that calls a repeat safe says so.
func TestRepeatWithoutACidIsNotSafe(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"yes": catalogue.Safe.Meaning()}
	for _, e := range catalogue.Entries {
		if e.Code == "SYSTEM_ERROR" || e.Code == "UNAVAILABLE" {
			texts[e.Code] = e.Action
		}
	}
	check.Equal(t, "texts", len(texts), 3)
	for name, text := range texts {
		if want := "A transfer or payout that was sent without a cid must not be sent again"; !strings.Contains(text, want) {
			t.Errorf("%s: got %q, want %q in it", name, text, want)
		}
	}
}

// Each code has a page, as HTML for browsers and as text for others. No other code has one.
func TestEachCodeHasAPage(t *testing.T) {
	t.Parallel()
	mux := web.NewMux()
	catalogue.Route(mux)
	ask := func(path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	for _, e := range catalogue.Entries {
		for accept, want := range map[string]string{
			"*/*": "text/plain; charset=utf-8", "text/html,application/xhtml+xml,*/*;q=0.8": "text/html; charset=utf-8",
		} {
			w := ask(web.TypePath+e.Code, accept)
			check.Equal(t, e.Code+": status", w.Code, http.StatusOK)
			check.Equal(t, e.Code+": Content-Type", w.Header().Get("Content-Type"), want)
			if !strings.Contains(w.Body.String(), e.Code) || !strings.Contains(w.Body.String(), e.Statuses()) {
				t.Errorf("%s: got %s, want code and status in it", e.Code, w.Body)
			}
		}
	}
	html := ask("/errors/INVALID_AMOUNT", "text/html").Body.String()
	if !strings.Contains(html, "&#34;12.5&#34;") {
		t.Errorf("got %s, want its text escaped", html)
	}
	w := ask("/errors/NO_SUCH_CODE", "text/html")
	check.Equal(t, "status of another code", w.Code, http.StatusNotFound)
	check.Equal(t, "its type", w.Header().Get("Content-Type"), "application/problem+json")
}
