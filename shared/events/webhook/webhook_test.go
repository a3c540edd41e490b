package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	eventhook "github.com/fencepost/fencepost/shared/events/webhook"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// request is a request as an endpoint received it.
type request struct {
	header http.Header
	body   string
}

// endpoint is an endpoint with a secret path.
type endpoint struct {
	eventhook.Publisher
	mu  sync.Mutex
	got []request
	log []string
}

func start(t *testing.T, answer http.HandlerFunc, keys ...webhook.Key) *endpoint {
	t.Helper()
	r := new(endpoint)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, request{req.Header, string(body)})
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(s.Close)
	client := webhook.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	r.Publisher = eventhook.Publisher{Endpoint: webhook.Endpoint{URL: s.URL + "/hooks/T0PSECRET", Keys: keys, Timeout: 500 * time.Millisecond, Client: client},
		Log: func(_ context.Context, _ txmanager.Event, err error) { r.log = append(r.log, err.Error()) }}
	return r
}

var one = []txmanager.Event{{TxID: "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", Type: txmanager.TxSubmitted, Sequence: 2, Body: []byte(`{"type" : "TxSubmitted", "a":"<é>"}`)}}

// A repeated delivery has the same id and bytes, and new signatures of each key. An endpoint can
// verify either.
func TestAttemptsAreSigned(t *testing.T) {
	t.Parallel()
	before := check.Value(webhook.ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))(t)
	after := check.Value(webhook.ParseKey("whsec_" + strings.Repeat("QUJD", 8)))(t)
	r := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, before, after)
	for range 2 {
		if n, err := r.Publish(t.Context(), one); n != 0 || !errors.Is(err, txmanager.ErrNoAnswer) {
			t.Fatalf("answered 503: got %d, %v; want none accepted", n, err)
		}
	}
	if len(r.got) != 2 {
		t.Fatalf("requests: got %d, want 2", len(r.got))
	}
	for _, g := range r.got {
		for _, k := range []webhook.Key{before, after} {
			id, err := webhook.Verify(g.header, time.Now(), []byte(g.body), k)
			if want := one[0].TxID + "-TxSubmitted-2"; id != want || err != nil || g.body != string(one[0].Body) {
				t.Errorf("got %q, %s, %v; want %s with the event's bytes", id, g.body, err, want)
			}
		}
	}
}

// Only 2xx accepts an event. Redirects are not followed, the time-out holds, and a long answer is
// not read to its end. No log contains the URL, whose path may be secret.
func TestOnly2xxAcceptsAnEvent(t *testing.T) {
	t.Parallel()
	elsewhere := start(t, func(http.ResponseWriter, *http.Request) {})
	endless, written := []byte(strings.Repeat("x", 64<<10)), new(atomic.Int64)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		taken  int
		silent bool
	}{
		"200":         {func(http.ResponseWriter, *http.Request) {}, 1, false},
		"301":         {http.RedirectHandler(elsewhere.URL, http.StatusMovedPermanently).ServeHTTP, 0, false},
		"307":         {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP, 0, false},
		"410":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, 0, false},
		"429":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, 0, true},
		"hang":        {func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }, 0, true},
		"shut":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, true},
		"huge header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, 0, true},
		"huge": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				n, err := w.Write(endless)
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		}, 1, false},
	} {
		r := start(t, c.answer)
		began := time.Now()
		n, err := r.Publish(t.Context(), one)
		if n != c.taken || (err == nil) != (n == 1) || errors.Is(err, txmanager.ErrNoAnswer) != c.silent {
			t.Errorf("%s: got %d, %v; want %d accepted, no answer %t", name, n, err, c.taken, c.silent)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: got an end after %v, want one by the time-out", name, took)
		}
		if err != nil && strings.Contains(err.Error(), "T0PSECRET") || strings.Contains(strings.Join(r.log, " "), "T0PSECRET") {
			t.Errorf("%s: got %v, and in the log %q; want nothing of the address's path", name, err, r.log)
		}
	}
	if got := written.Load(); got > 32<<20 { // more can be under way when the client stops reading
		t.Errorf("of the answer without end: got %d bytes, want few", got)
	}
	check.Equal(t, "where redirects lead", len(elsewhere.got), 0)
}
