package functions_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// console returns sections of the console, for an operator, on the deployment's real API. Its calls have the token of a
// person who has signed in to the console, which only admin accepts.
func (h deployment) console(sections ...page.Section) *consoletest.Console {
	h.t.Helper()
	people := startIssuer(h.t)
	h.url = h.serve(append(h.transferSettings(), consoleSettings(people.url)...)...)
	token := people.token(h.t, "console", claimsOf("ann", true))
	check.Equal(h.t, "the console's token at another function", call(h.t, h.t.Context(), token, "GET", h.url+"/api/v1/tx?submitter="+shopAccount, nil).is("code"), "401 UNAUTHORIZED")
	return consoletest.On(h.t, client.Options{URL: h.url, Token: func(context.Context) (string, error) { return token, nil }}, sections...)
}

// Each page about queues shows what the API says, escaped, by a bounded number of calls.
func TestConsoleShowsQueues(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	const evil = `<img src=x onerror=alert(1)>`
	id := h.createTx(evil)
	h.run(`update managed_tx set last_error = '<b>' where tx_id = $1`, id)
	h.run(`update managed_tx set waiting_since = now() - interval '1 hour' where request_id = 'r0'`)
	h.run(`update managed_tx set trace = decode(repeat('ab', 16) || repeat('cd', 8) || '01', 'hex') where tx_id = $1`, id)
	p := h.console(queues.Section(queues.Links{Trace: "https://traces.example/t/{traceId}", Log: "https://logs.example/;query=txId%3D%22{txId}%22?a=b"}))
	at := page.Path("submitter", shopAccount)

	p.Shows("/console/", 4, `data-light="bad"`, "Act now", `data-field="BLOCKED">1<`, "<code>BALANCE</code>", `data-field="count-QUEUED"`,
		"confirmations.required", `hx-select="#live"`)
	p.Shows("/console/attention", 1, `data-kind="BLOCKED"`, "balance: too little", "docs/runbooks/balance.md", page.Path("tx", id)[:12])
	p.Shows("/console/submitters?sort=queue", 3, `data-submitter="`+shopAccount, "<code>BALANCE</code>", `data-field="total">1<`)
	p.Shows("/console/submitters?text=nothing", 2, "No submitter fits.")
	p.Shows(at, 5, `data-nonce="0" data-state="GAP"`, `data-nonce="1" data-state="LOST"`, "Foreign transactions consumed 1 of the nonces", "Nothing is on record of 1 of the nonces",
		`data-field="maxInFlight">1<`, "&lt;img src=x", "EARLIER_INTENT", at+"/suspend")
	p.Shows(at+"?from=1&as=table", 5, `<tr data-nonce="1" data-state="LOST">`, at+"?from=0&amp;as=table", "nonces 1 to 1")
	w, calls := p.Get("/console/submitters/eip155:1337:0x00000000000000000000000000000000000000ff")
	if w.Code != 404 || len(calls) != 5 || !strings.Contains(w.Body.String(), `data-code="UNKNOWN_SUBMITTER"`) {
		t.Errorf("unknown submitter: got %d with %d calls, want 404 with 5 and the code:\n%s", w.Code, len(calls), w.Body)
	}
	p.Shows(page.Path("tx", id), 5, "&lt;img src=x", "EARLIER_INTENT", `data-field="lastError">&lt;b&gt;`, "The path of this transaction: QUEUED", page.Path("tx", id)+"/cancel",
		`data-field="to">`+strings.ToLower(paidTo), "email:shop@fencepost.example",
		`href="https://traces.example/t/`+strings.Repeat("ab", 16)+`"`, `href="https://logs.example/;query=txId%3D%22`+id+`%22?a=b"`)
	for _, path := range []string{at, page.Path("tx", id), "/console/search?q=" + url.QueryEscape(evil), "/console/attention"} {
		p.Lacks(path, nil, "<img", "<b>") // texts of a caller are no markup
	}
	checkSearch(t, p, c)
	checkFilters(p)
	checkFirstPage(t, p)
}

