package page_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

const act = `{{define "test/act"}}<form method="post">{{template "page/act" .}}{{template "page/confirm" .Data}}<button>Do it</button></form>{{end}}
{{define "test/show"}}<div id="live">{{.Data}}</div>{{end}}`

func newRenderer(t *testing.T) *page.Renderer {
	t.Helper()
	r, err := page.New(page.Section{
		Templates: fstest.MapFS{"templates/x.html": {Data: []byte(act)}},
		Menu:      []page.Link{{Path: "/console/", Name: "Overview"}, {Path: "/console/submitters", Name: "Submitters"}},
	})
	check.OK(t)(err)
	r.Now = func() time.Time { return time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC) }
	return r
}

func callOf(method, path string, form url.Values) page.Call {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return page.Call{Request: r, Person: "ops@fencepost.example", MayAct: true, CSRF: "t0ken"}
}

func wantAll(t *testing.T, body string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
}

func TestPageEscapesDataAndPolls(t *testing.T) {
	w := httptest.NewRecorder()
	newRenderer(t).Render(w, callOf("GET", "/console/submitters/x?from=7", nil), page.View{
		Title: "Show", Body: "test/show", Data: "<script>alert(1)</script>", Poll: 5 * time.Second,
	})
	body := w.Body.String()
	wantAll(t, body, `data-page="show"`, "&lt;script&gt;alert(1)", `hx-get="/console/submitters/x?from=7"`, `hx-trigger="every 5s"`, `hx-select="#live"`, `hx-select-oob="#read"`, `<p>Drawn at <time`, `<span id="read">its live part read at <time`,
		`<a href="/console/submitters" aria-current="page">`, "ops@fencepost.example", "2026-11-27 03:00:00 UTC")
	if strings.Contains(body, "<script>alert") || strings.Contains(body, `href="/console/" aria-current`) {
		t.Errorf("unescaped text, or a second current page:\n%s", body)
	}
	check.Equal(t, "Cache-Control", w.Header().Get("Cache-Control"), "no-store")
}

func TestErrorShowsTheProblemAndNoOtherText(t *testing.T) {
	r := newRenderer(t)
	w := httptest.NewRecorder()
	r.RenderError(w, callOf("GET", "/console/", nil), &client.Problem{Status: 404, Code: "NOT_FOUND", Title: "Not found", Detail: "no such <transaction>"})
	wantAll(t, w.Body.String(), "no such &lt;transaction&gt;", `data-code="NOT_FOUND"`)
	check.Equal(t, "status", w.Code, 404)
	w = httptest.NewRecorder()
	r.RenderError(w, callOf("GET", "/console/", nil), errors.New("dial tcp 10.0.0.1: secret"))
	if w.Code != 502 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("status %d, want 502 without the error's text:\n%s", w.Code, w.Body)
	}
}

func TestPlainPageHasNoMenu(t *testing.T) {
	w := httptest.NewRecorder()
	newRenderer(t).RenderPlain(w, 401, "Sign in", "Your session is over.")
	if body := w.Body.String(); w.Code != 401 || strings.Contains(body, "<nav") || !strings.Contains(body, "Your session is over.") {
		t.Errorf("status %d, want 401 without a menu:\n%s", w.Code, body)
	}
	if w.Header().Get("HX-Refresh") != "true" {
		t.Error("a poll of a person who is not signed in does not reload the page")
	}
}

