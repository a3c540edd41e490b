package functions_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/check"
)

// begun starts a request whose body never ends, waits until the server reads the body, and returns how
// to hang up. A server says 100 Continue when the handler reads: the request then counts as running.
func begun(t *testing.T, url, path, token string) (hangUp func()) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	check.OK(t)(err)
	t.Cleanup(func() { _ = conn.Close() })
	check.OK(t)(conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", path, token)
	check.OK(t)(err)
	status, err := bufio.NewReader(conn).ReadString('\n')
	check.OK(t)(err)
	check.Equal(t, "the server's first line", status, "HTTP/1.1 100 Continue\r\n")
	return func() { _ = conn.Close() }
}

// A caller, operator or user with as many running requests as the setting allows gets 429 for any
// other. Other callers are served meanwhile. When one of the requests has ended, the caller is served
// again.
func TestOneCallerAtTheBound(t *testing.T) {
	t.Parallel()
	h := build(t)
	app, err := h.app(append(h.transferSettings(), "FENCEPOST_HTTP_MAX_REQUESTS_PER_CALLER=2", "FENCEPOST_HTTP_BODY_TIMEOUT=10m")...)
	check.OK(t)(err)
	server := httptest.NewServer(app.Handlers()[functions.All])
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		_ = app.Close(t.Context())
	})
	users := map[string][2]string{
		"/api/v1/tx":                {h.callerToken("shop"), h.callerToken("other")},
		"/api/v1/tx:batch":          {h.callerToken("shop2"), h.callerToken("other")},
		"/admin/v1/submitters":      {h.callerToken("ann"), h.callerToken("other")},
		"/api/v1/internal_transfer": {h.userToken(alice), h.userToken(bob)},
		"/api/v1/payout":            {h.userToken(9), h.userToken(bob)},
	}
	for path, tokens := range users {
		t.Run(path, func(t *testing.T) {
			ask := func(token string) answer { return call(t, t.Context(), token, http.MethodPost, server.URL+path, "") }
			ask(tokens[1]) // this fetches the issuer's keys
			hangUp := begun(t, server.URL, path, tokens[0])
			begun(t, server.URL, path, tokens[0])
			refused := ask(tokens[0])
			if got := refused.is("code") + " " + refused.header.Get("Retry-After"); got != "429 TOO_MANY_REQUESTS 1" {
				t.Errorf("the third: got %s, %v; want 429 TOO_MANY_REQUESTS with Retry-After 1", got, refused.body)
			}
			if a := ask(tokens[1]); a.status == http.StatusTooManyRequests {
				t.Errorf("another caller: got %v, want it served", a.body)
			}
			hangUp()
			await(t, "room again", func() bool { return ask(tokens[0]).status != http.StatusTooManyRequests })
		})
	}
}

