package main

import (
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
)

// control serves GET /info on its own port.
type control struct {
	server   http.Server
	listener net.Listener
}

func serveControl(s *stack.Stack, addr string) (*control, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.Info(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(info) // the client may have left
	})
	c := &control{listener: listener, server: http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go c.server.Serve(listener)
	return c, nil
}

// Addr is its address, as host:port.
func (c *control) Addr() string { return c.listener.Addr().String() }

// Close ends serving.
func (c *control) Close() error { return c.server.Close() }