func TestActNeedsAReasonAndKeepsTheForm(t *testing.T) {
	r := newRenderer(t)
	form := func(context.Context, error) (page.View, error) {
		return page.View{Title: "Act", Body: "test/act", Data: "eip155:1:0xa"}, nil
	}
	for _, c := range []struct {
		name   string
		call   page.Call
		err    error
		status int
		want   string // in the page, or the Location
	}{
		{"form", callOf("GET", "/console/x", nil), nil, 200, `name="csrf" value="t0ken"`},
		{"no reason", callOf("POST", "/console/x", url.Values{"reason": {" "}}), nil, 400, "Write why you do this"},
		{"refused", callOf("POST", "/console/x", url.Values{"reason": {"because <b>"}}), &client.Problem{Status: 409, Code: "TOO_LATE", Title: "Too late", Detail: "it has ended"}, 409, "because &lt;b&gt;</textarea>"},
		{"unknown", callOf("POST", "/console/x", url.Values{"reason": {"r"}}), client.ErrUnknown, 502, "The outcome is unknown."},
		{"proposed", callOf("POST", "/console/x", url.Values{"reason": {"r"}}), &client.ProposedError{Proposal: client.Proposal{ProposalID: "p1"}}, 303, "/console/proposals/p1"},
		{"done", callOf("POST", "/console/x", url.Values{"reason": {"r"}}), nil, 303, "/console/done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := check.Value(page.ServeForm(t.Context(), c.call, "/console/done", form, func(context.Context, string) error { return c.err }))(t)
			w := httptest.NewRecorder()
			r.Render(w, c.call, v)
			if got := w.Body.String() + w.Header().Get("Location"); w.Code != c.status || !strings.Contains(got, c.want) {
				t.Errorf("status %d, want %d with %q:\n%s", w.Code, c.status, c.want, got)
			}
		})
	}
}

func TestConfirmedWantsTheName(t *testing.T) {
	check.OK(t)(page.Confirmed(callOf("POST", "/x", url.Values{"confirm": {" payouts "}}), "payouts"))
	if err := page.Confirmed(callOf("POST", "/x", url.Values{"confirm": {"payout"}}), "payouts"); client.CodeOf(err) != "INVALID_FORM" {
		t.Errorf("another name: %v, want INVALID_FORM", err)
	}
}

func TestStaticFilesNeverChange(t *testing.T) {
	w := httptest.NewRecorder()
	newRenderer(t).Render(w, callOf("GET", "/console/", nil), page.View{Title: "Show", Body: "test/show"})
	served := 0
	for _, part := range strings.Split(w.Body.String(), `"`) {
		if !strings.HasPrefix(part, "/console/static/") {
			continue
		}
		file := httptest.NewRecorder()
		page.Static().ServeHTTP(file, httptest.NewRequest("GET", part, nil))
		if file.Code != 200 || !strings.Contains(file.Header().Get("Cache-Control"), "immutable") || file.Header().Get("Content-Type") == "" {
			t.Errorf("%s: status %d, headers %v", part, file.Code, file.Header())
		}
		served++
	}
	check.Equal(t, "static files of the page", served, 4)
	missing := httptest.NewRecorder()
	page.Static().ServeHTTP(missing, httptest.NewRequest("GET", "/console/static/style.css", nil))
	check.Equal(t, "a path without a hash", missing.Code, http.StatusNotFound)
}

// The browser would drop inline code silently.
func TestTemplatesHaveNoInlineCode(t *testing.T) {
	for _, bad := range []string{`<p style="color: red">`, `<a onclick="x()">`, `<script>x()</script>`, `<style>p {}</style>`, `<a href="javascript:x()">`, `<p hx-on:click="x()">`} {
		if _, err := page.New(page.Section{Templates: fstest.MapFS{"x.html": {Data: []byte(bad)}}}); err == nil || !strings.Contains(err.Error(), "Content-Security-Policy") {
			t.Errorf("%s: got %v, want it refused", bad, err)
		}
	}
}

// The form after an act that used its whole time has time to read the state; a form that is opened has the page's.
func TestRedrawHasItsOwnTime(t *testing.T) {
	t.Parallel()
	used, cancel := context.WithCancel(t.Context())
	cancel()
	for method, want := range map[string]error{http.MethodPost: nil, http.MethodGet: context.Canceled} {
		ctx, cancel := page.Redraw(used, page.Call{Request: httptest.NewRequest(method, "/console/x", nil)})
		if _, bounded := ctx.Deadline(); !errors.Is(ctx.Err(), want) || bounded != (want == nil) {
			t.Errorf("%s: got the context's error %v, a deadline %t, want %v", method, ctx.Err(), bounded, want)
		}
		cancel()
	}
}
