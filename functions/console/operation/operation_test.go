package operation_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/operation"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

const attack = `"><script>alert(1)</script>`

// An endpoint's answer is data, and each act on an endpoint is the API's call.
func TestEndpointsAreShownAndActedOn(t *testing.T) {
	t.Parallel()
	shop := client.WebhookEndpoint{Name: "shop", Kind: "webhook", Host: "shop.example", Path: "/hook", Backlog: client.EndpointBacklog{Events: 12, Submitters: 2},
		Oldest:     &client.EndpointOldest{Submitter: "eip155:1:0xab", Since: time.Now(), Attempts: 4, LastError: new("HTTP 500")},
		LastAnswer: &client.EndpointAnswer{Status: new(500), Text: attack, At: time.Now()}, UnansweredCalls: 1}
	a := consoletest.Answers{"GET /admin/v1/webhook-endpoints": map[string]any{"endpoints": []client.WebhookEndpoint{shop}}}
	c := consoletest.New(t, operation.Section(nil), a)
	c.Shows("/console/webhooks", 1, "12 events of 2 submitters", "HTTP 500", "&lt;script&gt;", "/console/webhooks/shop/pause")
	for _, one := range []struct {
		act    string
		form   url.Values
		answer any
		want   map[string]any
	}{
		{"test", url.Values{}, client.TestResult{}, map[string]any{"reason": "r"}},
		{"pause", url.Values{}, shop, map[string]any{"reason": "r"}},
		{"resume", url.Values{}, shop, map[string]any{"reason": "r"}},
		{"redeliver", url.Values{"after": {"4711"}, "confirm": {"shop"}}, client.Redelivery{}, map[string]any{"after": "4711", "submitter": nil, "reason": "r"}},
	} {
		path, route := "/console/webhooks/shop/"+one.act, "POST /admin/v1/webhook-endpoints/shop/"+one.act
		c.Shows(path, 1, "&lt;script&gt;", "shop.example")
		one.form.Set("reason", "r")
		a[route] = one.answer
		check.Same(t, one.act, c.Does(path, one.form, 1, "/console/webhooks").Body, one.want)
		a[route] = &client.Problem{Status: 409, Code: "TOO_LATE", Detail: "it is not so"}
		c.Refuses(path, one.form, 409, 2, "it is not so", "Open the page Webhook endpoints again")
		a[route] = consoletest.Proposed{ProposalID: "p1"}
		c.Does(path, one.form, 1, "/console/proposals/p1")
	}
	c.Refuses("/console/webhooks/shop/redeliver", url.Values{"after": {"0"}, "reason": {"r"}}, 400, 1, "Type shop to confirm")
	w, _ := c.Get("/console/webhooks/shop/nonsense")
	check.Equal(t, "an unknown act", w.Code, 404)
}

// A chain's page says whether enough nodes can vote.
func TestChainsSayWhetherNodesAreEnough(t *testing.T) {
	t.Parallel()
	chain := client.Chain{ChainID: 1, Namespace: "eip155", Finality: "confirmations", Confirmations: new(uint64(12)), Quorum: 2, BlockTime: 12000, MeasuredBlockTime: new(int64(11900)), BaseFeePerGas: "1500000007", Nodes: []client.Node{
		{Name: "node-1", Head: new(uint64(1234)), HeadAt: new(time.Now()), Lag: new(uint64(0)), Finalized: new(uint64(1200))},
		{Name: "node-2", Error: attack},
		{Name: "node-3", Head: new(uint64(1000)), Lag: new(uint64(234)), Excluded: "lag", ExcludedUntil: new(time.Now()), LastError: "it lags", LastErrorAt: new(time.Now())},
	}}
	c := consoletest.New(t, operation.Section(nil), consoletest.Answers{"GET /admin/v1/chains": func(consoletest.Call) any { return map[string]any{"chains": []client.Chain{chain}} }})
	c.Shows("/console/chains", 1, "1 of 3 nodes can vote; 2 must agree", "Too few", "blocks deep: 12", "11.900 s measured", "1.500000007 gwei", `data-field="head">1234<`, "&lt;script&gt;", "it lags")
	chain.BaseFeePerGas = ""
	c.Shows("/console/chains", 1, `data-field="baseFee">none<`)
	chain.Nodes = chain.Nodes[1:2]
	c.Shows("/console/chains", 1, `data-field="baseFee">unknown: no node answered<`)
}

