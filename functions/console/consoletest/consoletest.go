// Package consoletest calls the pages of a section, with an API whose answers a test gives. It is for the drawing of
// pages and for the number of their calls. The browser's tests hold the pages against the real API.
package consoletest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// Person is who calls the pages.
const Person = "ann@fencepost.example"

// Answers are the API's answers by method and path, such as "GET /admin/v1/chains". An answer is a value to encode, a
// *[client.Problem], nil for 204, or a function of the request that returns one of these. [Proposed] is 202.
type Answers map[string]any

// Proposed is the answer of an act that a second operator must approve.
type Proposed client.Proposal

// Console has the pages of sections.
type Console struct {
	Viewer  bool            // the person may only read
	Context context.Context // of the requests; nil: it has no end

	t   *testing.T
	mux *http.ServeMux

	mu    sync.Mutex
	calls []Call
}

// Call is one call of the API.
type Call struct {
	Operation string // such as "GET /admin/v1/chains"
	Query     url.Values
	Body      map[string]any
}

// New returns the section's pages with an API that gives the answers. A call that they do not have fails the test.
func New(t *testing.T, s page.Section, answers Answers) *Console {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers.serve(t, w, r) }))
	t.Cleanup(api.Close)
	return On(t, client.Options{URL: api.URL, Token: func(context.Context) (string, error) { return "token", nil }}, s)
}

// On returns the sections' pages with an API of which the options have the address and the token.
func On(t *testing.T, o client.Options, sections ...page.Section) *Console {
	t.Helper()
	c := &Console{t: t, mux: http.NewServeMux()}
	o.Transport, o.Within, o.RetryFirst = c, 20*time.Second, 24*time.Hour
	admin := check.Value(client.New(o))(t)
	renderer := check.Value(page.New(sections...))(t)
	for _, s := range sections {
		for _, route := range s.Routes {
			c.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
				call := page.Call{Request: r, Admin: admin, Person: Person, MayAct: !c.Viewer, CSRF: "the-csrf-token"}
				if v, err := route.Handle(r.Context(), call); err != nil {
					renderer.RenderError(w, call, err)
				} else {
					renderer.Render(w, call, v)
				}
			})
		}
	}
	return c
}

// RoundTrip makes a call of the API and keeps it. As console.adminUrl does, it serves the paths of admin only.
func (c *Console) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.Path, "/admin/v1/") {
		return nil, fmt.Errorf("%s %s is not admin's", r.Method, r.URL.Path)
	}
	one := callOf(r)
	if r.GetBody != nil {
		body, _ := r.GetBody()
		_ = json.NewDecoder(body).Decode(&one.Body)
	}
	c.mu.Lock()
	c.calls = append(c.calls, one)
	c.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

func callOf(r *http.Request) Call {
	return Call{Operation: r.Method + " " + r.URL.Path, Query: r.URL.Query()}
}

// serve answers a call of the API.
func (a Answers) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	one := callOf(r)
	answer, ok := a[one.Operation]
	if !ok {
		t.Errorf("the page calls %s, which the test does not answer", one.Operation)
		answer = &client.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND"}
	}
	if of, ok := answer.(func(Call) any); ok {
		answer = of(one)
	}
	status, media := http.StatusOK, "application/json"
	switch a := answer.(type) {
	case *client.Problem:
		status, media = a.Status, "application/problem+json"
	case Proposed:
		status, answer = http.StatusAccepted, client.Proposal(a)
		w.Header().Set("Location", "/admin/v1/proposals/"+a.ProposalID)
	case nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // so that texts arrive as the test has them
	_ = e.Encode(answer)   // the client may have left
}

// Get returns the page and the calls of the API that it made.
func (c *Console) Get(path string) (*httptest.ResponseRecorder, []Call) {
	return c.send(httptest.NewRequest(http.MethodGet, path, nil))
}

// Live returns the part of the page that the browser reads again. It fails the test if the part has no end.
func (c *Console) Live(path string) string {
	c.t.Helper()
	w, _ := c.Get(path)
	_, rest, _ := strings.Cut(w.Body.String(), `<div id="live">`)
	open := 1
	for end := range rest {
		if strings.HasPrefix(rest[end:], "<div") {
			open++
		} else if strings.HasPrefix(rest[end:], "</div>") {
			open--
		}
		if open == 0 {
			return rest[:end]
		}
	}
	c.t.Fatalf("%s: got no live part with an end, want one\n%s", path, w.Body)
	return ""
}

// Post sends a form and returns the answer and the calls of the API.
func (c *Console) Post(path string, form url.Values) (*httptest.ResponseRecorder, []Call) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return c.send(r)
}

func (c *Console) send(r *http.Request) (*httptest.ResponseRecorder, []Call) {
	c.mu.Lock()
	c.calls = nil
	c.mu.Unlock()
	if c.Context != nil {
		r = r.WithContext(c.Context)
	}
	w := httptest.NewRecorder()
	c.mux.ServeHTTP(w, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	return w, c.calls
}

// Shows gets the page, wants status 200, that number of calls of the API, and each text in it.
func (c *Console) Shows(path string, calls int, texts ...string) {
	c.t.Helper()
	w, made := c.Get(path)
	c.wants(path, w, http.StatusOK, made, calls, texts)
}

// Refuses sends the form, wants the status, that number of calls of the API, and each text in the page.
func (c *Console) Refuses(path string, form url.Values, status, calls int, texts ...string) {
	c.t.Helper()
	w, made := c.Post(path, form)
	c.wants(path, w, status, made, calls, texts)
}

// Lacks gets the page, or sends the form if there is one, and wants none of the texts in it.
func (c *Console) Lacks(path string, form url.Values, texts ...string) {
	c.t.Helper()
	ask := c.Get
	if form != nil {
		ask = func(path string) (*httptest.ResponseRecorder, []Call) { return c.Post(path, form) }
	}
	w, _ := ask(path)
	for _, text := range texts {
		if strings.Contains(w.Body.String(), text) {
			c.t.Errorf("%s: the page has %q, want it without:\n%s", path, text, w.Body)
		}
	}
}

// Does sends the form, wants a redirection to the path, and returns the last call of the API.
func (c *Console) Does(path string, form url.Values, calls int, to string) Call {
	c.t.Helper()
	w, made := c.Post(path, form)
	c.wants(path, w, http.StatusSeeOther, made, calls, nil)
	check.Equal(c.t, path+": Location", w.Header().Get("Location"), to)
	if len(made) == 0 {
		return Call{}
	}
	return made[len(made)-1]
}

func (c *Console) wants(path string, w *httptest.ResponseRecorder, status int, made []Call, calls int, texts []string) {
	c.t.Helper()
	if w.Code != status || len(made) != calls {
		c.t.Errorf("%s: got status %d with the calls %+v, want status %d with %d calls\n%s", path, w.Code, made, status, calls, w.Body)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			c.t.Errorf("%s: the page lacks %q:\n%s", path, text, w.Body)
		}
	}
}
