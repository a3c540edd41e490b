package console_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions/console"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/signin"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// plain draws pages as text.
type plain struct{}

func (plain) Render(w http.ResponseWriter, c page.Call, v page.View) {
	plain{}.RenderPlain(w, max(page.StatusOf(v.Problem), 200), v.Title, fmt.Sprint(v.Data))
}

func (plain) RenderError(w http.ResponseWriter, _ page.Call, err error) {
	status, text := http.StatusBadGateway, "other"
	if p, ok := errors.AsType[*client.Problem](err); ok {
		status, text = p.Status, p.Code
	}
	plain{}.RenderPlain(w, status, "error", text)
}

func (plain) RenderPlain(w http.ResponseWriter, status int, title, text string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%s: %s", title, text)
}

// header is a way in which a header names the person.
type header struct{}

func (header) Person(r *http.Request) (signin.Person, error) {
	switch name := r.Header.Get("Person"); name {
	case "":
		return signin.Person{}, signin.ErrSignedOut
	case "unknown":
		return signin.Person{}, errors.New("the issuer's keys are unavailable")
	default:
		return signin.Person{Email: name, Assertion: "token of " + name, Session: "session of " + name}, nil
	}
}

func (header) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"GET /console/sign-in": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "sign in to "+r.URL.Query().Get("to"))
	}}
}

var key = base64.StdEncoding.EncodeToString(make([]byte, 32))

// site is a console with a page that calls admin, an act, and an admin that answers with the call's token.
type site struct {
	*httptest.Server
	sealer *signin.Sealer
	acted  atomic.Int32

	begun   chan struct{} // the page /console/slow was begun
	release chan struct{} // it ends
}

