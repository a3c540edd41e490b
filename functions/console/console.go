// Package console serves the operators' console: pages for browsers that read and act by the API of the
// function admin. It has no rights. Each call of admin carries the token of the person who has
// signed in, and admin verifies that token and its own lists of operators and viewers.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/signin"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/web"
)

// Renderer draws pages. [page.New] makes one.
type Renderer interface {
	Render(w http.ResponseWriter, call page.Call, v page.View)
	RenderError(w http.ResponseWriter, call page.Call, err error)
	RenderPlain(w http.ResponseWriter, status int, title, text string)
}

// Options are the parts of a console.
type Options struct {
	Sections []page.Section
	Pages    Renderer
	Static   http.Handler // serves /console/static/ to everybody
	Way      signin.Way
	Sealer   *signin.Sealer // makes the tokens of forms

	Hosts     []string          // that are served, as browsers write them
	AdminURL  string            // of the function admin
	Transport http.RoundTripper // to admin, shared by all requests
	Operators []string          // who are shown forms, each with "email:" or "sub:" in front; admin has its own list
	Viewers   []string          // who are shown pages without forms

	Local bool // the local environment
	Log   *slog.Logger
}

const (
	root = "/console/"

	maxFormBytes = 64 << 10
	readWithin   = 15 * time.Second // one page with all its calls of admin
	actWithin    = 45 * time.Second // one act, which the client repeats while its outcome is unknown

	pagesAtOnce = 6 // of one person
	callsAtOnce = 5 // of admin by one page, so that a person has fewer than http.maxRequestsPerCaller
	busyFor     = 2 * time.Second
)

// New returns the handler of all paths under /console/. The error names a section's pattern that is wrong.
func New(o Options) (handler http.Handler, err error) {
	s := &server{Options: o, mux: http.NewServeMux(), atWork: web.NewCallers(pagesAtOnce, pagesAtOnce*maxFormBytes, maxFormBytes)}
	defer func() { // the standard mux panics on a malformed or repeated pattern
		if v := recover(); v != nil {
			err = fmt.Errorf("console: route: %v", v)
		}
	}()
	for pattern, h := range o.Way.Routes() {
		s.mux.Handle(pattern, h)
	}
	for _, section := range o.Sections {
		for _, route := range section.Routes {
			if _, path, ok := strings.Cut(route.Pattern, " "); !ok || !strings.HasPrefix(path, root) {
				return nil, fmt.Errorf("console: route %q: want a method and a path under %s", route.Pattern, root)
			}
			s.mux.Handle(route.Pattern, s.page(route))
		}
	}
	s.mux.Handle(root, s.page(page.Route{Handle: nothing}))
	if o.Static != nil {
		s.mux.Handle("GET "+root+"static/", o.Static)
	}
	return s, nil
}

// nothing is the answer at a path without a page.
func nothing(context.Context, page.Call) (page.View, error) {
	return page.View{}, refusal(http.StatusNotFound, "NOT_FOUND", "There is no such page.")
}

// refusal is an error that is drawn like one of admin's.
func refusal(status int, code, detail string) error {
	return &client.Problem{Status: status, Code: code, Title: http.StatusText(status), Detail: detail}
}

type server struct {
	Options
	mux    *http.ServeMux
	atWork *web.Callers // the pages of each person that are being made
}

// headers are those of each answer. The policy lets a page load this console's own files alone, and be framed
// nowhere.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
}

// ServeHTTP answers a request for the console's own host. It refuses a form that another site's page sends.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	r.Host = strings.ToLower(r.Host)
	switch {
	case !slices.Contains(s.Hosts, r.Host):
		s.Pages.RenderPlain(w, http.StatusForbidden, "Another host", "This console is not served at the address that the browser asked for. The setting console.hosts lists its addresses.")
		return
	case changes(r) && !fromOwnPage(r):
		s.Pages.RenderPlain(w, http.StatusForbidden, "Refused", "The request did not come from a page of this console. Nothing was changed.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	s.mux.ServeHTTP(w, r)
}

// changes reports whether the request may change something.
func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// fromOwnPage reports whether the browser says that a page of this console has sent the request. Under the
// referrer policy of our pages a browser hides the origin ("null") in its header, but not that the two are
// the same.
func fromOwnPage(r *http.Request) bool {
	own := signin.Origin(r.Host)
	sent := r.Header.Get("Origin")
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" && (sent == "" || sent == "null" || sent == own)
	}
	return sent == own
}

// page serves one page to people who are signed in.
func (s *server) page(route page.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), within(route, r))
		defer cancel()
		r, leave := s.atWork.Track(r.WithContext(ctx))
		defer leave()
		call, session, ok := s.call(w, r)
		if !ok {
			return
		}
		if s.atWork.Enter(r, call.Person) != nil { // other people are not affected
			w.Header().Set("Retry-After", strconv.Itoa(int(busyFor/time.Second)))
			s.Pages.RenderPlain(w, http.StatusTooManyRequests, "Too many pages at once",
				fmt.Sprintf("%d of your pages are being made at this moment, in other tabs or windows. Nothing was changed. Close the tabs that you do not need, wait %s, and load this page again.", pagesAtOnce, busyFor))
			return
		}
		view, err := s.answer(ctx, call, session, route)
		switch {
		case err != nil:
			s.logFailure(ctx, call, err)
			s.Pages.RenderError(w, call, err)
		case view.SeeOther != "":
			http.Redirect(w, r, view.SeeOther, http.StatusSeeOther)
		default:
			s.Pages.Render(w, call, view)
		}
	}
}

