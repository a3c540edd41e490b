package telemetry

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// metadataServer replaces the platform's metadata server; its client reaches nothing else.
func metadataServer(t *testing.T, answer http.HandlerFunc) *http.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}}
	t.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	return &http.Client{Transport: transport}
}

// On Cloud Run the node has the metadata server's instance id.
func TestNodeIDOnCloudRun(t *testing.T) {
	t.Parallel()
	client := metadataServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/computeMetadata/v1/instance/id" || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("00f46b92\n"))
	})
	check.Equal(t, "id", instanceID(t.Context(), client), "00f46b92")
}

// A metadata server that does not answer, refuses or has no id costs about a second at most, and the
// node still has a unique name.
func TestNodeIDWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"silent":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"failing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"refuses": http.NotFound,
		"empty":   func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := metadataServer(t, answer)
			limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if got := instanceID(limit, client); len(got) < 20 {
				t.Errorf("got %q, want a random name", got)
			}
			// More than one second for a slow machine, and below the limit.
			if limit.Err() != nil {
				t.Error("got no name within 20 s, want one within 1 s")
			}
		})
	}
}

// Outside the platform each process has a unique name.
func TestNodeIDIsRandomOffCloudRun(t *testing.T) {
	t.Parallel()
	if a, b := NodeID(t.Context(), false), NodeID(t.Context(), false); a == b || len(a) < 20 {
		t.Errorf("got %q and %q, want two random names", a, b)
	}
}