func serve(t *testing.T) *site {
	t.Helper()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"submitter": %q}`, r.Header.Get("Authorization"))
	}))
	t.Cleanup(admin.Close)
	sealer := check.Value(signin.NewSealer([]string{key}))(t)
	s := &site{sealer: sealer, begun: make(chan struct{}, 100), release: make(chan struct{})}
	act := func(_ context.Context, c page.Call) (page.View, error) {
		if c.Method == http.MethodPost {
			s.acted.Add(1)
			return page.View{SeeOther: "/console/things/" + c.PostForm.Get("reason")}, nil
		}
		return page.View{Title: "form", Data: c.CSRF}, nil
	}
	s.Server = httptest.NewUnstartedServer(nil)
	host := s.Listener.Addr().String()
	h, err := console.New(console.Options{
		Sections: []page.Section{{Routes: []page.Route{
			{Pattern: "GET /console/things/{thing}", Handle: func(ctx context.Context, c page.Call) (page.View, error) {
				got, err := c.Admin.Submitter(ctx, c.PathValue("thing"))
				return page.View{Title: c.Person, Data: fmt.Sprint(got.Submitter, " ", c.MayAct, " ", c.Local)}, err
			}},
			{Pattern: "GET /console/things/{thing}/act", Acts: true, Handle: act},
			{Pattern: "POST /console/things/{thing}/act", Acts: true, Handle: act},
			{Pattern: "GET /console/time", Handle: timeLeft},
			{Pattern: "GET /console/slow", Handle: func(context.Context, page.Call) (page.View, error) {
				s.begun <- struct{}{}
				<-s.release
				return page.View{Title: "done"}, nil
			}},
			{Pattern: "GET /console/longer", Handle: timeLeft, Within: 50 * time.Second},
			{Pattern: "GET /console/away", Handle: func(context.Context, page.Call) (page.View, error) {
				return page.View{SeeOther: "https://attacker.example/console/"}, nil
			}},
		}}},
		Pages: plain{}, Way: header{}, Sealer: sealer, Hosts: []string{host}, AdminURL: admin.URL, Transport: http.DefaultTransport,
		Static:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "public") }),
		Operators: []string{"email:ann@x.example"}, Viewers: []string{"email:eve@x.example"}, Log: slog.New(slog.DiscardHandler),
	})
	check.OK(t)(err)
	s.Config.Handler = h
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// ask makes a request with the headers, and follows no redirect. A form is posted.
func (s *site) ask(t *testing.T, method, path string, headers map[string]string, form string) (status int, body string, header http.Header) {
	t.Helper()
	r := check.Value(http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(form)))(t)
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range headers {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	resp := check.Value(http.DefaultTransport.RoundTrip(r))(t)
	defer resp.Body.Close()
	text := check.Value(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(text), resp.Header
}

func as(name string, more ...string) map[string]string {
	h := map[string]string{"Person": name}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// A page calls admin with the token of the person who asks, and not as itself.
func TestPagesCallAdminAsThePerson(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, want := range map[string]string{
		"ann@x.example": "200 ann@x.example: Bearer token of ann@x.example true false",
		"eve@x.example": "200 eve@x.example: Bearer token of eve@x.example false false",
		"bob@x.example": "403 No access: You are signed in as bob@x.example, who is neither an operator nor a viewer. The settings auth.operators and auth.viewers list who is.",
		"unknown":       "503 Unavailable: Your sign-in cannot be verified at the moment. Try again in a minute.",
	} {
		status, body, _ := s.ask(t, "GET", "/console/things/a", as(name), "")
		check.Equal(t, name, fmt.Sprint(status, " ", body), want)
	}
}

// Without a session a page leads to the sign-in and back, a live part makes its page load again, and a form is
// refused.
func TestNobodyIsLedToTheSignIn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	status, _, header := s.ask(t, "GET", "/console/things/a?x=1&y=2", nil, "")
	check.Equal(t, "a page", fmt.Sprint(status, " ", header.Get("Location")), "303 /console/sign-in?to="+url.QueryEscape("/console/things/a?x=1&y=2"))
	status, _, header = s.ask(t, "GET", "/console/things/a", map[string]string{"HX-Request": "true"}, "")
	check.Equal(t, "a live part", fmt.Sprint(status, " ", header.Get("HX-Refresh")), "401 true")
	status, _, _ = s.ask(t, "POST", "/console/things/a/act", map[string]string{"Origin": s.URL}, "reason=r")
	check.Equal(t, "a form", status, 401)
	status, body, _ := s.ask(t, "GET", "/console/sign-in?to=x", nil, "")
	check.Equal(t, "the sign-in", fmt.Sprint(status, " ", body), "200 sign in to x")
}

// Each answer has the headers that keep a browser from running, loading, framing or keeping anything else.
func TestEachAnswerHasTheHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t)
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
	}
	for path, headers := range map[string]map[string]string{
		"/console/things/a": as("ann@x.example"), "/console/": as("ann@x.example"), "/console/sign-in": nil, "/console/things/b": nil,
		"/console/things/c": {"Host": "attacker.example"}, "/console/things/d": as("bob@x.example"), "/console/static/x": nil,
	} {
		_, _, got := s.ask(t, "GET", path, headers, "")
		expected := maps.Clone(want)
		if path == "/console/static/x" {
			expected["Cache-Control"] = "public"
		}
		for name, value := range expected {
			check.Equal(t, path+": "+name, got.Get(name), value)
		}
	}
}

// A request for another host is refused, also one whose name leads to this machine.
func TestOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, host := range []string{"attacker.example", "localhost:1", "attacker.example:80", s.Listener.Addr().String() + ".attacker.example"} {
		for _, path := range []string{"/console/things/a", "/console/sign-in", "/console/static/x"} {
			status, _, _ := s.ask(t, "GET", path, as("ann@x.example", "Host", host), "")
			check.Equal(t, host+path, status, 403)
		}
	}
}

// An act needs the session's form token, and a browser that says that a page of this console sent it.
func TestFormsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ann := s.sealer.FormToken("session of ann@x.example")
	own := map[string]string{"Origin": s.URL}
	for name, c := range map[string]struct {
		person  string
		headers map[string]string
		form    string
		want    string
	}{
		"its own":                            {"ann@x.example", own, "reason=r&csrf=" + ann, "303 /console/things/r"},
		"its own, by a browser's metadata":   {"ann@x.example", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "null"}, "reason=r&csrf=" + ann, "303 /console/things/r"},
		"without a token":                    {"ann@x.example", own, "reason=r", "403 FORM_EXPIRED"},
		"with another session's token":       {"ann@x.example", own, "reason=r&csrf=" + s.sealer.FormToken("session of eve@x.example"), "403 FORM_EXPIRED"},
		"with a part of the token":           {"ann@x.example", own, "reason=r&csrf=" + ann[:20], "403 FORM_EXPIRED"},
		"a token in the address alone":       {"ann@x.example", own, "reason=r", "403 FORM_EXPIRED"},
		"from another site":                  {"ann@x.example", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://attacker.example"}, "reason=r&csrf=" + ann, "403 Refused"},
		"from another site, by origin alone": {"ann@x.example", map[string]string{"Origin": "https://attacker.example"}, "reason=r&csrf=" + ann, "403 Refused"},
		"from another host of the site":      {"ann@x.example", map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "https://other.x.example"}, "reason=r&csrf=" + ann, "403 Refused"},
		"from another port":                  {"ann@x.example", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:1"}, "reason=r&csrf=" + ann, "403 Refused"},
		"from a page without an origin":      {"ann@x.example", map[string]string{"Origin": "null"}, "reason=r&csrf=" + ann, "403 Refused"},
		"without both":                       {"ann@x.example", nil, "reason=r&csrf=" + ann, "403 Refused"},
		"of a viewer":                        {"eve@x.example", own, "reason=r&csrf=" + s.sealer.FormToken("session of eve@x.example"), "403 READ_ONLY"},
		"too long":                           {"ann@x.example", own, "csrf=" + ann + "&reason=" + strings.Repeat("r", 64<<10), "413 BODY_TOO_LARGE"},
		"that is no form":                    {"ann@x.example", own, "csrf=%zz", "400 INVALID_FORM"},
	} {
		path, before := "/console/things/a/act", s.acted.Load()
		if name == "a token in the address alone" {
			path += "?csrf=" + ann
		}
		headers := as(c.person)
		maps.Copy(headers, c.headers)
		status, body, header := s.ask(t, "POST", path, headers, c.form)
		got := fmt.Sprint(status, " ", header.Get("Location")+strings.TrimPrefix(body, "error: "))
		if status != 303 {
			got, _, _ = strings.Cut(got, ":")
		}
		check.Equal(t, name, got, c.want)
		check.Equal(t, name+": acts", s.acted.Load()-before, map[bool]int32{true: 1}[status == 303])
	}
	status, body, _ := s.ask(t, "GET", "/console/things/a/act", as("eve@x.example"), "")
	check.Equal(t, "a viewer's form", fmt.Sprint(status, " ", body), "403 error: READ_ONLY")
	status, body, _ = s.ask(t, "GET", "/console/things/a/act", as("ann@x.example"), "")
	check.Equal(t, "the form's token", fmt.Sprint(status, " ", body), "200 form: "+ann)
}

// timeLeft is a page that says whether it has more than 20 s.
func timeLeft(ctx context.Context, _ page.Call) (page.View, error) {
	end, _ := ctx.Deadline()
	return page.View{Title: fmt.Sprint(time.Until(end) > 20*time.Second)}, nil
}

// A page has 15 s, or the time of its route.
func TestRoutesHaveTheirTime(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for path, want := range map[string]string{"/console/time": "false", "/console/longer": "true"} {
		_, body, _ := s.ask(t, "GET", path, as("ann@x.example"), "")
		got, _, _ := strings.Cut(body, ":")
		check.Equal(t, path+" has more than 20 s", got, want)
	}
}

// A path without a page is a page that says so, and no page leads away from the console.
func TestNoPageLeadsElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	status, body, _ := s.ask(t, "GET", "/console/none", as("ann@x.example"), "")
	check.Equal(t, "no page", fmt.Sprint(status, " ", body), "404 error: NOT_FOUND")
	status, body, header := s.ask(t, "GET", "/console/away", as("ann@x.example"), "")
	check.Equal(t, "a page that leads away", fmt.Sprint(status, " ", body, header.Get("Location")), "502 error: other")
}

// A section's pattern outside the console, or one that is there twice, ends the start.
func TestNewRefusesPatterns(t *testing.T) {
	t.Parallel()
	for _, patterns := range [][]string{{"GET /admin/v1/x"}, {"/console/x"}, {"GET /console/x", "GET /console/x"}, {"GET /console/{x"}} {
		var routes []page.Route
		for _, pattern := range patterns {
			routes = append(routes, page.Route{Pattern: pattern})
		}
		if _, err := console.New(console.Options{Way: header{}, Pages: plain{}, Sections: []page.Section{{Routes: routes}}}); err == nil {
			t.Errorf("%q: got no error, want one", patterns)
		}
	}
}

// One person's tabs take a few places only: a further page is refused until one of them ends. Others read on.
func TestOnePersonDoesNotTakeAllPlaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const places = 6
	var statuses [places]int
	var all sync.WaitGroup
	for i := range places {
		all.Go(func() {
			statuses[i], _, _ = s.ask(t, "GET", "/console/slow", map[string]string{"Person": "ann@x.example"}, "")
		})
	}
	for range places {
		<-s.begun
	}
	for name, c := range map[string]struct {
		person, path string
		want         int
	}{
		"one more": {"ann@x.example", "/console/things/a", 429}, "another person": {"eve@x.example", "/console/things/a", 200}, "a static file": {"ann@x.example", "/console/static/a", 200},
	} {
		status, body, header := s.ask(t, "GET", c.path, map[string]string{"Person": c.person}, "")
		check.Equal(t, name, status, c.want)
		if c.want == 429 && (header.Get("Retry-After") != "2" || !strings.Contains(body, "Nothing was changed. Close the tabs")) {
			t.Errorf("%s: got Retry-After %q and %q, want 2 and what to do", name, header.Get("Retry-After"), body)
		}
	}
	close(s.release)
	all.Wait()
	check.Equal(t, "the pages of the tabs", statuses, [places]int{200, 200, 200, 200, 200, 200})
	status, _, _ := s.ask(t, "GET", "/console/things/a", map[string]string{"Person": "ann@x.example"}, "")
	check.Equal(t, "afterwards", status, 200)
}