// The search goes straight to the one thing that a text names, and lists several.
func checkSearch(t *testing.T, p *consoletest.Console, c *client.Client) {
	t.Helper()
	id := check.Value(collect(c.FindTxs(t.Context(), client.TxFilter{RequestID: "r4"}), func(x client.FoundTx) string { return x.TxID }))(t)
	for text, want := range map[string]string{
		id: page.Path("tx", id), strings.ToUpper(id): page.Path("tx", id), " r4 ": page.Path("tx", id), shopAccount: page.Path("submitter", shopAccount),
		strings.TrimPrefix(shopAccount, "eip155:1337:"): page.Path("submitter", shopAccount), "5409": page.Path("submitter", shopAccount),
	} {
		w, calls := p.Get("/console/search?q=" + url.QueryEscape(text))
		if to := w.Header().Get("Location"); w.Code != 303 || to != want || len(calls) > 3 {
			t.Errorf("search for %q: got %d %s with %d calls, want 303 %s", text, w.Code, to, len(calls), want)
		}
	}
	for text, want := range map[string]string{
		"": "Enter a txId", "0x" + strings.Repeat("cd", 32): "No signed version has this hash", shopAccount + " 1": "from=0#lane", shopAccount + "#12": "from=2#lane",
		"failed": ">r2<", "STUCK": "No transaction is in this state",
		"order-1": "No request has exactly this id", strings.Repeat("x", 301): "No id has", "01ARZ3NDEKTSV4RRFFQ69G5FAV": "Nothing has this id", "0197c0de-0000-7000-8000-000000000000": "Nothing has this id",
	} {
		w, calls := p.Get("/console/search?q=" + url.QueryEscape(text))
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) || len(calls) > 3 {
			t.Errorf("search for %q: got %d with %d calls, want 200 with %q:\n%s", text, w.Code, len(calls), want, w.Body)
		}
	}
}

// A list by submitter, state, caller and time is one call of the API, and a refusal of the API is shown beside the form.
func checkFilters(p *consoletest.Console) {
	of := "submitter=" + url.QueryEscape(shopAccount)
	for query, want := range map[string][]string{
		of + "&state=QUEUED&caller=email:shop@fencepost.example&since=2026-01-01T00:00": {">r4<", "<option selected>QUEUED"},
		of + "&caller=email:nobody@fencepost.example":                                   {"No transaction fits"},
		"state=&since=2026-01-01":                                                       {">r2<"},
		"state=FAILED":                                                                  {">r2<"},
		"since=2999-01-01":                                                              {"No transaction fits"},
		"submitter=nobody":                                                              {"submitter is not an account", `value="nobody"`},
	} {
		p.Shows("/console/search?"+query, 1, want...)
	}
}

// The first page, with all that it needs, is less than 100 kB as it is served.
func checkFirstPage(t *testing.T, p *consoletest.Console) {
	t.Helper()
	first, _ := p.Get("/console/")
	total := first.Body.Len()
	for _, m := range regexp.MustCompile(`"(/console/static/[^"]+)"`).FindAllStringSubmatch(first.Body.String(), -1) {
		file := httptest.NewRecorder()
		page.Static().ServeHTTP(file, httptest.NewRequest("GET", m[1], nil))
		check.Equal(t, m[1], file.Code, 200)
		total += file.Body.Len()
	}
	if total >= 100_000 {
		t.Errorf("the first page has %d bytes, of them %d of the page itself, want fewer than 100,000", total, first.Body.Len())
	}
}

