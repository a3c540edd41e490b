package incidents_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/incidents"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

const (
	shop     = "eip155:1:0x00000000000000000000000000000000000abcde"
	admin    = "/admin/v1/submitters/" + shop
	console  = "/console/submitters/" + shop
	txHash   = "0x1111111111111111111111111111111111111111111111111111111111111111"
	attack   = `"><script>alert(1)</script>`
	proposed = "0192a000-0000-7000-8000-000000000001"
)

var (
	since = time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	ahead = json.RawMessage(`{"why":"AHEAD","what":"w","expectedNonce":6,"latestCount":8,"pendingCount":8,"block":100,"blockHash":"0xab","node":"node-1","agreedBy":"node-2"}`)
)

func protected() client.Submitter {
	return client.Submitter{Submitter: shop, Name: "shop", NextNonce: 6, Queued: 3, InFlightState: "PROTECT",
		Protect: &client.ProtectIncident{Incident: 4, Since: since, Evidence: ahead}}
}

// lost has two lost nonces: a request matches the first, and no node shows the second.
func lost(final uint64) client.LostNonces {
	return client.LostNonces{ChainCount: 8, FinalCount: &final, NextNonce: 6, Nonces: []client.LostNonce{
		{Nonce: 6, ConsumingTx: &client.ForeignTransaction{Hash: txHash, BlockNumber: 99, To: "0x00000000000000000000000000000000cafe0001", Value: "1000000000000000000"}, Succeeded: new(true),
			Intents: []client.MatchingIntent{{TxID: proposed, RequestID: attack, State: client.Queued}}},
		{Nonce: 7, Unknown: "no node has the block"},
	}}
}

func pastOf(all ...client.PastIncident) map[string]any { return map[string]any{"incidents": all} }

func answers() consoletest.Answers {
	return consoletest.Answers{
		"GET " + admin:                protected(),
		"GET " + admin + "/lost":      lost(8),
		"GET " + admin + "/incidents": pastOf(client.PastIncident{Incident: 4, OpenedAt: since, Evidence: ahead}),
	}
}

// The incident's page shows our side beside the chain's, the finalized count and the candidates, by 3 calls.
func TestIncidentShowsBothSides(t *testing.T) {
	t.Parallel()
	c := consoletest.New(t, incidents.Section(), answers())
	c.Shows(console+"/protect", 3, `data-field="incident">4<`, "Another program or person has used the key", `data-field="expectedNonce">6<`, `data-field="latestCount">8<`,
		`data-field="finalizedCount">8<`, "A release can be tried now", txHash, "1 ether", "&lt;script&gt;", "no node has the block", `/protect/release?mode=resync"`, `hx-trigger="every 5s"`)
	c.Viewer = true
	c.Lacks(console+"/protect", nil, "/protect/release", "<script>alert")
}

// While the loss is not final, or no node answers, the page says so and is drawn.
func TestIncidentWithoutAFinalLoss(t *testing.T) {
	t.Parallel()
	a := answers()
	a["GET "+admin+"/lost"] = lost(5)
	consoletest.New(t, incidents.Section(), a).Shows(console+"/protect", 3, "Not yet: of 8 transactions 3 can still be undone", `data-field="finalizedCount">5<`)
	a = answers()
	a["GET "+admin+"/lost"] = &client.Problem{Status: 503, Code: "UNAVAILABLE", Detail: "the chain could not be read"}
	consoletest.New(t, incidents.Section(), a).Shows(console+"/protect", 3, "The chain could not be read: the chain could not be read")
	a = answers()
	for status, want := range map[string]string{"ACTIVE": "intents are accepted and sent", "SUSPENDED": "it is suspended: new intents are refused", "RETIRED": "it is retired: new intents are refused for ever"} {
		none := protected()
		none.Protect, none.Status = nil, status
		a["GET "+admin] = none
		c := consoletest.New(t, incidents.Section(), a)
		c.Shows(console+"/protect", 3, "No incident is open", want)
		if status != "ACTIVE" {
			c.Lacks(console+"/protect", nil, "accepted and sent")
		}
	}
}

