package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// pages serves sections of the console to an operator, without signing in, against a deployment's real API. Its calls have
// the token of a person who has signed in to the console, which only admin accepts.
type pages struct {
	t     *testing.T
	mux   *http.ServeMux
	calls *atomic.Int32 // of the API, by the last page
	made  *madeCalls    // the same calls
}

// madeCalls are calls of the API, such as "GET /admin/v1/chains".
type madeCalls struct {
	mu  sync.Mutex
	all []string
}

func (m *madeCalls) add(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, call)
}

// take returns the calls since the last take.
func (m *madeCalls) take() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, m.all = m.all, nil
	return all
}

// shownPage is a page as the browser gets it.
type shownPage struct {
	status int
	body   string
	to     string // the Location
	calls  int
}

// countingTransport counts the requests. As console.adminUrl does, it serves the paths of admin only.
type countingTransport struct {
	calls *atomic.Int32
	made  *madeCalls
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	c.made.add(r.Method + " " + r.URL.EscapedPath())
	if !strings.HasPrefix(r.URL.Path, "/admin/v1/") {
		return nil, fmt.Errorf("%s %s is not admin's", r.Method, r.URL.Path)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (h deployment) pages(sections ...page.Section) pages {
	h.t.Helper()
	renderer, err := page.New(sections...)
	check.OK(h.t)(err)
	p := pages{h.t, http.NewServeMux(), new(atomic.Int32), new(madeCalls)}
	people := startIssuer(h.t)
	h.url = h.serve(append(h.transferSettings(), consoleSettings(people.url)...)...)
	token := people.token(h.t, "console", jwt.MapClaims{"sub": "77", "email": "ann@fencepost.example", "email_verified": true})
	check.Equal(h.t, "the console's token at another function", call(h.t, h.t.Context(), token, "GET", h.url+"/api/v1/tx?submitter="+shopAccount, nil).is("code"), "401 UNAUTHORIZED")
	admin, err := client.New(client.Options{URL: h.url, Transport: countingTransport{p.calls, p.made}, Token: func(context.Context) (string, error) { return token, nil }, Within: 20 * time.Second, RetryFirst: 24 * time.Hour})
	check.OK(h.t)(err)
	for _, s := range sections {
		for _, route := range s.Routes {
			p.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
				call := page.Call{Request: r, Admin: admin, Person: "ann@fencepost.example", MayAct: true, CSRF: "csrf-of-ann"}
				if v, err := route.Handle(r.Context(), call); err != nil {
					renderer.RenderError(w, call, err)
				} else {
					renderer.Render(w, call, v)
				}
			})
		}
	}
	p.mux.Handle("/console/static/", page.Static())
	return p
}

// get reads a page; with a form it posts.
func (p pages) get(path string, form ...string) shownPage {
	p.t.Helper()
	method, values := "GET", url.Values{}
	for i := 0; i < len(form); i += 2 {
		method = "POST"
		values.Set(form[i], form[i+1])
	}
	r := httptest.NewRequestWithContext(p.t.Context(), method, path, strings.NewReader(values.Encode()))
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	p.calls.Store(0)
	p.made.take()
	w := httptest.NewRecorder()
	p.mux.ServeHTTP(w, r)
	return shownPage{w.Code, w.Body.String(), w.Header().Get("Location"), int(p.calls.Load())}
}

// wants fails unless the page has the status and the number of calls, and contains the texts.
func (s shownPage) wants(t *testing.T, what string, status, calls int, texts ...string) {
	t.Helper()
	if s.status != status || s.calls != calls {
		t.Errorf("%s: status %d with %d calls, want %d with %d", what, s.status, s.calls, status, calls)
	}
	for _, text := range texts {
		if !strings.Contains(s.body, text) {
			t.Errorf("%s: lacks %q:\n%s", what, text, s.body)
		}
	}
}

