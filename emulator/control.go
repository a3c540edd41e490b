package main

import (
	"encoding/json"
	"net/http"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/loopback"
)

// serveControl serves GET /info on its own port.
func serveControl(s *stack.Stack, addr string) (*loopback.Server, error) {
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
	return loopback.Serve(addr, mux)
}