// Where not all requests were compared, neither page says that none wants the same.
func TestAnIncompleteComparisonIsSaid(t *testing.T) {
	t.Parallel()
	a := answers()
	const none, few = "equest here wants the same", "among those compared; there are more"
	for more, want := range map[bool]string{false: none, true: few} {
		l := lost(8)
		l.Nonces[0].Intents, l.IntentsMore = nil, more
		a["GET "+admin+"/lost"] = l
		c := consoletest.New(t, incidents.Section(), a)
		for path, calls := range map[string]int{"/protect": 3, "/protect/release?mode=resync": 2} {
			c.Shows(console+path, calls, want)
			if more {
				c.Lacks(console+path, nil, none)
			}
		}
	}
}

// The lost nonces are read again with the rest, each with its whole hash and receiver, and agree with the finalized count.
func TestLostNoncesAreLiveAndWhole(t *testing.T) {
	t.Parallel()
	a := answers()
	of := func(final uint64) string {
		l := lost(final)
		l.Nonces[0].Succeeded = nil
		a["GET "+admin+"/lost"] = l
		return consoletest.New(t, incidents.Section(), a).Live(console + "/protect")
	}
	if text := of(8); !strings.Contains(text, ">"+txHash+"<") || !strings.Contains(text, ">0x00000000000000000000000000000000cafe0001<") || !strings.Contains(text, "whether it succeeded was not read yet") || strings.Contains(text, "not final yet") {
		t.Errorf("with all final: the live part lacks the whole hash or receiver, or says that a nonce is not final\n%s", text)
	}
	if text := of(6); !strings.Contains(text, "not final yet") {
		t.Errorf("before finality: got no word that the nonce is not final\n%s", text)
	}
}

// After a reorg the page says whether the transaction is on the chain again.
func TestIncidentOfAReorg(t *testing.T) {
	t.Parallel()
	a := answers()
	s := protected()
	s.Protect.Evidence = json.RawMessage(`{"why":"REORG","expectedNonce":8,"latestCount":7,"final":{"number":99,"hash":"0xcd"}}`)
	a["GET "+admin] = s
	c := consoletest.New(t, incidents.Section(), a)
	c.Shows(console+"/protect", 3, "not on the chain any more", "Yes: the chain has as many", "Nothing was lost (resume)", `data-field="expectedCount">8<`, "0xcd")
	a["GET "+admin+"/lost"] = client.LostNonces{ChainCount: 7}
	c.Shows(console+"/protect", 3, "The same signed bytes are sent again")
}

// ticked is the form with an answer for each nonce.
func ticked(more url.Values) url.Values {
	form := url.Values{"mode": {"resync"}, "incident": {"4"}, "count": {"8"}, "reason": {"the old wallet"}, "request-6": {"id:" + attack}, "request-7": {"other"}, "other-7": {"order-7"}, "hash-7": {txHash}}
	maps.Copy(form, more)
	return form
}

// A resync is tried first, and the trial shows what would happen. Then the same answers release.
func TestReleaseIsTriedAndCarriedOut(t *testing.T) {
	t.Parallel()
	a := answers()
	a["POST "+admin+"/release"] = func(call consoletest.Call) any {
		return client.ReleaseReport{Submitter: shop, Incident: 4, Displaced: []uint64{6}, NextNonce: 8, DryRun: call.Query.Get("dryRun") == "true",
			Named: []client.Named{{Nonce: 6, RequestID: attack, TxID: proposed, Effect: "RECORDED"}}}
	}
	c := consoletest.New(t, incidents.Section(), a)
	c.Shows(console+"/protect/release?mode=resync", 2, `name="request-6" value="id:&#34;&gt;&lt;script&gt;`, `name="count" value="8"`, `name="incident" value="4"`, `value="the-csrf-token"`, "It cannot be undone")
	c.Refuses(console+"/protect/release", ticked(url.Values{"step": {"try"}}), 200, 3, "nothing is changed yet", `data-field="trialNextNonce">8<`, "Ends as carried out and never runs again",
		"No request ends for nonce 7", `name="request-7" value="other"`, `name="other-7" value="order-7"`, "Type <code>0abcde</code>")
	c.Refuses(console+"/protect/release", ticked(nil), 400, 2, "Type 0abcde to confirm", `name="other-7" value="order-7"`)
	c.Refuses(console+"/protect/release", ticked(url.Values{"step": {"edit"}}), 200, 2, `name="other-7" value="order-7"`, "checked> It was the request")
	sent := c.Does(console+"/protect/release", ticked(url.Values{"confirm": {"0abcde"}}), 1, console+"/protect")
	check.Same(t, "the release", sent.Body, map[string]any{"incident": 4.0, "mode": "resync", "reason": "the old wallet", "count": 8.0,
		"requests": map[string]any{"6": attack, "7": "order-7"}, "hashes": map[string]any{"7": txHash}})
	check.Equal(t, "the release is no trial", sent.Query.Get("dryRun"), "")
}

