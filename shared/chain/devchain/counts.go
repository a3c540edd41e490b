package devchain

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// counts counts the clients' calls of each method.
type counts struct {
	mu      sync.Mutex
	methods map[string]uint64
}

// middleware counts each request before it is handled, so that it is counted when the client has its answer.
func (c *counts) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		c.add(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func (c *counts) add(body []byte) {
	var calls []struct{ Method string }
	if json.Unmarshal(body, &calls) != nil { // it is no batch
		calls = make([]struct{ Method string }, 1)
		_ = json.Unmarshal(body, &calls[0]) // the node will report an error
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.methods == nil {
		c.methods = map[string]uint64{}
	}
	for _, call := range calls {
		c.methods[call.Method]++
	}
}

func (c *counts) of(method string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.methods[method]
}
