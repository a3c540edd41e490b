package web_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// patient bounds each wait of these tests, on any machine.
const patient = 2 * time.Minute

// arrivals serves POST /read, which reads its body, and POST /refuse, which refuses the caller. Bodies
// must arrive within the given time.
func arrivals(t *testing.T, within time.Duration) (address string) {
	t.Helper()
	mux := web.NewMux()
	mux.HandleFunc("POST /read", func(w http.ResponseWriter, r *http.Request) {
		text, err := web.Decode[string](w, r, 1024)
		if err != nil {
			web.Fail(w, r, err)
			return
		}
		select {
		case <-r.Context().Done():
			web.Fail(w, r, fmt.Errorf("the caller left: %w", r.Context().Err()))
		case <-time.After(min(5*within, 200*time.Millisecond)): // nothing may happen meanwhile
			web.Reply(w, r, http.StatusOK, text)
		}
	})
	mux.HandleFunc("POST /refuse", func(w http.ResponseWriter, r *http.Request) {
		web.Fail(w, r, web.NewProblem(web.Unauthorized, "no token"))
	})
	server := httptest.NewServer(web.Edge(web.NewGate(), web.Arrival(within, mux)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// dialled is a connection on which only text is sent.
func dialled(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn := check.Value(net.Dial("tcp", address))(t)
	t.Cleanup(func() { _ = conn.Close() })
	check.OK(t)(errors.Join(conn.SetDeadline(time.Now().Add(patient)), func() error { _, err := io.WriteString(conn, text); return err }()))
	return conn
}

// nextAnswer returns the next answer on a connection in short form, and whether the connection then
// ends.
func nextAnswer(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	resp := check.Value(http.ReadResponse(from, nil))(t)
	defer resp.Body.Close()
	text := check.Value(io.ReadAll(resp.Body))(t)
	var problem struct{ Code string }
	_ = json.Unmarshal(text, &problem) // another body has no code
	answer := strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", problem.Code))
	if !resp.Close {
		return answer
	}
	check.Err(t, "after an answer that says so", io.EOF)(from.ReadByte())
	return answer + ", the end"
}

// begunPost is a request with a Content-Length and less of the body.
func begunPost(path, length, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", path, length, body)
}

// A body that does not arrive ends at its deadline, after any beginning.
func TestMissingBodiesEndAtTheDeadline(t *testing.T) {
	t.Parallel()
	address := arrivals(t, 50*time.Millisecond)
	for name, text := range map[string]string{
		"one byte of many":       begunPost("/read", "Content-Length: 1000", `"`),
		"none of many":           begunPost("/read", "Content-Length: 1000", ""),
		"a chunk without an end": begunPost("/read", "Transfer-Encoding: chunked", "1\r\n\"\r\n"),
	} {
		check.Equal(t, name, nextAnswer(t, bufio.NewReader(dialled(t, address, text))), "408 BODY_TIMEOUT, the end")
	}
}

// A request that is refused without its body is answered before the body has arrived.
func TestRefusalsDoNotWaitForBodies(t *testing.T) {
	t.Parallel()
	address := arrivals(t, time.Hour)
	for text, want := range map[string]string{
		begunPost("/refuse", "Content-Length: 5000", "1"):                                   "401 UNAUTHORIZED, the end",
		begunPost("/refuse", "Transfer-Encoding: chunked", "1\r\n1\r\n"):                    "401 UNAUTHORIZED, the end",
		begunPost("/nothing", "Content-Length: 5000", "1"):                                  "404 NOT_FOUND, the end",
		begunPost("/read", "Content-Length: 5000", `"`+strings.Repeat("a", 1100)):           "413 BODY_TOO_LARGE, the end",
		"PUT" + strings.TrimPrefix(begunPost("/read", "Content-Length: 5000", "1"), "POST"): "405 METHOD_NOT_ALLOWED, the end",
	} {
		check.Equal(t, fmt.Sprintf("%.40q", text), nextAnswer(t, bufio.NewReader(dialled(t, address, text))), want)
	}
}

// After a complete body there is no deadline: the request can run longer, and the connection serves the
// next one. So does the connection of a refused request without a body.
func TestNoDeadlineAfterTheBody(t *testing.T) {
	t.Parallel()
	const within = 40 * time.Millisecond
	conn := dialled(t, arrivals(t, within), "")
	from := bufio.NewReader(conn)
	for range 3 {
		for text, want := range map[string]string{
			begunPost("/read", "Content-Length: 3", `"a"`):                              "200",
			begunPost("/read", "Transfer-Encoding: chunked", "3\r\n\"a\"\r\n0\r\n\r\n"): "200",
			begunPost("/refuse", "Content-Length: 0", ""):                               "401 UNAUTHORIZED",
		} {
			check.OK(t)(io.WriteString(conn, text))
			check.Equal(t, fmt.Sprintf("%.60q", text), nextAnswer(t, from), want)
		}
	}
}

// Every answer forbids browsers to guess its type. An answer over TLS, and no other, tells them to use
// only TLS.
func TestHeadersForBrowsers(t *testing.T) {
	t.Parallel()
	mux := web.NewMux()
	mux.HandleHealth(nil)
	edge := web.Edge(web.NewGate(), mux)
	for by, want := range map[string]string{"": "", "http": "", "https": "max-age=31536000"} {
		for _, path := range []string{"/healthz", "/nothing"} {
			r, rec := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
			r.Header.Set("X-Forwarded-Proto", by)
			edge.ServeHTTP(rec, r)
			h := rec.Header()
			check.Equal(t, fmt.Sprintf("%s by %q", path, by), h.Get("X-Content-Type-Options")+" "+h.Get("Strict-Transport-Security"), "nosniff "+want)
		}
	}
}