// A resume needs no trial and no confirmation. A refusal is shown with what to do, and the entered values stay.
func TestResumeAndRefusals(t *testing.T) {
	t.Parallel()
	a := answers()
	c := consoletest.New(t, incidents.Section(), a)
	c.Shows(console+"/protect/release?mode=resume", 1, "the nodes were wrong, and nothing was lost")
	a["POST "+admin+"/release"] = client.ReleaseReport{Submitter: shop, Incident: 4}
	sent := c.Does(console+"/protect/release", url.Values{"mode": {"resume"}, "incident": {"4"}, "reason": {"a node was behind"}}, 1, console+"/protect")
	check.Same(t, "the release", sent.Body, map[string]any{"incident": 4.0, "mode": "resume", "reason": "a node was behind"})
	for _, refused := range []struct {
		problem client.Problem
		status  int
		want    string
	}{
		{client.Problem{Status: 400, Code: "INVALID_FIELD", Field: "requests", Detail: "must say for each"}, 400, "For each nonce that the text lists"},
		{client.Problem{Status: 400, Code: "INVALID_FIELD", Field: "count", Detail: "is another"}, 400, "The form now has the new one"},
		{client.Problem{Status: 409, Code: "TOO_LATE", Detail: "that incident is not open"}, 409, "Another operator was faster"},
		{client.Problem{Status: 409, Code: "NOT_LEADER", Detail: "is being served"}, 409, "Wait a few seconds"},
		{client.Problem{Status: 503, Code: "UNAVAILABLE", Detail: "ask again"}, 503, "about 2,000"},
		{client.Problem{Status: 503, Code: "UNAVAILABLE", Detail: "ask again"}, 503, "It is not known whether it was carried out"},
	} {
		a["POST "+admin+"/release"] = &refused.problem
		c.Refuses(console+"/protect/release", ticked(url.Values{"confirm": {"0abcde"}}), refused.status, 3, refused.problem.Detail, refused.want, "the old wallet</textarea>")
		c.Refuses(console+"/protect/release", ticked(url.Values{"step": {"try"}}), refused.status, 3, refused.problem.Detail, refused.want)
	}
	a["POST "+admin+"/release"] = consoletest.Proposed{ProposalID: proposed}
	c.Does(console+"/protect/release", ticked(url.Values{"confirm": {"0abcde"}}), 1, "/console/proposals/"+proposed)
	c.Refuses(console+"/protect/release", ticked(url.Values{"step": {"try"}, "reason": {""}}), 400, 2, "Write why you release")
	c.Refuses(console+"/protect/release", ticked(url.Values{"count": {"eight"}, "confirm": {"0abcde"}}), 400, 2, "Give the finalized count")
	c.Refuses(console+"/protect/release", ticked(url.Values{"other-7": {" "}, "confirm": {"0abcde"}}), 400, 2, "Write the requestId that nonce 7 was")
}

// The form reads at most 5 pages of lost nonces, so it makes at most 6 calls, and says that there are more.
func TestReleaseFormIsBounded(t *testing.T) {
	t.Parallel()
	a := answers()
	more := lost(8)
	more.NextPageToken = "more"
	a["GET "+admin+"/lost"] = more
	consoletest.New(t, incidents.Section(), a).Shows(console+"/protect/release?mode=resync", 6, "more lost nonces than this form shows")
}