func actBy(by string, n int) client.Act {
	return client.Act{At: time.Date(2026, 11, 27, 3, 0, n, 0, time.UTC), By: by, Act: "suspend", Subject: client.ActSubject{Kind: "submitter", ID: "eip155:1:0xab", Submitter: "eip155:1:0xab"}, Reason: new(attack), After: json.RawMessage(`{"status":"SUSPENDED"}`)}
}

// The audit sends its filters and keeps them in the addresses of the next page and of the export.
func TestAuditIsFiltered(t *testing.T) {
	t.Parallel()
	var sent url.Values
	a := consoletest.Answers{"GET /admin/v1/audit": func(call consoletest.Call) any {
		sent = call.Query
		return map[string]any{"acts": []client.Act{actBy("email:ann@fencepost.example", 1)}, "nextPageToken": "later"}
	}}
	c := consoletest.New(t, operation.Section(nil), a)
	c.Shows("/console/audit?who=ann&act=suspend&since=2026-11-27T03:00", 1, "suspend", "&lt;script&gt;", "&#34;status&#34;: &#34;SUSPENDED&#34;",
		"/console/audit?act=suspend&amp;pageToken=later&amp;since=2026-11-27T03%3A00&amp;who=ann", "/console/audit.csv?act=suspend&amp;since=2026-11-27T03%3A00&amp;who=ann")
	check.Equal(t, "the query", sent.Encode(), "act=suspend&since=2026-11-27T03%3A00%3A00Z&who=ann")
	c.Shows("/console/audit?since=yesterday", 0, "Give a date and time in UTC")
}

// An export has all pages up to its bound, and no cell is a formula.
func TestExportIsBoundedAndHasNoFormula(t *testing.T) {
	t.Parallel()
	pages := 3
	a := consoletest.Answers{"GET /admin/v1/audit": func(call consoletest.Call) any {
		n := 1
		_, _ = fmt.Sscan(call.Query.Get("pageToken"), &n)
		rows := map[string]any{"acts": []client.Act{actBy("=cmd|' /C calc'!A0", n), actBy(" +1", n)}}
		if n < pages {
			rows["nextPageToken"] = fmt.Sprint(n + 1)
		}
		return rows
	}}
	c := consoletest.New(t, operation.Section(nil), a)
	w, calls := c.Get("/console/audit.csv")
	check.Equal(t, "calls", len(calls), 3)
	check.Equal(t, "Content-Type", w.Header().Get("Content-Type"), "text/csv; charset=utf-8")
	rows := check.Value(csv.NewReader(w.Body).ReadAll())(t)
	check.Equal(t, "rows", len(rows), 1+2*3)
	check.Equal(t, "a formula", rows[1][1], "'=cmd|' /C calc'!A0")
	check.Equal(t, "a formula after a space", rows[2][1], "' +1")
	check.Equal(t, "another text", rows[1][2], "suspend")
	pages = 1000
	w, calls = c.Get("/console/audit.csv")
	check.Equal(t, "calls of a long one", len(calls), 100)
	if text := w.Body.String(); !strings.Contains(text, "\r\nINCOMPLETE,") {
		t.Errorf("a file with the bound: got no last line that says so: %q", text[max(0, len(text)-200):])
	}
	a["GET /admin/v1/audit"] = &client.Problem{Status: 403, Code: "FORBIDDEN", Detail: "only operators"}
	if w, _ := c.Get("/console/audit.csv"); w.Code != 403 || !strings.Contains(w.Body.String(), "only operators") {
		t.Errorf("refused: got %d %s, want a page with the refusal", w.Code, w.Body)
	}
}

