// Package urlmap is the emulator's stand-in for what routes requests to
// instances: the external load balancer with its URL map for the public paths,
// and, on a second listener, Cloud Run's own front for the internal ones. Behind
// it stand the services, each a changing set of backends that are taken in turn.
//
// Like the real ones it sends a request to another backend only if no byte of it
// was sent to the first. Where something was sent and the connection then broke,
// nobody can know what the backend did, and the answer is 502. (A GET may be
// sent again to the same backend over a fresh connection, as HTTP allows.)
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
	// Pattern is one of [http.ServeMux]: a path, exact or (with a slash at its
	// end) a prefix, with wildcards and a method where wanted.
	Pattern string
	Service string
}

// Options say what a map routes.
type Options struct {
	Public       []Route  // what the public listener knows; all else there is NOT_FOUND
	Internal     []string // the services at POST /internal/{service} of the internal listener; all else there is NOT_FOUND
	PublicAddr   string   // where to listen; "": a free port of 127.0.0.1
	InternalAddr string   // the same for the internal paths

	// Around, if not nil, is what public requests and their answers pass.
	Around func(http.Handler) http.Handler

	// Observe, if not nil, is called after each request that was routed to a
	// service, with the status answered and the time from the request's arrival
	// to the end of its response. Calls overlap.
	Observe func(service string, status int, took time.Duration)
}

// Map is a running URL map. Make one with [Start].
type Map struct {
	publicURL, internalURL string
	servers                []*http.Server
	services               map[string]*service // fixed after Start
	transport              *http.Transport
	observe                func(string, int, time.Duration)
	serving                sync.WaitGroup
}

// Start listens for public and internal requests; the caller ends that with
// [Map.Close]. No service has a backend yet. The error says which address or
// pattern is wrong.
func Start(o Options) (_ *Map, err error) {
	m := &Map{services: map[string]*service{}, transport: newTransport(), observe: o.Observe}
	public, internal, err := m.routes(o)
	if err != nil {
		return nil, err
	}
	if m.publicURL, err = m.listen(o.PublicAddr, public); err != nil {
		return nil, err
	}
	if m.internalURL, err = m.listen(o.InternalAddr, internal); err != nil {
		return nil, errors.Join(err, m.Close(context.Background()))
	}
	return m, nil
}

// routes makes the two listeners' handlers.
func (m *Map) routes(o Options) (public, internal http.Handler, err error) {
	defer func() { // the standard mux panics on a pattern that it cannot take
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

// PublicURL is where callers find the public paths, without a slash at the end.
func (m *Map) PublicURL() string { return m.publicURL }

// InternalURL is where tasks and the scheduler find /internal/{service}.
func (m *Map) InternalURL() string { return m.internalURL }

// Close takes no new requests, lets those in flight end until ctx does, and cuts
// off the rest, which is then the error.
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

// Add puts a backend, as host:port, into service's set. Twice is once. The error
// says that no route leads to such a service.
func (m *Map) Add(service, addr string) error {
	s, ok := m.services[service]
	if !ok {
		return fmt.Errorf("add backend %s: no route leads to service %q", addr, service)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.backends, addr) {
		s.backends = append(slices.Clone(s.backends), addr) // turn hands out the old one
	}
	return nil
}

// Remove takes a backend out of service's set; requests that it has go on. One
// that is not there is no error.
func (m *Map) Remove(service, addr string) {
	if s, ok := m.services[service]; ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.backends = slices.DeleteFunc(slices.Clone(s.backends), func(a string) bool { return a == addr })
	}
}

// Stats counts one service's requests since the start.
type Stats struct {
	Invocations int64 // requests that a backend answered, whatever the status, or may have got
	InFlight    int64 // requests being served now
	Failovers   int64 // attempts that reached nothing, so that another backend was tried
	Broken      int64 // requests answered 502, since the connection broke after something was sent
	Unserved    int64 // requests answered 503, since no backend could be reached
}

// Stats are the counts of each service that a route leads to.
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