// Foreign transactions are listed, matched and written off. A write-off of all makes up to 10 calls.
func TestForeignTransactionsAreDecided(t *testing.T) {
	t.Parallel()
	a := consoletest.Answers{
		"GET " + admin + "/foreign":            map[string]any{"foreign": []client.OpenForeign{{Nonce: 6, TxHash: txHash, ValueWei: "7", Succeeded: true, TxID: proposed, RequestID: attack, Since: since}}, "nextPageToken": "later"},
		"POST " + admin + "/foreign/match":     client.MatchResult{TxID: proposed},
		"POST " + admin + "/foreign/write-off": client.WriteOffResult{WrittenOff: 1},
	}
	c := consoletest.New(t, incidents.Section(), a)
	c.Shows(console+"/foreign", 1, txHash, "&lt;script&gt;", "?pageToken=later", "/foreign/match?nonce=6")
	c.Shows(console+"/foreign/match?nonce=6", 1, `name="txId" value="`+proposed)
	c.Shows(console+"/foreign/write-off?nonce=6", 1, "carried out a second time")
	sent := c.Does(console+"/foreign/match", url.Values{"nonce": {"6"}, "txId": {proposed}, "reason": {"r"}, "confirm": {"6"}}, 1, console+"/foreign")
	check.Same(t, "match", sent.Body, map[string]any{"nonce": 6.0, "txId": proposed, "reason": "r"})
	sent = c.Does(console+"/foreign/write-off", url.Values{"nonce": {"6"}, "reason": {"r"}, "confirm": {"6"}}, 1, console+"/foreign")
	check.Same(t, "write off", sent.Body, map[string]any{"nonce": 6.0, "reason": "r"})
	all := url.Values{"nonce": {"6"}, "through": {"true"}, "reason": {"r"}, "confirm": {"6"}}
	c.Refuses(console+"/foreign/write-off", all, 400, 11, "Send the form again")
	left := 2
	a["POST "+admin+"/foreign/write-off"] = func(consoletest.Call) any {
		left--
		return client.WriteOffResult{WrittenOff: left}
	}
	c.Does(console+"/foreign/write-off", all, 2, console+"/foreign")
	left = 2
	a["POST "+admin+"/foreign/write-off"] = func(consoletest.Call) any {
		if left--; left == 0 {
			return &client.Problem{Status: 409, Code: "NOT_LEADER", Detail: "is being served"}
		}
		return client.WriteOffResult{WrittenOff: left}
	}
	c.Refuses(console+"/foreign/write-off", all, 409, 3, "is being served", "Some of the transactions were written off before that")
	all.Del("confirm")
	c.Refuses(console+"/foreign/write-off", all, 400, 1, "Type 6 to confirm")
	c.Refuses(console+"/foreign/write-off", url.Values{"nonce": {"6"}, "reason": {"r"}}, 400, 1, "Type 6 to confirm")
	c.Refuses(console+"/foreign/match", url.Values{"nonce": {"6"}, "txId": {proposed}, "reason": {"r"}}, 400, 1, "Type 6 to confirm")
	c.Refuses(console+"/foreign/match", url.Values{"nonce": {"six"}, "txId": {proposed}, "reason": {"r"}}, 400, 0, "a whole number")
}

