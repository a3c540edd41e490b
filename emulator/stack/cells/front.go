package cells

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/web"
)

// Prefix begins the path of every request. The cell's name follows, and then the path that a function gets.
const Prefix = "/cells/"

// front is the common load balancer. It knows the cells' names alone, and no account.
type front struct {
	server    *loopback.Server
	transport *http.Transport
	routes    map[string]*route // by the cell's name
}

// route leads to one cell, and counts its answers.
type route struct{ all, failed atomic.Int64 }

func startFront(cells []*Cell) *front {
	f := &front{transport: http.DefaultTransport.(*http.Transport).Clone(), routes: make(map[string]*route)}
	f.transport.MaxIdleConnsPerHost = 64
	mux := web.NewMux()
	for _, cell := range cells {
		f.routes[cell.Name] = new(route)
		proxy := f.routes[cell.Name].proxy(steps.Value(url.Parse(cell.URLMap.PublicURL())), f.transport)
		mux.Handle(Prefix+cell.Name+"/", http.StripPrefix(Prefix+cell.Name, proxy))
	}
	f.server = steps.Value(loopback.Serve("", mux))
	return f
}

// proxy passes each request on to the target.
func (r *route) proxy(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = target.Scheme, target.Host
			p.SetXForwarded()
		},
		Transport: transport,
		ModifyResponse: func(resp *http.Response) error {
			r.count(resp.StatusCode)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() == nil { // otherwise the caller left
				r.count(http.StatusServiceUnavailable)
			}
			web.Fail(w, req, web.UnavailableBecause(err, "the cell cannot be reached; try again"))
		},
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
}

func (r *route) count(status int) {
	r.all.Add(1)
	if status >= http.StatusInternalServerError {
		r.failed.Add(1)
	}
}

func (f *front) close() error {
	err := f.server.Close()
	f.transport.CloseIdleConnections()
	return err
}