// A cell has no formula after a separator by which a spreadsheet may split it, and other texts stay.
func TestExportHasNoFormulaWithinACell(t *testing.T) {
	t.Parallel()
	for by, guarded := range map[string]bool{
		"a;=1+1": true, "a\t+1": true, "a\r\n-1": true, "a\n@x": true, "a; =1": true, `a;"=1`: true, "a;＝1": true,
		"a; b": false, "a = b": false, "ann-lee@fencepost.example": false, "1-2": false, "[1,-2]": false, "a\nb": false,
	} {
		c := consoletest.New(t, operation.Section(nil), consoletest.Answers{"GET /admin/v1/audit": map[string]any{"acts": []client.Act{actBy(by, 1)}}})
		w, _ := c.Get("/console/audit.csv")
		rows := check.Value(csv.NewReader(w.Body).ReadAll())(t)
		if want := map[bool]string{true: "'"}[guarded] + strings.ReplaceAll(by, "\r\n", "\n"); rows[1][1] != want {
			t.Errorf("%q: got %q, want %q", by, rows[1][1], want)
		}
	}
}

// The export has more time than a page: it makes up to 100 calls.
func TestExportHasMoreTime(t *testing.T) {
	t.Parallel()
	for _, r := range operation.Section(nil).Routes {
		if long := r.Pattern == "GET /console/audit.csv"; long != (r.Within > 15*time.Second) {
			t.Errorf("%s: got %s", r.Pattern, r.Within)
		}
	}
}

// An export that the API refuses midway says so in its last line.
func TestExportSaysThatItIsIncomplete(t *testing.T) {
	t.Parallel()
	c := consoletest.New(t, operation.Section(nil), consoletest.Answers{"GET /admin/v1/audit": func(call consoletest.Call) any {
		if call.Query.Get("pageToken") != "" {
			return &client.Problem{Status: 403, Code: "FORBIDDEN", Detail: "no operator any more"}
		}
		return map[string]any{"acts": []client.Act{actBy("ann", 1)}, "nextPageToken": "2"}
	}})
	if w, _ := c.Get("/console/audit.csv"); !strings.Contains(w.Body.String(), "INCOMPLETE") || !strings.Contains(w.Body.String(), "no operator any more") {
		t.Errorf("got %s, want a last line with the reason", w.Body)
	}
}

// drillControl is a control address: its state, the calls that it got, and the refusal of a start.
type drillControl struct {
	state   string // in JSON
	calls   []string
	refusal string
}

func (d *drillControl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.calls = append(d.calls, r.Method+" "+r.URL.String())
	if r.Method == http.MethodGet {
		_, _ = w.Write([]byte(d.state))
	} else if r.Method == http.MethodPost && d.refusal != "" {
		http.Error(w, d.refusal, http.StatusConflict)
	}
}

// Only the local environment has the page Drill. It reads, starts and stops drills by the control address, shows its refusal,
// and makes no call of the API.
func TestDrillsAreStartedInTheLocalEnvironment(t *testing.T) {
	t.Parallel()
	w, _ := consoletest.New(t, operation.Section(nil), nil).Get("/console/drill")
	check.Equal(t, "outside the local environment", w.Code, 404)
	const drills = `"drills": [{"name": "reorg", "meaning": "a reorg", "runbook": "docs/runbooks/protect.md"}, {"name": "slow-node", "needs": "it needs several nodes"}]`
	d := &drillControl{state: "{" + drills + "}"}
	s := httptest.NewServer(d)
	defer s.Close()
	c := consoletest.New(t, operation.Section(operation.RemoteDrills(s.URL+"/")), nil)
	c.Shows("/console/drill", 0, "Start reorg", "it needs several nodes", "runbooks/protect.md")
	c.Does("/console/drill/reorg", url.Values{"solve": {"true"}}, 0, "/console/drill")
	started := time.Now().Add(-5 * time.Minute).UTC()
	d.state = fmt.Sprintf(`{%s, "run": {"name": "reorg", "started": %q, "output": %q}}`, drills, started.Format(time.RFC3339), attack)
	c.Shows("/console/drill", 0, "runs", started.Format("2006-01-02T15:04:05"), "&lt;script&gt;", `hx-trigger="every 2s"`, "Stop the drill")
	c.Does("/console/drill/stop", nil, 0, "/console/drill")
	check.Equal(t, "calls", strings.Join(d.calls, ", "), "GET /drills, POST /drills/reorg?solve=true, GET /drills, DELETE /drills")
	d.refusal = "another drill is running: end it first"
	c.Refuses("/console/drill/reorg", nil, 409, 0, "<p>another drill is running: end it first</p>")
	s.Close()
	c.Refuses("/console/drill/stop", nil, 409, 0, "is the emulator still running?")
}
