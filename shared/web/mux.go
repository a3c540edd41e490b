package web

import (
	"context"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/shared/buildinfo"
)

// Mux is an [http.ServeMux] with its patterns, whose own refusals are problems: NOT_FOUND if no path
// matches, and METHOD_NOT_ALLOWED with the Allow header if the path matches for other methods. Create
// it with [NewMux].
type Mux struct {
	mux      *http.ServeMux
	patterns []string
}

// NewMux returns a mux without patterns.
func NewMux() *Mux { return &Mux{mux: http.NewServeMux()} }

// HandleFunc adds a pattern as [http.ServeMux.HandleFunc] does. Like it, it panics on a malformed or
// conflicting pattern.
func (m *Mux) HandleFunc(pattern string, handler http.HandlerFunc) {
	m.Handle(pattern, handler)
}

// Handle adds a pattern as [http.ServeMux.Handle] does.
func (m *Mux) Handle(pattern string, handler http.Handler) {
	m.mux.Handle(pattern, handler)
	m.patterns = append(m.patterns, pattern)
}

// Patterns returns the added patterns, in order.
func (m *Mux) Patterns() []string { return slices.Clone(m.patterns) }

// ServeHTTP passes the request to the handler of the best match.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if refusal, pattern := m.mux.Handler(r); pattern == "" {
		refuse(w, r, refusal)
		return
	}
	m.mux.ServeHTTP(w, r)
}

// refuse writes as a problem what the standard mux would refuse in plain text.
func refuse(w http.ResponseWriter, r *http.Request, refusal http.Handler) {
	seen := headOnly{header: http.Header{}}
	refusal.ServeHTTP(&seen, r)
	if seen.status != http.StatusMethodNotAllowed {
		Fail(w, r, &Problem{Code: NotFound, Detail: "there is nothing at this path", nowhere: true})
		return
	}
	allow := seen.header.Get("Allow")
	p := NewProblem(MethodNotAllowed, "%s is not allowed here; allowed: %s", clip(r.Method), allow)
	p.Header = http.Header{"Allow": {allow}}
	Fail(w, r, p)
}

// headOnly keeps a response's status and header and drops its body.
type headOnly struct {
	header http.Header
	status int
}

func (h *headOnly) Header() http.Header         { return h.header }
func (h *headOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h *headOnly) WriteHeader(status int)      { h.status = status }

// HandleHealth adds GET /healthz, which answers 200 as long as the process serves, and GET /readyz,
// which answers 200 if ready returns nil and UNAVAILABLE otherwise. Any caller can ask, so ready is a
// [Ready].
func (m *Mux) HandleHealth(ready func(context.Context) error) {
	m.handleCheck("GET /healthz", func(context.Context) error { return nil })
	m.handleCheck("GET /readyz", ready)
}

// HandleStartup adds GET /startupz, which answers 200 if started, a [Started], returns nil and
// UNAVAILABLE otherwise.
func (m *Mux) HandleStartup(started func(context.Context) error) {
	m.handleCheck("GET /startupz", started)
}

func (m *Mux) handleCheck(pattern string, passes func(context.Context) error) {
	m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := passes(r.Context()); err != nil {
			Fail(w, r, UnavailableBecause(err, "a part that this service needs is unavailable"))
			return
		}
		Reply(w, r, http.StatusOK, map[string]string{"status": "ok"})
	})
}

// HandleVersion adds GET /version, which answers with the build of the program.
func (m *Mux) HandleVersion() {
	m.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) {
		Reply(w, r, http.StatusOK, buildinfo.Read())
	})
}
