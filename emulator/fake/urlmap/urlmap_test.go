package urlmap_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/urlmap"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/porttest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o urlmap.Options) *urlmap.Map {
	t.Helper()
	o.Public = append(o.Public, urlmap.Route{Pattern: "POST /api/v1/tx", Service: "create"},
		urlmap.Route{Pattern: "GET /api/v1/tx/", Service: "query"})
	o.Internal = []string{"advance"}
	m := check.Value(urlmap.Start(o))(t)
	t.Cleanup(func() {
		check.OK(t)(m.Close(context.Background()))
	})
	return m
}

// backend answers with its name, the path and the body.
func backend(t *testing.T, m *urlmap.Map, service, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, name+" "+r.URL.Path+" "+string(body))
	}))
	t.Cleanup(s.Close)
	return add(t, m, service, s.Listener.Addr().String())
}

func add(t *testing.T, m *urlmap.Map, service, addr string) string {
	t.Helper()
	check.OK(t)(m.Add(service, addr))
	return addr
}

// breaking returns the address of a backend that breaks connections. It answers the first good requests of each
// connection, and cuts it after the head of the next one. It sends a value to got for every request.
func breaking(t *testing.T, good int, got chan<- struct{}) string {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			cut := context.AfterFunc(ctx, func() { conn.Close() })
			r := bufio.NewReader(conn)
			for range good {
				answerOne(conn, r, got)
			}
			if _, err := http.ReadRequest(r); err == nil {
				got <- struct{}{}
			}
			conn.Close()
			cut()
		}
	})
	t.Cleanup(func() { l.Close(); stop(); serving.Wait() })
	return l.Addr().String()
}

func answerOne(conn net.Conn, r *bufio.Reader, got chan<- struct{}) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	got <- struct{}{}
	_, _ = io.Copy(io.Discard, req.Body)
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

type answer struct {
	status int
	text   string
	code   any // the problem's
}

func ask(t *testing.T, method, url, body string) answer {
	t.Helper()
	req := check.Value(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	req.Header.Set("Idempotency-Key", "k")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp := check.Value(client.Do(req))(t)
	defer resp.Body.Close()
	text := check.Value(io.ReadAll(resp.Body))(t)
	a := answer{status: resp.StatusCode, text: string(text)}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var p map[string]any
		check.OK(t)(json.Unmarshal(text, &p))
		a.code, a.text = p["code"], ""
	}
	return a
}

func TestEachListenerKnowsItsOwnPathsOnly(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	for _, service := range []string{"create", "query", "advance"} {
		backend(t, m, service, service)
	}
	for _, tc := range []struct {
		method, url string
		want        answer
	}{
		{"POST", m.PublicURL() + "/api/v1/tx", answer{200, "create /api/v1/tx b", nil}},
		{"GET", m.PublicURL() + "/api/v1/tx/t1", answer{200, "query /api/v1/tx/t1 b", nil}},
		{"POST", m.PublicURL() + "/internal/advance", answer{404, "", "NOT_FOUND"}},
		{"GET", m.PublicURL() + "/", answer{404, "", "NOT_FOUND"}},
		{"DELETE", m.PublicURL() + "/api/v1/tx", answer{405, "", "METHOD_NOT_ALLOWED"}},
		{"POST", m.InternalURL() + "/internal/advance", answer{200, "advance /internal/advance b", nil}},
		{"POST", m.InternalURL() + "/internal/create", answer{404, "", "NOT_FOUND"}},
		{"POST", m.InternalURL() + "/api/v1/tx", answer{404, "", "NOT_FOUND"}},
	} {
		check.Equal(t, fmt.Sprintf("%s %s", tc.method, tc.url), ask(t, tc.method, tc.url, "b"), tc.want)
	}
}

