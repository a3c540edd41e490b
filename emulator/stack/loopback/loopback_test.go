package loopback_test

import (
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/shared/check"
)

// Close cancels the request in progress and ends serving. A second Close does nothing. An address that cannot be listened on is an error.
func TestCloseEndsRequests(t *testing.T) {
	t.Parallel()
	begun, cancelled := make(chan struct{}), make(chan struct{})
	s, err := loopback.Serve("", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(cancelled)
	}))
	check.OK(t)(err)
	get := func() error {
		answer, err := http.Get(s.URL())
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	go func() { _ = get() }()
	<-begun
	for range 2 {
		check.OK(t)(s.Close())
	}
	<-cancelled
	if get() == nil {
		t.Error("request after Close: got an answer, want an error")
	}
	if _, err := loopback.Serve("127.0.0.1:none", http.NotFoundHandler()); err == nil {
		t.Error("serve at 127.0.0.1:none: got no error")
	}
}
