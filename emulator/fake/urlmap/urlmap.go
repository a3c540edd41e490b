// Package urlmap is the emulator's request routing. One listener is the external load balancer with its URL map
// for the public paths. The other is Cloud Run's frontend for the internal paths.
//
// Each service has a changing set of backends that are used in turn. As in production, a request goes to another backend only if no byte of it was sent to the first. If bytes were
// sent and the connection breaks, the effect is unknown and the answer is 502. (A GET can be sent again to the
// same backend over a new connection, as HTTP allows.)
package urlmap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/web"
)

// Route sends the requests that match a pattern to a service.
type Route struct {
	// Pattern is a pattern of [http.ServeMux]: an exact path or a prefix (ending in a slash), optionally
	// with wildcards and a method.
	Pattern string
	Service string
}

// Options are the routes of a map.
type Options struct {
	Public     []Route  // routes of the public listener; all other paths are NOT_FOUND
	Internal   []string // services at POST /internal/{service} of the internal listener; all other paths are NOT_FOUND
	PublicAddr string   // where to listen for public requests; "": a free port of 127.0.0.1

	// Around, if not nil, wraps the handler of public requests.
	Around func(http.Handler) http.Handler
}

// Map is a running URL map. Make one with [Start].
type Map struct {
	publicURL, internalURL string
	servers                []*http.Server
	services               map[string]*service // does not change after Start
	transport              *http.Transport
	serving                sync.WaitGroup
}

// Start listens for public and internal requests until [Map.Close]. No service has a backend yet. The error names
// the invalid address or pattern.
func Start(o Options) (_ *Map, err error) {
	m := &Map{services: map[string]*service{}, transport: newTransport()}
	public, internal, err := m.routes(o)
	if err != nil {
		return nil, err
	}
	if m.publicURL, err = m.listen(o.PublicAddr, public); err != nil {
		return nil, err
	}
	if m.internalURL, err = m.listen("", internal); err != nil {
		return nil, errors.Join(err, m.Close(context.Background()))
	}
	return m, nil
}

func (m *Map) routes(o Options) (public, internal http.Handler, err error) {
	defer func() { // the standard mux panics on an invalid pattern
		if v := recover(); v != nil {
			err = fmt.Errorf("route: %v", v)
		}
	}()
	publicMux, internalMux := web.NewMux(), web.NewMux()
	for _, r := range o.Public {
		publicMux.Handle(r.Pattern, m.proxy(r.Service))
	}
	for _, name := range o.Internal {
		internalMux.Handle("POST /internal/"+name, m.proxy(name))
	}
	public = publicMux
	if o.Around != nil {
		public = o.Around(publicMux)
	}
	return public, internalMux, nil
}

func (m *Map) listen(addr string, h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return "", fmt.Errorf("listen as load balancer: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	m.servers = append(m.servers, server)
	m.serving.Go(func() { _ = server.Serve(l) }) // ends with Close
	return "http://" + l.Addr().String(), nil
}

// PublicURL is the address of the public paths, without a slash at the end.
func (m *Map) PublicURL() string { return m.publicURL }

// InternalURL is the address of /internal/{service} for tasks and the scheduler.
func (m *Map) InternalURL() string { return m.internalURL }

// Close takes no new requests and waits for those in flight until ctx ends. It then cuts the rest and returns an
// error.
func (m *Map) Close(ctx context.Context) error {
	var errs []error
	for _, s := range m.servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close the load balancer: %w", err), s.Close())
		}
	}
	m.serving.Wait()
	m.transport.CloseIdleConnections()
	return errors.Join(errs...)
}

// Add adds a backend, as host:port, to the service's set, unless it is in it. A service without a route is an
// error.
func (m *Map) Add(service, addr string) error {
	s, ok := m.services[service]
	if !ok {
		return fmt.Errorf("add backend %s: no route leads to service %q", addr, service)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.backends, addr) {
		s.backends = append(slices.Clone(s.backends), addr) // turn returns the old slice
	}
	return nil
}

// Remove removes a backend from the service's set, if it is in it. Its requests in flight continue.
func (m *Map) Remove(service, addr string) {
	if s, ok := m.services[service]; ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.backends = slices.DeleteFunc(slices.Clone(s.backends), func(a string) bool { return a == addr })
	}
}

// Stats counts one service's requests since the start.
type Stats struct {
	Invocations int64 // requests that a backend answered with any status, or may have got
	InFlight    int64 // requests being served now
	Failovers   int64 // attempts without any byte sent, after which another backend was tried
	Broken      int64 // requests answered 502: the connection broke after bytes were sent
	Unserved    int64 // requests answered 503: no backend was reached
}

// Stats returns the counts of each service with a route.
func (m *Map) Stats() map[string]Stats {
	stats := make(map[string]Stats, len(m.services))
	for name, s := range m.services {
		stats[name] = Stats{
			Invocations: s.invocations.Load(), InFlight: s.inFlight.Load(), Failovers: s.failovers.Load(),
			Broken: s.broken.Load(), Unserved: s.unserved.Load(),
		}
	}
	return stats
}
