package cells

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/web"
)

// Prefix begins the path of every request. The cell's name follows, and then the path that a function gets.
const Prefix = "/cells/"

// startFront starts the common load balancer. It knows the cells' names alone, and no account.
func (c *Cells) startFront() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	c.OnClose(func() error { transport.CloseIdleConnections(); return nil })
	mux := web.NewMux()
	for _, cell := range c.cells {
		proxy := cell.proxy(steps.Value(url.Parse(cell.URLMap.PublicURL())), transport)
		mux.Handle(Prefix+cell.Name+"/", http.StripPrefix(Prefix+cell.Name, proxy))
	}
	c.front = steps.Value(loopback.Serve("", mux))
	c.OnClose(c.front.Close)
}

// proxy passes each request on to the target, and counts the answers.
func (cell *Cell) proxy(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = target.Scheme, target.Host
			p.SetXForwarded()
		},
		Transport: transport,
		ModifyResponse: func(resp *http.Response) error {
			cell.count(resp.StatusCode)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() == nil { // otherwise the caller left
				cell.count(http.StatusServiceUnavailable)
			}
			web.Fail(w, req, web.UnavailableBecause(err, "the cell cannot be reached; try again"))
		},
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
}

func (cell *Cell) count(status int) {
	cell.answers.Add(1)
	if status >= http.StatusInternalServerError {
		cell.failures.Add(1)
	}
}

// Answers returns how many answers of the cell the front has passed on, and how many of them had a status from 500 on.
func (cell *Cell) Answers() (all, failed int64) { return cell.answers.Load(), cell.failures.Load() }
