package cloudtasks

import (
	"net/http"
	"time"
)

// ShortenDeadline gives a waiting task a dispatch deadline below the 15 s the API
// takes, so that a test need not wait that long.
func (s *Server) ShortenDeadline(name string, d time.Duration) error {
	return s.withTask(name, func(_ *queue, t *task) { t.deadline = d })
}

// SendBy makes the transport send the tasks. It must be called before the first.
func (s *Server) SendBy(transport http.RoundTripper) { s.client.Transport = transport }