func TestBackendsTakeTurnsAndComeAndGo(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	a := backend(t, m, "create", "a")
	backend(t, m, "create", "b")
	count := func() map[string]int {
		got := map[string]int{}
		for range 6 {
			got[ask(t, "POST", m.PublicURL()+"/api/v1/tx", "").text[:1]]++
		}
		return got
	}
	check.Same(t, "requests by backend", count(), map[string]int{"a": 3, "b": 3})
	m.Remove("create", a)
	check.Same(t, "requests by backend after one went", count(), map[string]int{"b": 6})
	check.Equal(t, "answer", m.Stats()["create"], (urlmap.Stats{Invocations: 12}))
	if err := m.Add("nobody", a); err == nil {
		t.Error("got no error for a service without a route, want one")
	}
}

func TestRefusedConnectionGoesToAnotherBackendWithTheBody(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	add(t, m, "create", porttest.Refused(t))
	backend(t, m, "create", "alive")
	for range 2 {
		check.Equal(t, "answer", ask(t, "POST", m.PublicURL()+"/api/v1/tx", "body"), (answer{200, "alive /api/v1/tx body", nil}))
	}
	check.Equal(t, "answer", m.Stats()["create"], (urlmap.Stats{Invocations: 2, Failovers: 1}))
}

func TestARequestThatWasSentIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	got := make(chan struct{}, 10)
	add(t, m, "create", breaking(t, 0, got))
	add(t, m, "create", breaking(t, 0, got))
	check.Equal(t, "answer", ask(t, "POST", m.PublicURL()+"/api/v1/tx", "body"), (answer{502, "", "UNAVAILABLE"}))
	check.Equal(t, "backends with the request", len(got), 1)
	check.Equal(t, "answer", m.Stats()["create"], (urlmap.Stats{Invocations: 1, Broken: 1}))
}

func TestAPostIsSentOnceOverAKeptConnectionWhateverItsHeaders(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	got := make(chan struct{}, 10)
	add(t, m, "create", breaking(t, 1, got))
	for _, want := range []int{200, 502} {
		check.Equal(t, "answer", ask(t, "POST", m.PublicURL()+"/api/v1/tx", "body").status, want)
	}
	check.Equal(t, "requests at the backend", len(got), 2)
}

func TestNoBackendIsUnavailable(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	want := answer{503, "", "UNAVAILABLE"}
	check.Equal(t, "without a backend", ask(t, "POST", m.PublicURL()+"/api/v1/tx", "b"), want)
	add(t, m, "create", porttest.Refused(t))
	check.Equal(t, "with one that refuses", ask(t, "POST", m.PublicURL()+"/api/v1/tx", "b"), want)
	check.Equal(t, "answer", m.Stats()["create"], (urlmap.Stats{Unserved: 2}))
}

func TestRequestsInFlightAreCounted(t *testing.T) {
	t.Parallel()
	m := start(t, urlmap.Options{})
	in, out := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(in)
		<-out
	}))
	defer s.Close()
	add(t, m, "create", s.Listener.Addr().String())
	var asking sync.WaitGroup
	asking.Go(func() { ask(t, "POST", m.PublicURL()+"/api/v1/tx", "") })
	<-in
	check.Equal(t, "in flight", m.Stats()["create"].InFlight, 1)
	close(out)
	asking.Wait()
	check.Equal(t, "in flight after the answer", m.Stats()["create"].InFlight, 0)
}

func TestAWrongPatternIsAnError(t *testing.T) {
	t.Parallel()
	if m, err := urlmap.Start(urlmap.Options{Public: []urlmap.Route{{Pattern: "not a path", Service: "x"}}}); err == nil {
		t.Errorf("got %v, want an error", m)
	}
}

func BenchmarkProxy(b *testing.B) {
	m := check.Value(urlmap.Start(urlmap.Options{Public: []urlmap.Route{{Pattern: "POST /x", Service: "x"}}}))(b)
	defer m.Close(context.Background())
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	check.OK(b)(m.Add("x", s.Listener.Addr().String()))
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post(m.PublicURL()+"/x", "application/json", strings.NewReader(`{"submitter":"0x0"}`))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