// An act shows its evidence, wants a reason, and shows a refusal beside the entered values.
func TestConsoleActsOnQueues(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	p := h.console(queues.Section(queues.Links{}))
	at := page.Path("submitter", shopAccount)
	status := func() string {
		t.Helper()
		s := check.Value(c.Submitter(t.Context(), shopAccount))(t)
		return fmt.Sprint(s.Status, " ", s.MaxInFlight, " ", s.Name)
	}
	p.Shows(at+"/suspend", 1, `name="csrf" value="the-csrf-token"`, "What is known", `name="reason"`)
	p.Refuses(at+"/suspend", url.Values{"reason": {" "}}, 400, 1, "Write why you do this")
	check.Equal(t, "after no reason", status(), "ACTIVE 1 ")
	p.Does(at+"/suspend", url.Values{"reason": {"an audit"}}, 2, at)
	check.Equal(t, "after suspend", status(), "SUSPENDED 1 ")
	p.Refuses(at+"/suspend", url.Values{"reason": {"once <i>more"}}, 409, 3, `data-code="TOO_LATE"`, "once &lt;i&gt;more</textarea>")
	p.Shows(at, 5, at+"/resume", "an audit", "ann@fencepost.example")
	p.Does(at+"/resume", url.Values{"reason": {"done"}}, 2, at)
	p.Shows(at+"/edit", 1, `value="1"`)
	p.Refuses(at+"/edit", url.Values{"reason": {"a name"}, "maxInFlight": {"0"}, "name": {"payouts"}}, 400, 1, "from 1 to 10,000", `value="payouts"`)
	p.Does(at+"/edit", url.Values{"reason": {"a name"}, "maxInFlight": {"1"}, "name": {"payouts"}}, 2, at)
	check.Equal(t, "after resume and edit", status(), "ACTIVE 1 payouts")
	p.Shows(at+"/policy", 2, "The present policy", `name="policy"`)
	p.Refuses(at+"/policy", url.Values{"reason": {"a limit"}, "policy": {`{"maxPerMinute": 9,}`}}, 400, 2, "The policy is not JSON", "9,}</textarea>")
	p.Refuses(at+"/policy", url.Values{"reason": {"a limit"}, "policy": {`{"maxGas": 5}`}}, 400, 5, `data-code="INVALID_FIELD"`, "maxGas")
	p.Does(at+"/policy", url.Values{"reason": {"a limit"}, "policy": {`{"maxPerMinute": 9}`}}, 3, at)
	p.Refuses(at+"/callers", url.Values{"reason": {"one more"}, "callers": {"shop@fencepost.example"}}, 400, 3, "email:shop@fencepost.example")
	p.Does(at+"/callers", url.Values{"reason": {"one more"}, "callers": {"email:shop@fencepost.example\r\nhandler:shop"}}, 2, at)
	p.Refuses(at+"/signer", url.Values{"reason": {"moved"}, "signer": {"remote:nowhere"}}, 400, 3, `data-code="INVALID_FIELD"`, `value="remote:nowhere"`)
	p.Does(at+"/signer", url.Values{"reason": {"moved"}, "signer": {"local"}}, 2, at)
	changed := check.Value(c.Submitter(t.Context(), shopAccount))(t)
	check.Equal(t, "after policy and callers", fmt.Sprint(changed.Policy.MaxPerMinute, changed.Callers), "9 [email:shop@fencepost.example handler:shop]")
	p.Refuses(at+"/retire", url.Values{"reason": {"moved"}, "confirm": {"payout"}}, 400, 1, "Type payouts to confirm")
	p.Refuses(at+"/retire", url.Values{"reason": {"moved"}, "confirm": {"payouts"}}, 409, 3, `data-code="SUBMITTER_IN_USE"`)

	id := check.Value(collect(c.FindTxs(t.Context(), client.TxFilter{RequestID: "r5"}), func(x client.FoundTx) string { return x.TxID }))(t)
	of := page.Path("tx", id)
	p.Shows(of+"/cancel", 5, "EARLIER_INTENT", "Type <code>"+id[30:])
	p.Refuses(of+"/cancel", url.Values{"reason": {"not wanted"}, "confirm": {"no"}}, 400, 5, `data-code="INVALID_FORM"`)
	p.Does(of+"/cancel", url.Values{"reason": {"not wanted"}, "confirm": {id[30:]}}, 6, of)
	p.Shows(of, 5, `data-field="subState">CANCELLED`, "The path of this transaction: QUEUED → FAILED", "asked by email:ann@fencepost.example: not wanted")
	p.Refuses(of+"/decide", url.Values{"reason": {"r"}, "action": {"replace"}}, 409, 11, `data-code="TOO_LATE"`, `value="replace" required checked`)
	p.Refuses(of+"/proceed", url.Values{"reason": {"r"}}, 409, 11, `data-code="TOO_LATE"`)
}
