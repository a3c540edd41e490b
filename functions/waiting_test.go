package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// A caller sees why its transaction waits, its place in the queue, and what it waits for.
func TestCallerSeesWhyItsTransactionWaits(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	ids := map[string]string{}
	for _, name := range []string{"first", "second"} {
		ids[name] = h.createTx(name)
	}
	read := func(path string) answer { return h.as("shop", "GET", "/api/v1/tx/"+path, nil) }
	h.run(`update managed_tx set wait_cause = 'BALANCE', waiting_since = now() where tx_id = $1`, ids["first"])
	check.Equal(t, "the head", read(ids["first"]).is("waiting.cause", "waiting.position", "waiting.blockedBy", "waiting.expectedAt"), "200 BALANCE 1 <nil> <nil>")
	second := read(ids["second"])
	check.Equal(t, "behind it", second.is("waiting.cause", "waiting.position", "waiting.blockedBy.txId", "waiting.blockedBy.cause"),
		"200 EARLIER_INTENT 2 "+ids["first"]+" BALANCE")
	check.Same(t, "by its request", read("by-request?submitter=" + shopAccount + "&requestId=second").body["waiting"], second.body["waiting"])
	h.as("shop", "POST", "/api/v1/tx/"+ids["first"]+"/cancel", nil).wants(t, 200, "cancel")
	check.Equal(t, "ended", read(ids["first"]).is("waiting"), "200 <nil>")
}

