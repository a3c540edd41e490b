// Package loopback serves HTTP for the emulator's parts, mostly on a free port of 127.0.0.1.
package loopback

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a running HTTP server.
type Server struct {
	addr    string
	server  *http.Server
	stop    context.CancelFunc
	serving sync.WaitGroup
}

// Serve serves h at addr (host:port; "": a free port of 127.0.0.1) until [Server.Close].
func Serve(addr string, h http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	base, stop := context.WithCancel(context.Background())
	s := &Server{addr: listener.Addr().String(), stop: stop, server: &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return base },
	}}
	s.serving.Go(func() { _ = s.server.Serve(listener) }) // ends with Close
	return s, nil
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.addr }

// URL is the server's address, without a slash at the end.
func (s *Server) URL() string { return "http://" + s.addr }

// Close cuts every connection and cancels the contexts of requests. A second call does nothing.
func (s *Server) Close() error {
	s.stop()
	err := s.server.Close()
	s.serving.Wait()
	return err
}