// No payload is read for a caller that may not use the submitter: any fault in it gets the same
// answer. A caller that was just added is served.
func TestPayloadsOfOtherCallersAreNotRead(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Bundle.Register(t, shopAccount, 1)
	h.run(`update submitter set callers = '{email:shop@fencepost.example,shop@fencepost.example}' where submitter = $1`, shopAccount)
	shop, other := h.callerToken("shop"), h.callerToken("other")
	intent := func(submitter, payload string) string {
		return `{"submitter": "` + submitter + `", "requestId": "r", "payload": ` + payload + `}`
	}
	const wrong, right = `{"to": "0x12"}`, `{"to": "` + paidTo + `", "value": "1"}`
	post := func(token, path, body string) answer {
		return call(t, t.Context(), token, http.MethodPost, h.url+path, body)
	}
	for name, c := range map[string]struct{ token, submitter, payload, want string }{
		"a stranger's wrong payload":           {other, shopAccount, wrong, "404 UNKNOWN_SUBMITTER"},
		"a stranger's unknown handler":         {other, shopAccount, `{}, "handler": "none"`, "404 UNKNOWN_SUBMITTER"},
		"a stranger's right payload":           {other, shopAccount, right, "404 UNKNOWN_SUBMITTER"},
		"a wrong payload, nobody's submitter":  {shop, strings.Replace(shopAccount, "5409", "5408", 1), wrong, "404 UNKNOWN_SUBMITTER"},
		"a caller's own wrong payload":         {shop, shopAccount, wrong, "400 INVALID_FIELD"},
		"a caller's own wrong payload, again":  {shop, shopAccount, wrong, "400 INVALID_FIELD"},
		"a stranger's payload that is no JSON": {other, shopAccount, `{"to": }`, "400 INVALID_JSON"},
	} {
		if a := post(c.token, "/api/v1/tx", intent(c.submitter, c.payload)); a.is("code") != c.want {
			t.Errorf("%s: got %v, want %s", name, a.body, c.want)
		}
		if c.want == "400 INVALID_JSON" {
			continue
		}
		a := post(c.token, "/api/v1/tx:batch", `{"intents": [`+intent(c.submitter, c.payload)+`]}`)
		results, _ := a.body["results"].([]any)
		if len(results) != 1 {
			t.Fatalf("%s, in a batch: got %v, want a result", name, a.body)
		}
		one := results[0].(map[string]any)
		if got := fmt.Sprint(one["status"], " ", one["code"]); got != c.want {
			t.Errorf("%s, in a batch: got %v, want %s", name, one, c.want)
		}
	}
	h.run(`update submitter set callers = callers || '{email:other@fencepost.example,other@fencepost.example}' where submitter = $1`, shopAccount)
	post(other, "/api/v1/tx", intent(shopAccount, right)).wants(t, 202, "a caller who was just added")
}

// A create is one round trip once this process knows that its caller may use the submitter. The first
// create makes a query before.
func TestCreateIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Bundle.Register(t, shopAccount, 1)
	shop := h.clientOf(h.callerToken("shop"))
	for i := range 4 {
		if _, err := shop.CreateTx(t.Context(), intentOf(fmt.Sprint("r", i))); err != nil {
			t.Fatal(err)
		}
	}
	trips := func() (all []string) {
		h.log.mu.Lock()
		defer h.log.mu.Unlock()
		for text := range strings.Lines(h.log.b.String()) {
			var line map[string]any
			if json.Unmarshal([]byte(text), &line) == nil && line["message"] == "invocation" && line["function"] == "create" {
				all = append(all, fmt.Sprint(line["sqlRoundTrips"]))
			}
		}
		return all
	}
	await(t, "all four told", func() bool { return len(trips()) == 4 })
	check.Equal(t, "round trips of four creates", strings.Join(trips(), " "), "2 1 1 1")
}

// A create that a full queue refuses is answered after a moment, in a batch too. A stored requestId gets its
// answer.
func TestRefusedCreatesAreDelayed(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Bundle.Register(t, shopAccount, 1)
	url := h.serve("FENCEPOST_QUEUE_MAX_PER_SUBMITTER=1")
	shop := h.callerToken("shop")
	intent := func(id string) string {
		return `{"submitter": "` + shopAccount + `", "requestId": "` + id + `", "payload": {"to": "` + paidTo + `", "value": "1"}}`
	}
	post := func(id string) answer {
		return call(t, t.Context(), shop, http.MethodPost, url+"/api/v1/tx", intent(id))
	}
	post("first").wants(t, 202, "the first")
	const delay = 250 * time.Millisecond
	for name, ask := range map[string]func() string{
		"alone": func() string { return post("second").is("code") },
		"batch": func() string {
			a := call(t, t.Context(), shop, http.MethodPost, url+"/api/v1/tx:batch", `{"intents": [`+intent("first")+`,`+intent("second")+`]}`)
			results, _ := a.body["results"].([]any)
			if len(results) != 2 {
				return fmt.Sprint(a.body)
			}
			one := results[1].(map[string]any)
			return fmt.Sprint(one["status"], " ", one["code"])
		},
	} {
		began := time.Now()
		check.Equal(t, name, ask(), "429 QUEUE_FULL")
		if took := time.Since(began); took < delay {
			t.Errorf("%s: got an answer after %v, want one after %v", name, took, delay)
		}
	}
	post("first").wants(t, 200, "the first again")
}