// A process that does not know the chain of a transaction shows it, without an estimate.
func TestATransactionOfAnUnservedChainIsShown(t *testing.T) {
	t.Parallel()
	h := build(t)
	const account = "eip155:7:0x0000000000000000000000000000000000000a11"
	h.Register(t, account, 1)
	h.url = h.listen(h.opened("FUNCTION_TARGET=create", "FENCEPOST_RPC_URLS=", `FENCEPOST_CHAINS=[{"id": 7, "urls": ["http://127.0.0.1:1"]}]`), "create")
	id := fmt.Sprint(h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": account, "requestId": "r", "payload": map[string]any{"to": paidTo}}).body["txId"])
	h.url = h.listen(h.opened("FUNCTION_TARGET=query", "FENCEPOST_RPC_URLS="), "query")
	a := h.as("shop", "GET", "/api/v1/tx/"+id, nil)
	a.wants(t, 200, "the caller's read")
	check.Equal(t, "state", fmt.Sprint(a.body["state"]), "QUEUED")
	h.url = h.listen(h.opened("FUNCTION_TARGET=admin"), "admin")
	h.as("ann", "GET", "/admin/v1/tx/"+id+"/why", nil).wants(t, 200, "the operator's read")
}

// An operator sees why a transaction waits, what can be done, and its past; a caller does not.
func TestOperatorSeesWhyATransactionWaits(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	id := h.createTx("1")
	h.run(`update managed_tx set wait_cause = 'BALANCE', waiting_since = now(), last_error = 'balance: too little' where tx_id = $1`, id)
	c := h.clientOf(h.callerToken("ann"))
	why, err := c.WhyTx(t.Context(), id)
	if err != nil || why.Waiting == nil || why.Waiting.Cause != "BALANCE" || why.NextActor == "" || why.Action == "" || why.Runbook != "docs/runbooks/balance.md" {
		t.Errorf("why: got %+v, %v; want BALANCE and its runbook", why, err)
	}
	cancel := "/api/v1/tx/" + id + "/cancel"
	h.as("shop", "POST", cancel, nil).wants(t, 200, "cancel")
	if why, err := c.WhyTx(t.Context(), id); err != nil || why.Waiting != nil || why.State != "FAILED" {
		t.Errorf("why, ended: got %+v, %v; want no wait", why, err)
	}
	var states []string
	for one, err := range c.ListTxHistory(t.Context(), id) {
		check.OK(t)(err)
		states = append(states, string(one.From)+">"+string(one.State)+" "+one.Reason)
	}
	check.Same(t, "history", states, []string{">QUEUED ", "QUEUED>QUEUED balance: too little", "QUEUED>FAILED cancelled: asked by email:shop@fencepost.example"})
	h.run(`insert into tx_decision (tx_id, action, by, reason) select $1, 'WAIT', 'ann', 'decision ' || i from generate_series(1, 2) as i`, id)
	decisions, err := collect(c.ListTxDecisions(t.Context(), id), func(d client.TxDecision) string { return d.Action + " " + d.Reason })
	check.Equal(t, fmt.Sprintf("decisions, error: %v", err), decisions, "CANCEL asked by email:shop@fencepost.example WAIT decision 1 WAIT decision 2")
	for what, rows := range map[string]int{"history": 3, "versions": 0, "decisions": 3} {
		check.Equal(t, what+" on pages of two", len(h.allRows(what, "/admin/v1/tx/"+id+"/"+what, "", 2)), rows)
	}
	for _, what := range []string{"why", "history", "versions", "decisions"} {
		check.Equal(t, what+" of none", h.as("ann", "GET", "/admin/v1/tx/01a1fda0-b1f9-7b07-a2c1-57c667e395bc/"+what, nil).is("code"), "404 NOT_FOUND")
	}
}

// An operator sees the PROTECT incidents of a submitter with evidence and release, page by page.
func TestOperatorSeesIncidents(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	path := "/admin/v1/submitters/" + shopAccount + "/incidents"
	check.Equal(t, "none", fmt.Sprint(h.as("ann", "GET", path, nil).body), "map[incidents:[]]")
	h.run(`insert into protect_incident (submitter, incident, evidence, closed_at, closed_by, mode, reason, released)
		values ($1, 1, '{"why": "AHEAD"}', now(), 'ann', 'resync', 'found them', '{"nextNonce": 3}'), ($1, 2, '{"why": "TAKEN"}', null, null, null, null, null)`, shopAccount)
	found, err := collect(h.clientOf(h.callerToken("ann")).ListIncidents(t.Context(), shopAccount), func(i client.PastIncident) string {
		return fmt.Sprint(i.Incident, " ", string(i.Evidence), " ", i.ClosedAt != nil, " ", i.Mode, i.ClosedBy, i.Reason, string(i.Released), ";")
	})
	check.Equal(t, fmt.Sprintf("incidents, error: %v", err), found, `2 {"why":"TAKEN"} false null; 1 {"why":"AHEAD"} true resyncannfound them{"nextNonce":3};`)
	check.Equal(t, "by pages", column(h.allRows("incidents", path, "", 1), "incident"), "2 1")
	check.Equal(t, "of none", h.as("ann", "GET", "/admin/v1/submitters/eip155:1337:0x00000000000000000000000000000000000000ff/incidents", nil).is("code"), "404 UNKNOWN_SUBMITTER")
}

// An operator cancels an intent by admin: with a reason, which is kept and audited. The answer is the one of a caller's cancel.
func TestOperatorCancelsByAdmin(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, ruleFor("release")...)
	id := h.createTx("a")
	cancel := "/admin/v1/tx/" + id + "/cancel"
	for _, reason := range []string{"", " ", strings.Repeat("r", 1001)} {
		check.Equal(t, "reason "+reason, h.ann("POST", cancel, members{"reason": reason}).is("code", "field"), "400 INVALID_FIELD reason")
	}
	check.Equal(t, "none", h.ann("POST", "/admin/v1/tx/01a1fda0-b1f9-7b07-a2c1-57c667e395bc/cancel", members{"reason": "r"}).is("code"), "404 NOT_FOUND")
	check.Equal(t, "before", h.one(`select state || ' ' || (select count(*) from tx_decision) from managed_tx`), "QUEUED 0")
	for range 2 {
		check.Equal(t, "cancel", h.ann("POST", cancel, members{"reason": "not wanted"}).is("outcome", "state", "subState"), "200 CANCELLED FAILED CANCELLED")
	}
	h.audited("POST", cancel, "asked by sub:ann-at-work: not wanted")
	check.Equal(t, "decisions", h.one(`select string_agg(action || ' ' || by || ' ' || coalesce(operator, false), ',') from tx_decision`), "CANCEL sub:ann-at-work true")

	h.Register(t, payer, 1)
	bound := fmt.Sprint(h.as("shop", "POST", "/api/v1/tx", members{"submitter": payer, "requestId": "b", "payload": members{"to": paidTo}}).body["txId"])
	h.run(`update managed_tx set state = 'IN_FLIGHT', nonce = 0 where tx_id = $1`, bound)
	check.Equal(t, "with a nonce", h.ann("POST", "/admin/v1/tx/"+bound+"/cancel", members{"reason": "r"}).is("outcome"), "202 PENDING")
}