// Each page about queues shows what the API says, escaped, by a bounded number of calls.
func TestConsoleShowsQueues(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	const evil = `<img src=x onerror=alert(1)>`
	id := fmt.Sprint(h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": shopAccount, "requestId": evil, "payload": map[string]any{"to": paidTo}}).body["txId"])
	h.run(`update managed_tx set last_error = '<b>' where tx_id = $1`, id)
	h.run(`update managed_tx set waiting_since = now() - interval '1 hour' where request_id = 'r0'`)
	h.run(`update managed_tx set trace = decode(repeat('ab', 16) || repeat('cd', 8) || '01', 'hex') where tx_id = $1`, id)
	p := h.pages(queues.Section(queues.Links{Trace: "https://traces.example/t/{traceId}", Log: "https://logs.example/;query=txId%3D%22{txId}%22?a=b"}))
	at := page.Path("submitter", shopAccount)

	p.get("/console/").wants(t, "overview", 200, 4, `data-light="bad"`, "Act now", `data-field="BLOCKED">1<`, "<code>BALANCE</code>", `data-field="count-QUEUED"`, "confirmations.required", `hx-select="#live"`)
	p.get("/console/attention").wants(t, "attention", 200, 1, `data-kind="BLOCKED"`, "balance: too little", "docs/runbooks/balance.md", page.Path("tx", id)[:12])
	p.get("/console/submitters?sort=queue").wants(t, "submitters", 200, 3, `data-submitter="`+shopAccount, "<code>BALANCE</code>", `data-field="total">1<`)
	p.get("/console/submitters?text=nothing").wants(t, "no submitter", 200, 2, "No submitter fits.")
	p.get(at).wants(t, "submitter", 200, 5, `data-nonce="0" data-state="GAP"`, `data-nonce="1" data-state="LOST"`, "Foreign transactions consumed 1 of the nonces", "Nothing is on record of 1 of the nonces",
		`data-field="maxInFlight">1<`, "&lt;img src=x", "EARLIER_INTENT", at+"/suspend")
	p.get(at+"?from=1&as=table").wants(t, "a table of nonces", 200, 5, `<tr data-nonce="1" data-state="LOST">`, at+"?from=0&amp;as=table", "nonces 1 to 1")
	p.get("/console/submitters/eip155:1337:0x00000000000000000000000000000000000000ff").wants(t, "unknown submitter", 404, 5, `data-code="UNKNOWN_SUBMITTER"`)
	p.get(page.Path("tx", id)).wants(t, "transaction", 200, 5, "&lt;img src=x", "EARLIER_INTENT", `data-field="lastError">&lt;b&gt;`, "The path of this transaction: QUEUED", page.Path("tx", id)+"/cancel",
		`data-field="to">`+strings.ToLower(paidTo), "email:shop@fencepost.example",
		`href="https://traces.example/t/`+strings.Repeat("ab", 16)+`"`, `href="https://logs.example/;query=txId%3D%22`+id+`%22?a=b"`)
	for _, path := range []string{at, page.Path("tx", id), "/console/search?q=" + url.QueryEscape(evil), "/console/attention"} {
		if body := p.get(path).body; strings.Contains(body, "<img") || strings.Contains(body, "<b>") {
			t.Errorf("%s: a text of a caller is markup:\n%s", path, body)
		}
	}
	t.Run("search", func(t *testing.T) { p.searches(t, c) })
	t.Run("search by filter", p.filters)
	t.Run("first page", p.isSmall)
}

// The search goes straight to the one thing that a text names, and lists several.
func (p pages) searches(t *testing.T, c *client.Client) {
	id := ""
	for tx, err := range c.FindTxs(t.Context(), client.TxFilter{RequestID: "r4"}) {
		check.OK(t)(err)
		id = tx.TxID
	}
	for text, want := range map[string]string{
		id: page.Path("tx", id), strings.ToUpper(id): page.Path("tx", id), " r4 ": page.Path("tx", id), shopAccount: page.Path("submitter", shopAccount),
		strings.TrimPrefix(shopAccount, "eip155:1337:"): page.Path("submitter", shopAccount), "5409": page.Path("submitter", shopAccount),
	} {
		if got := p.get("/console/search?q=" + url.QueryEscape(text)); got.status != 303 || got.to != want || got.calls > 3 {
			t.Errorf("search for %q: got %d %s with %d calls, want 303 %s", text, got.status, got.to, got.calls, want)
		}
	}
	for text, want := range map[string]string{
		"": "Enter a txId", "0x" + strings.Repeat("cd", 32): "No signed version has this hash", shopAccount + " 1": "from=0#lane", shopAccount + "#12": "from=2#lane",
		"failed": ">r2<", "STUCK": "No transaction is in this state",
		"order-1": "No request has exactly this id", strings.Repeat("x", 301): "No id has", "01ARZ3NDEKTSV4RRFFQ69G5FAV": "Nothing has this id", "0197c0de-0000-7000-8000-000000000000": "Nothing has this id",
	} {
		if got := p.get("/console/search?q=" + url.QueryEscape(text)); got.status != 200 || !strings.Contains(got.body, want) || got.calls > 3 {
			t.Errorf("search for %q: got %d with %d calls, want 200 with %q:\n%s", text, got.status, got.calls, want, got.body)
		}
	}
}

// A list by submitter, state, caller and time is one call of the API, and a refusal of the API is shown beside the form.
func (p pages) filters(t *testing.T) {
	of := "submitter=" + url.QueryEscape(shopAccount)
	for query, want := range map[string][]string{
		of + "&state=QUEUED&caller=email:shop@fencepost.example&since=2026-01-01T00:00": {">r4<", "<option selected>QUEUED"},
		of + "&caller=email:nobody@fencepost.example":                                   {"No transaction fits"},
		"state=&since=2026-01-01":                                                       {">r2<"},
		"state=FAILED":                                                                  {">r2<"},
		"since=2999-01-01":                                                              {"No transaction fits"},
		"submitter=nobody":                                                              {"submitter is not an account", `value="nobody"`},
	} {
		p.get("/console/search?"+query).wants(t, query, 200, 1, want...)
	}
}

// The first page, with all that it needs, is less than 100 kB as it is served.
func (p pages) isSmall(t *testing.T) {
	first := p.get("/console/")
	total := len(first.body)
	for _, m := range regexp.MustCompile(`"(/console/static/[^"]+)"`).FindAllStringSubmatch(first.body, -1) {
		file := p.get(m[1])
		if file.status != 200 {
			t.Errorf("%s: status %d", m[1], file.status)
		}
		total += len(file.body)
	}
	if total >= 100_000 {
		t.Errorf("the first page has %d bytes, want fewer than 100,000", total)
	}
	t.Logf("%d bytes, of them %d of the page itself", total, len(first.body))
}

// An act shows its evidence, wants a reason, and shows a refusal beside the entered values.
func TestConsoleActsOnQueues(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	p := h.pages(queues.Section(queues.Links{}))
	at := page.Path("submitter", shopAccount)
	status := func() string {
		t.Helper()
		s, err := c.Submitter(t.Context(), shopAccount)
		check.OK(t)(err)
		return fmt.Sprint(s.Status, " ", s.MaxInFlight, " ", s.Name)
	}
	p.get(at+"/suspend").wants(t, "form", 200, 1, `name="csrf" value="csrf-of-ann"`, "What is known", `name="reason"`)
	p.get(at+"/suspend", "reason", " ").wants(t, "no reason", 400, 1, "Write why you do this")
	check.Equal(t, "after no reason", status(), "ACTIVE 1 ")
	if got := p.get(at+"/suspend", "reason", "an audit"); got.status != 303 || got.to != at {
		t.Errorf("suspend: got %d %s, want 303 %s:\n%s", got.status, got.to, at, got.body)
	}
	check.Equal(t, "after suspend", status(), "SUSPENDED 1 ")
	p.get(at+"/suspend", "reason", "once <i>more").wants(t, "a second suspend", 409, 3, `data-code="TOO_LATE"`, "once &lt;i&gt;more</textarea>")
	p.get(at).wants(t, "suspended", 200, 5, at+"/resume", "an audit", "ann@fencepost.example")
	p.get(at+"/resume", "reason", "done").wants(t, "resume", 303, 2)
	p.get(at+"/edit").wants(t, "edit", 200, 1, `value="1"`)
	p.get(at+"/edit", "reason", "a name", "maxInFlight", "0", "name", "payouts").wants(t, "no window", 400, 1, "from 1 to 10,000", `value="payouts"`)
	p.get(at+"/edit", "reason", "a name", "maxInFlight", "1", "name", "payouts").wants(t, "rename", 303, 2)
	check.Equal(t, "after resume and edit", status(), "ACTIVE 1 payouts")
	p.get(at+"/policy").wants(t, "policy", 200, 2, "The present policy", `name="policy"`)
	p.get(at+"/policy", "reason", "a limit", "policy", `{"maxPerMinute": 9,}`).wants(t, "no JSON", 400, 2, "The policy is not JSON", "9,}</textarea>")
	p.get(at+"/policy", "reason", "a limit", "policy", `{"maxGas": 5}`).wants(t, "too little gas", 400, 5, `data-code="INVALID_FIELD"`, "maxGas")
	p.get(at+"/policy", "reason", "a limit", "policy", `{"maxPerMinute": 9}`).wants(t, "set the policy", 303, 3)
	p.get(at+"/callers", "reason", "one more", "callers", "shop@fencepost.example").wants(t, "no kind of caller", 400, 3, "email:shop@fencepost.example")
	p.get(at+"/callers", "reason", "one more", "callers", "email:shop@fencepost.example\r\nhandler:shop").wants(t, "set the callers", 303, 2)
	p.get(at+"/signer", "reason", "moved", "signer", "remote:nowhere").wants(t, "no such signer", 400, 3, `data-code="INVALID_FIELD"`, `value="remote:nowhere"`)
	p.get(at+"/signer", "reason", "moved", "signer", "local").wants(t, "the present signer", 303, 2)
	changed, err := c.Submitter(t.Context(), shopAccount)
	check.OK(t)(err)
	check.Equal(t, "after policy and callers", fmt.Sprint(changed.Policy.MaxPerMinute, changed.Callers), "9 [email:shop@fencepost.example handler:shop]")
	p.get(at+"/retire", "reason", "moved", "confirm", "payout").wants(t, "another name", 400, 1, "Type payouts to confirm")
	p.get(at+"/retire", "reason", "moved", "confirm", "payouts").wants(t, "retire", 409, 3, `data-code="SUBMITTER_IN_USE"`)

	for tx, err := range c.FindTxs(t.Context(), client.TxFilter{RequestID: "r5"}) {
		check.OK(t)(err)
		of := page.Path("tx", tx.TxID)
		p.get(of+"/cancel").wants(t, "form", 200, 5, "EARLIER_INTENT", "Type <code>"+tx.TxID[30:])
		p.get(of+"/cancel", "reason", "not wanted", "confirm", "no").wants(t, "not confirmed", 400, 5, `data-code="INVALID_FORM"`)
		p.get(of+"/cancel", "reason", "not wanted", "confirm", tx.TxID[30:]).wants(t, "cancel", 303, 6)
		p.get(of).wants(t, "cancelled", 200, 5, `data-field="subState">CANCELLED`, "The path of this transaction: QUEUED → FAILED", "asked by email:ann@fencepost.example: not wanted")
		p.get(of+"/decide", "reason", "r", "action", "replace").wants(t, "too late", 409, 11, `data-code="TOO_LATE"`, `value="replace" required checked`)
		p.get(of+"/proceed", "reason", "r").wants(t, "not held", 409, 11, `data-code="TOO_LATE"`)
	}
}