// fewAtOnce makes the further calls of one page wait.
type fewAtOnce struct {
	next   http.RoundTripper
	places chan struct{}
}

// RoundTrip implements [http.RoundTripper].
func (f fewAtOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case f.places <- struct{}{}:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	defer func() { <-f.places }()
	return f.next.RoundTrip(r)
}

// within is the time for the answer.
func within(route page.Route, r *http.Request) time.Duration {
	switch {
	case route.Within > 0:
		return route.Within
	case changes(r):
		return actWithin
	}
	return readWithin
}

// call returns the call of a person who may use the console, and the session that forms are bound to. It
// answers the request of any other, and returns false.
func (s *server) call(w http.ResponseWriter, r *http.Request) (_ page.Call, session string, ok bool) {
	person, err := s.Way.Person(r)
	switch {
	case errors.Is(err, signin.ErrSignedOut):
		s.toSignIn(w, r)
		return page.Call{}, "", false
	case err != nil:
		s.Log.WarnContext(r.Context(), "a person's token cannot be verified", "error", err.Error())
		s.Pages.RenderPlain(w, http.StatusServiceUnavailable, "Unavailable", "Your sign-in cannot be verified at the moment. Try again in a minute.")
		return page.Call{}, "", false
	}
	operator := s.listed(s.Operators, person)
	if !operator && !s.listed(s.Viewers, person) {
		s.Pages.RenderPlain(w, http.StatusForbidden, "No access",
			fmt.Sprintf("You are signed in as %s, who is neither an operator nor a viewer. The settings auth.operators and auth.viewers list who is.", nameOf(person)))
		return page.Call{}, "", false
	}
	admin, err := client.New(client.Options{
		URL: s.AdminURL, Transport: fewAtOnce{s.Transport, make(chan struct{}, callsAtOnce)}, Within: actWithin,
		Token: func(context.Context) (string, error) { return person.Assertion, nil },
	})
	if err != nil {
		s.Log.ErrorContext(r.Context(), "the client of admin cannot be made", "error", err.Error())
		s.Pages.RenderPlain(w, http.StatusServiceUnavailable, "Unavailable", "The console cannot call the function admin.")
		return page.Call{}, "", false
	}
	call := page.Call{Request: r, Admin: admin, Person: nameOf(person), MayAct: operator, CSRF: s.Sealer.FormToken(person.Session), Local: s.Local}
	return call, person.Session, true
}

// listed reports whether a list of the settings names the person.
func (s *server) listed(list []string, p signin.Person) bool {
	return p.Email != "" && slices.Contains(list, "email:"+p.Email) || p.Subject != "" && slices.Contains(list, "sub:"+p.Subject)
}

func nameOf(p signin.Person) string { return cmp.Or(p.Email, "sub:"+p.Subject) }

// toSignIn answers a request without a session. A page goes on after the sign-in, and a live part makes its page load
// again. A form is refused.
func (s *server) toSignIn(w http.ResponseWriter, r *http.Request) {
	switch {
	case changes(r):
		s.Pages.RenderPlain(w, http.StatusUnauthorized, "Not signed in", "Your session has ended. Nothing was changed. Open "+root+" to sign in.")
	case r.Header.Get("HX-Request") != "":
		w.Header().Set("HX-Refresh", "true")
		s.Pages.RenderPlain(w, http.StatusUnauthorized, "Not signed in", "Your session has ended.")
	default:
		http.Redirect(w, r, root+"sign-in?"+url.Values{"to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
	}
}

// answer checks what the person may do, and calls the page's handler.
func (s *server) answer(ctx context.Context, call page.Call, session string, route page.Route) (page.View, error) {
	if (route.Acts || changes(call.Request)) && !call.MayAct {
		return page.View{}, refusal(http.StatusForbidden, "READ_ONLY", "A viewer may only read. Nothing was changed: ask an operator.")
	}
	if changes(call.Request) {
		if err := s.checkForm(call, session); err != nil {
			return page.View{}, err
		}
	}
	view, err := route.Handle(ctx, call)
	if err == nil && view.SeeOther != "" && !strings.HasPrefix(view.SeeOther, root) {
		return page.View{}, fmt.Errorf("the page %s leads to %q, which is none of the console", route.Pattern, view.SeeOther)
	}
	return view, err
}

// checkForm reads the form and checks that a page of this session has made it.
func (s *server) checkForm(call page.Call, session string) error {
	err := call.ParseForm()
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusal(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", fmt.Sprintf("The form has more than %d bytes. Nothing was changed.", tooLong.Limit))
	}
	if err != nil {
		return refusal(http.StatusBadRequest, "INVALID_FORM", "The form cannot be read. Nothing was changed.")
	}
	if !s.Sealer.FormTokenIs(session, call.PostForm.Get("csrf")) {
		return refusal(http.StatusForbidden, "FORM_EXPIRED", "The form belongs to another session, or is older than a day. Nothing was changed: open the page again, and send its form.")
	}
	return nil
}

// logFailure logs an error that is no refusal of admin's.
func (s *server) logFailure(ctx context.Context, call page.Call, err error) {
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Status < http.StatusInternalServerError {
		return
	}
	s.Log.WarnContext(ctx, "a page of the console failed", "path", call.URL.Path, "error", err.Error())
}