// The forms show what they decide, from all pages up to the nonce: also beyond the first, and not beyond the nonce.
func TestWriteOffShowsWhatItCovers(t *testing.T) {
	t.Parallel()
	const perPage, all = 50, 2000
	a := consoletest.Answers{"GET " + admin + "/foreign": func(call consoletest.Call) any {
		var from int
		_, _ = fmt.Sscan(cmp.Or(call.Query.Get("pageToken"), call.Query.Get("from")), &from)
		rows := make([]client.OpenForeign, 0, perPage)
		for n := from; n < from+perPage; n++ {
			rows = append(rows, client.OpenForeign{Nonce: uint64(n), TxHash: txHash, ValueWei: "7", To: "0x00000000000000000000000000000000cafe0001", TxID: proposed, RequestID: fmt.Sprint("order-", n, "-", attack)})
		}
		answer := map[string]any{"foreign": rows}
		if from+perPage < all {
			answer["nextPageToken"] = fmt.Sprint(from + perPage)
		}
		return answer
	}}
	c := consoletest.New(t, incidents.Section(), a)
	to := console + "/foreign/write-off?through=true&nonce="
	c.Shows(to+"119", 3, `data-field="covered">120<`, `data-field="coveredHeld">120<`, `data-nonce="99"`, "order-99-&#34;", "And 20 more", ">"+txHash+"<", ">0x00000000000000000000000000000000cafe0001<")
	c.Lacks(to+"60", nil, `data-nonce="61"`, "not listed here")
	c.Shows(to+"5000", 20, "at least 1 000", "And at least 900 more")
	c.Shows(console+"/foreign/write-off?nonce=130", 1, "order-130-", ">"+txHash+"<")
	c.Shows(console+"/foreign/match?nonce=1900", 1, "order-1900-", `name="txId" value="`+proposed)
	c.Shows(console+"/foreign?from=1900", 1, "order-1900-", "?from=1900&amp;pageToken=1950", `name="from" value="1900"`)
	if w, _ := c.Get(console + "/foreign?from=x"); w.Code != 400 || !strings.Contains(w.Body.String(), "a whole number") {
		t.Errorf("from no nonce: got %d, want 400 with what to give\n%s", w.Code, w.Body)
	}
	a["GET "+admin+"/foreign"] = map[string]any{"foreign": []client.OpenForeign{}}
	c.Shows(to+"5", 1, "Another operator may have decided")
	a["GET "+admin+"/foreign"] = &client.Problem{Status: 403, Code: "FORBIDDEN", Detail: "only operators"}
	c.Shows(to+"5", 1, "Not all that this covers could be read: only operators")
}

func proposalOf(by, status string) client.Proposal {
	return client.Proposal{ProposalID: proposed, Status: status, Kind: "release", Act: "release", Subject: json.RawMessage(`{"nonce":6,"submitter":"` + shop + `"}`), Effect: "ends PROTECT incident 4", Method: "POST", Path: "/admin/v1/x",
		Body: json.RawMessage(`{"mode":"resync","reason":"<b>"}`), ObservedState: json.RawMessage(`{"incident":4}`), ProposedBy: by, Reason: attack, CreatedAt: since, ExpiresAt: since.Add(24 * time.Hour)}
}

// A second operator sees the evidence and approves or rejects. The proposer sees why that is not possible.
func TestProposalsAreDecidedByAnother(t *testing.T) {
	t.Parallel()
	one, page := "/admin/v1/proposals/"+proposed, "/console/proposals/"+proposed
	a := consoletest.Answers{
		"GET /admin/v1/proposals":  map[string]any{"proposals": []client.Proposal{proposalOf("email:ben@fencepost.example", "PROPOSED")}},
		"GET " + one:               proposalOf("email:ben@fencepost.example", "PROPOSED"),
		"POST " + one + "/approve": proposalOf("email:ben@fencepost.example", "CARRIED_OUT"),
		"POST " + one + "/reject":  proposalOf("email:ben@fencepost.example", "REJECTED"),
	}
	c := consoletest.New(t, incidents.Section(), a)
	c.Shows("/console/proposals", 1, "ends PROTECT incident 4", page, "&lt;script&gt;")
	c.Shows("/console/proposals?state=all", 1)
	c.Shows(page, 1, "A second operator must approve", page+"/approve", "&#34;mode&#34;: &#34;resync&#34;", "&#34;incident&#34;: 4", console+"/protect")
	c.Shows(page+"/approve", 1, "Approve and carry out")
	c.Shows(page+"/reject", 1, "changes nothing")
	check.Same(t, "approve", c.Does(page+"/approve", url.Values{"reason": {"read it"}, "confirm": {"000001"}}, 1, page).Body, map[string]any{"reason": "read it"})
	c.Does(page+"/reject", url.Values{"reason": {"not they"}}, 1, page)
	a["POST "+one+"/approve"] = &client.Problem{Status: 409, Code: "PROPOSAL_STALE", Detail: "has changed"}
	c.Refuses(page+"/approve", url.Values{"reason": {"read it"}, "confirm": {"000001"}}, 409, 2, "has changed", "propose it again")
	c.Refuses(page+"/approve", url.Values{"reason": {"read it"}}, 400, 1, "Type 000001 to confirm")
	a["GET "+one] = proposalOf("email:"+consoletest.Person, "PROPOSED")
	c.Shows(page, 1, `data-field="own"`, page+"/reject")
	c.Lacks(page, nil, page+"/approve")
}
