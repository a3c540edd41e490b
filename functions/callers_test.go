package functions_test

import (
	"bufio"
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
	conn := check.Value(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
	t.Cleanup(func() { _ = conn.Close() })
	check.OK(t)(conn.SetReadDeadline(time.Now().Add(time.Minute)))
	check.OK(t)(fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", path, token))
	status := check.Value(bufio.NewReader(conn).ReadString('\n'))(t)
	check.Equal(t, "the server's first line", status, "HTTP/1.1 100 Continue\r\n")
	return func() { _ = conn.Close() }
}

// A caller, operator or user with as many running requests as the setting allows gets 429 for any
// other. Other callers are served meanwhile. When one of the requests has ended, the caller is served
// again.
func TestOneCallerAtTheBound(t *testing.T) {
	t.Parallel()
	h := build(t)
	app := h.opened(append(h.transferSettings(), "FENCEPOST_HTTP_MAX_REQUESTS_PER_CALLER=2", "FENCEPOST_HTTP_BODY_TIMEOUT=10m")...)
	server := httptest.NewServer(app.Handlers()[functions.All])
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
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
			check.Equal(t, "the third, with Retry-After", refused.is("code")+" "+refused.header.Get("Retry-After"), "429 TOO_MANY_REQUESTS 1")
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
	h := buildWithShop(t)
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
		check.Equal(t, name, post(c.token, "/api/v1/tx", intent(c.submitter, c.payload)).is("code"), c.want)
		if c.want == "400 INVALID_JSON" {
			continue
		}
		a := post(c.token, "/api/v1/tx:batch", `{"intents": [`+intent(c.submitter, c.payload)+`]}`)
		check.Equal(t, name+", in a batch", a.is("results.0.status", "results.0.code"), "200 "+c.want)
	}
	h.run(`update submitter set callers = callers || '{email:other@fencepost.example,other@fencepost.example}' where submitter = $1`, shopAccount)
	post(other, "/api/v1/tx", intent(shopAccount, right)).wants(t, 202, "a caller who was just added")
}

// A create is one round trip once this process knows that its caller may use the submitter. The first
// create makes a query before.
func TestCreateIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	shop := h.clientOf(h.callerToken("shop"))
	for i := range 4 {
		check.OK(t)(shop.CreateTx(t.Context(), intentOf(fmt.Sprint("r", i))))
	}
	var told []members
	await(t, "all four told", func() bool {
		told = h.log.since(0, "message", "invocation")
		return len(told) == 4
	})
	check.Equal(t, "round trips of four creates", column(told, "sqlRoundTrips"), "2 1 1 1")
}

// A create that a full queue refuses is answered after a moment, in a batch too. A stored requestId gets its
// answer.
func TestRefusedCreatesAreDelayed(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, "FENCEPOST_QUEUE_MAX_PER_SUBMITTER=1")
	h.createTx("first")
	const delay = 250 * time.Millisecond
	for path, c := range map[string]struct {
		body         any
		status, code string // where the answer has them
		want         string
	}{
		"/api/v1/tx":       {intentOf("second"), "status", "code", "429 429 QUEUE_FULL"},
		"/api/v1/tx:batch": {members{"intents": []any{intentOf("first"), intentOf("second")}}, "results.1.status", "results.1.code", "200 429 QUEUE_FULL"},
	} {
		began := time.Now()
		check.Equal(t, path, h.as("shop", "POST", path, c.body).is(c.status, c.code), c.want)
		if took := time.Since(began); took < delay {
			t.Errorf("%s: got an answer after %v, want one after %v", path, took, delay)
		}
	}
	h.as("shop", "POST", "/api/v1/tx", intentOf("first")).wants(t, 200, "the first again")
}
