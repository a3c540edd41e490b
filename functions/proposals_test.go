package functions_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/config"
)

// ruleFor returns settings with the two-person rule for these kinds.
func ruleFor(kinds ...string) []string {
	return []string{
		"FENCEPOST_AUTH_OPERATORS=email:ann@fencepost.example,sub:ann-at-work,email:ben@fencepost.example,email:cat@fencepost.example",
		"FENCEPOST_APPROVALS_REQUIRED=" + strings.Join(kinds, ","),
	}
}

// by calls an admin function with a token of this subject and e-mail; "": it has none.
func (h deployment) by(subject, email, method, path string, body any) answer {
	h.t.Helper()
	claims := jwt.MapClaims{"sub": subject}
	if email != "" {
		claims["email"], claims["email_verified"] = email+"@fencepost.example", true
	}
	return call(h.t, h.t.Context(), h.issuer.token(h.t, "public", claims), method, h.url+path, body)
}

func (h deployment) ann(method, path string, body any) answer {
	return h.by("ann-at-work", "ann", method, path, body)
}
func (h deployment) ben(method, path string, body any) answer {
	return h.by("ben", "ben", method, path, body)
}

// propose makes a call as ann and requires that it becomes a proposal.
func (h deployment) propose(method, path string, body any) (proposal string, a answer) {
	h.t.Helper()
	a = h.ann(method, path, body)
	id, _ := a.body["proposalId"].(string)
	if a.status != 202 || id == "" || a.header.Get("Location") != "/admin/v1/proposals/"+id || a.body["status"] != "PROPOSED" {
		h.t.Fatalf("%s %s: got %d %v, want it proposed", method, path, a.status, a.body)
	}
	return "/admin/v1/proposals/" + id, a
}

// decide proposes a call as ann, and returns the answer to its approval by ben.
func (h deployment) decide(method, path string, body any) answer {
	h.t.Helper()
	proposal, _ := h.propose(method, path, body)
	return h.ben("POST", proposal+"/approve", agreed)
}

var agreed = members{"reason": "seen, and agreed"}

const ofShop = "/admin/v1/submitters/" + shopAccount

// An act that needs no chain is proposed by one operator, and changes nothing until another approves
// it. Then it has the effect of the direct call, with both names stored.
func TestTwoOperatorsDecide(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, append(ruleFor(config.ApprovalKinds...), "FENCEPOST_NONCE_STRICT_ENABLED=false")...)
	h.registerPayer()
	payout := fmt.Sprint(h.pay(alice, nil).body["req_id"])
	held := func(name string) string {
		id := fmt.Sprint(h.as("shop", "POST", "/api/v1/tx", members{"submitter": shopAccount, "requestId": name, "payload": members{"to": paidTo}}).body["txId"])
		h.run(`update managed_tx set held = true where tx_id = $1`, id)
		return id
	}
	const idle = "eip155:1337:0x00000000000000000000000000000000000000a2"
	h.Register(t, idle, 1)
	first, last := held("first"), held("last")
	h.heldByForeign(2)
	matching := h.createTx("matching")
	h.run(`insert into transfer_halt (scope, user_id, asset_id, evidence) values ('user_asset', 7, 1, '{}')`)
	halt := h.one(`select max(halt_id) from transfer_halt`)
	h.ann("POST", "/admin/v1/users/7/payout_addresses/block", members{"reason": "a stolen token"}).wants(t, 200, "block")
	h.ann("POST", ofShop+"/suspend", members{"reason": "a theft"}).wants(t, 200, "suspend")
	h.run(`update balances_tb set available = available - 0.000001 where user_id = $1 and asset_id = 1`, bob)
	h.ann("POST", "/admin/v1/conservation/check", members{"full": true})
	finding := h.one(`select max(finding_id) from conservation_finding`)
	check.Equal(t, "accept what is the accepted database", h.ann("POST", "/admin/v1/database/accept", members{"reason": "r"}).is("code"), "409 TOO_LATE")
	for _, c := range []struct {
		kind, method, path string
		body               members
		is, was, becomes   string // a query, and its results before and after
	}{
		{"policy", "PUT", ofShop + "/policy", members{"maxValue": "7", "reason": "r"}, `select max_value_wei from submitter_policy where submitter = '` + shopAccount + `'`, "5", "7"},
		{"policy", "POST", ofShop + "/resume", members{"reason": "r"}, `select status from submitter where submitter = '` + shopAccount + `'`, "SUSPENDED", "ACTIVE"},
		{"register", "PATCH", ofShop, members{"maxInFlight": 3, "name": "hot", "reason": "r"}, `select max_in_flight || name from submitter where submitter = '` + shopAccount + `'`, "1", "3hot"},
		{"callers", "PUT", ofShop + "/callers", members{"callers": []string{"*", "email:new@fencepost.example"}, "reason": "r"}, `select 'email:new@fencepost.example' = any(callers) from submitter where submitter = '` + shopAccount + `'`, "false", "true"},
		{"release", "POST", "/admin/v1/tx/" + first + "/proceed", members{"reason": "r"}, `select held from managed_tx where tx_id = '` + first + `'`, "true", "false"},
		{"release", "POST", ofShop + "/proceed", members{"through": last, "reason": "r"}, `select held from managed_tx where tx_id = '` + last + `'`, "true", "false"},
		{"release", "POST", ofShop + "/foreign/match", members{"nonce": 0, "txId": matching, "reason": "r"}, `select state from managed_tx where tx_id = '` + matching + `'`, "QUEUED", "CONFIRMED"},
		{"release", "POST", ofShop + "/foreign/write-off", members{"nonce": 1, "reason": "r"}, `select outcome from foreign_hold where nonce = 1`, "null", "WRITTEN_OFF"},
		{"register", "POST", "/admin/v1/submitters/" + idle + "/retire", members{"reason": "r"}, `select status from submitter where submitter = '` + idle + `'`, "ACTIVE", "RETIRED"},
		{"adjustments", "POST", "/admin/v1/conservation/findings/" + finding + "/adjust", members{"move": "balance", "reason": "r"}, `select count(*) from conservation_adjustment where applied_at is not null`, "0", "1"},
		{"adjustments", "POST", "/admin/v1/halts/" + halt + "/resume", members{"reason": "r"}, `select resumed_at is not null from transfer_halt where halt_id = ` + halt, "false", "true"},
		{"adjustments", "POST", "/admin/v1/users/7/payout_addresses/unblock", members{"reason": "r"}, `select count(*) from payout_address_block where lifted_at is null`, "1", "0"},
		{"accept", "POST", "/admin/v1/database/accept", members{"reason": "r"}, `select is_accepted_database()`, "false", "true"},
		{"adjustments", "POST", "/admin/v1/transfers/" + payout + "/payout-statement", members{"paid": true, "tx_hash": "0x" + strings.Repeat("ab", 32), "reason": "r"}, `select count(*) from payout_statement`, "0", "1"},
	} {
		switch {
		case strings.HasSuffix(c.path, "/policy"):
			h.run(`insert into submitter_policy (submitter, max_value_wei) values ($1, 5)`, shopAccount)
		case strings.HasSuffix(c.path, "/accept"):
			h.run(`update database_identity set timeline_id = timeline_id + 1`)
		}
		proposal, a := h.propose(c.method, c.path, c.body)
		check.Equal(t, c.path+", proposed", h.one(c.is), c.was)
		if a.body["kind"] != c.kind || a.body["proposedBy"] != "sub:ann-at-work" || a.body["effect"] == "" || a.body["path"] != c.path || a.body["reason"] != "r" {
			t.Errorf("%s: got the proposal %v", c.path, a.body)
		}
		check.Equal(t, c.path+" again: the same proposal", h.ann(c.method, c.path, c.body).body["proposalId"], a.body["proposalId"])
		check.Equal(t, c.path+", approved by its proposer", h.ann("POST", proposal+"/approve", agreed).is("code"), "403 SAME_OPERATOR")
		done := h.ben("POST", proposal+"/approve", agreed)
		check.Equal(t, fmt.Sprintf("%s, approved (%v)", c.path, done.body), done.is("status", "approvedBy"), "200 CARRIED_OUT email:ben@fencepost.example")
		check.Equal(t, c.path+", carried out", h.one(c.is), c.becomes)
		h.audited(c.method, c.path, "r")
		check.Same(t, c.path+", approved again: the stored answer", h.ben("POST", proposal+"/approve", agreed).body, done.body)
	}
	check.Equal(t, "proposals without their outcome", h.one(`select count(*) from proposal where status <> 'CARRIED_OUT' or outcome_status is null`), "0")
	check.Equal(t, "on record", h.one(`select string_agg(distinct action, ' ' order by action) || ' ' || string_agg(distinct by || ' ' || coalesce(approved_by, 'nobody'), '; ')
		from submitter_change where proposal is not null`),
		"APPROVED CALLERS POLICY RESUME RETIRE UPDATE sub:ann-at-work email:ben@fencepost.example")
	if got, err := h.Store.VerifyAudit(t.Context(), nil, nil); err != nil || len(got.Findings) != 0 || got.Links == 0 {
		t.Errorf("the chain: got %+v, %v; want nothing found", got, err)
	}
}

// One person with two names counts once: by the subject or the e-mail, in any letter case.
func TestOnePersonDoesNotApproveUnderAnotherName(t *testing.T) {
	t.Parallel()
	h := buildWithPolicy(t, ruleFor("policy")...)
	proposal, _ := h.propose("PUT", ofShop+"/policy", members{"reason": "r"})
	for _, who := range [][2]string{{"ann-at-work", ""}, {"another", "ann"}, {"ann-at-work", "ben"}} {
		check.Equal(t, fmt.Sprintf("subject %s, e-mail %q", who[0], who[1]), h.by(who[0], who[1], "POST", proposal+"/approve", agreed).is("code"), "403 SAME_OPERATOR")
	}
	// The database refuses it too, independently of the functions.
	id := strings.TrimPrefix(proposal, "/admin/v1/proposals/")
	check.Equal(t, "the database", h.one(`select verdict from approve_proposal($1, 'email:ANN@fencepost.example', '{email:ANN@fencepost.example,email:ann@fencepost.example}', 'r')`, id), "SAME_OPERATOR")
	check.Equal(t, "the policy", h.one(`select max_value_wei from submitter_policy`), "5")
}

// A proposal is carried out only if the state that it depends on is unchanged. An expired or rejected
// proposal is not carried out, nor one whose proposer is no longer an operator.
func TestProposalsEnd(t *testing.T) {
	t.Parallel()
	h := buildWithPolicy(t, ruleFor("policy", "callers")...)
	wider := func() (string, answer) {
		return h.propose("PUT", ofShop+"/policy", members{"maxValue": "9", "reason": "r"})
	}
	policy := func(want string) {
		t.Helper()
		check.Equal(t, "the policy", h.one(`select max_value_wei from submitter_policy`), want)
	}

	stale, _ := wider()
	h.ben("PUT", ofShop+"/policy", members{"maxValue": "3", "reason": "tighter"}).wants(t, 200, "tighter")
	a := h.ben("POST", stale+"/approve", agreed)
	check.Equal(t, "stale", a.is("code"), "409 PROPOSAL_STALE")
	says(t, "what changed", a.is("detail"), "policy was")
	policy("3")
	check.Equal(t, "stale", h.ben("GET", stale, nil).is("status"), "200 STALE")

	expired, first := wider()
	h.run(`alter table proposal disable trigger guard_proposal`)
	h.run(`update proposal set expires_at = clock_timestamp() where proposal_id = $1`, first.body["proposalId"])
	h.run(`alter table proposal enable trigger guard_proposal`)
	check.Equal(t, "expired", h.ben("GET", expired, nil).is("status"), "200 EXPIRED")
	again, second := wider()
	if second.body["proposalId"] == first.body["proposalId"] {
		t.Error("proposed again: got the proposal that has expired, want a new one")
	}
	check.Equal(t, "expired", h.ben("POST", expired+"/approve", agreed).is("code"), "409 PROPOSAL_EXPIRED")

	check.Equal(t, "withdrawn", h.ann("POST", again+"/reject", members{"reason": "not wanted"}).is("status", "closeReason"), "200 REJECTED not wanted")
	check.Equal(t, "approve what was withdrawn", h.ben("POST", again+"/approve", agreed).is("code"), "409 TOO_LATE")
	check.Equal(t, "reject what was withdrawn", h.ben("POST", again+"/reject", agreed).is("code", "status"), "200 <nil> REJECTED")

	left, _ := wider()
	here := h.url
	h.url = h.serve("FENCEPOST_AUTH_OPERATORS=email:ben@fencepost.example,email:cat@fencepost.example", "FENCEPOST_APPROVALS_REQUIRED=policy")
	check.Equal(t, "the proposer is no operator", h.ben("POST", left+"/approve", agreed).is("code"), "409 PROPOSER_REMOVED")
	h.url = here
	policy("3")
	check.Equal(t, "open", len(h.allRows("proposals", "/admin/v1/proposals", "", 3)), 1)
	check.Equal(t, "all", len(h.allRows("proposals", "/admin/v1/proposals", "&state=all", 3)), 4)
	check.Equal(t, "another state", h.ben("GET", "/admin/v1/proposals?state=none", nil).is("field"), "400 state")
	for path, want := range map[string]string{"1": "400 INVALID_FIELD", "018f0000-0000-7000-8000-000000000000": "404 NOT_FOUND"} {
		for _, call := range [][2]string{{"GET", ""}, {"POST", "/approve"}, {"POST", "/reject"}} {
			check.Equal(t, fmt.Sprintf("%s %s%s", call[0], path, call[1]), h.ben(call[0], "/admin/v1/proposals/"+path+call[1], agreed).is("code"), want)
		}
	}
}

// Many concurrent approvals get the same answer, and the act is carried out once.
func TestApprovalsAtOnceCarryOutOnce(t *testing.T) {
	t.Parallel()
	h := buildWithPolicy(t, ruleFor("policy", "callers", "release", "adjustments")...)
	for round := range 5 {
		proposal, _ := h.propose("PUT", ofShop+"/policy", members{"maxValue": fmt.Sprint(6 + round), "reason": "r"})
		answers := make([]answer, 6)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				who := []string{"ben", "cat"}[i%2]
				answers[i] = h.by(who, who, "POST", proposal+"/approve", agreed)
			})
		}
		all.Wait()
		for i, a := range answers {
			check.Equal(t, fmt.Sprintf("approval %d (%v)", i, a.body), a.is("status"), "200 CARRIED_OUT")
		}
		check.Equal(t, "policies set", h.one(`select count(*) from submitter_change where action = 'POLICY' and proposal is not null`), fmt.Sprint(round+1))
	}
}

// Acts that only remove rights need one operator. Whether they do is compared with the present state
// when they are carried out. Without the rule one operator can do everything.
func TestTakingRightsAwayNeedsOneOperator(t *testing.T) {
	t.Parallel()
	h := build(t, append(ruleFor(config.ApprovalKinds...), "FENCEPOST_NONCE_STRICT_ENABLED=false")...)
	h.Register(t, shopAccount, 4)
	h.run(`update submitter set callers = '{email:a@b.example,email:c@d.example}'`)
	h.run(`insert into submitter_policy (submitter, max_value_wei) values ($1, 5)`, shopAccount)
	for _, c := range []struct {
		method, path string
		body         members
		want         int
	}{
		{"PUT", "/policy", members{"maxValue": "4", "reason": "r"}, 200},
		{"PUT", "/policy", members{"maxValue": "4", "maxPerMinute": 1, "reason": "r"}, 200},
		{"PUT", "/policy", members{"maxValue": "5", "maxPerMinute": 1, "reason": "r"}, 202},
		{"PUT", "/policy", members{"maxValue": "3", "reason": "r"}, 202},
		{"PUT", "/callers", members{"callers": []string{"email:c@d.example"}, "reason": "r"}, 200},
		{"PUT", "/callers", members{"callers": []string{"email:a@b.example"}, "reason": "r"}, 202},
		{"PUT", "/callers", members{"callers": []string{"email:c@d.example", "email:a@b.example"}, "reason": "r"}, 202},
		{"PUT", "/callers", members{"callers": []string{"email:e@f.example"}, "succeeds": members{"email:e@f.example": "email:c@d.example"}, "reason": "r"}, 202},
		{"PATCH", "", members{"maxInFlight": 3, "name": "hot", "reason": "r"}, 200},
		{"PATCH", "", members{"maxInFlight": 4, "name": "cold", "reason": "r"}, 202},
		{"POST", "/suspend", members{"reason": "r"}, 200},
		{"POST", "/queue/cancel", members{"reason": "r"}, 200},
		{"POST", "/resume", members{"reason": "r"}, 202},
	} {
		h.ann(c.method, ofShop+c.path, c.body).wants(t, c.want, "%s %v", c.path, c.body)
	}
	check.Equal(t, "answer", h.one(`select array_to_string(callers, ',') || ' ' || status || ' ' || max_in_flight || name from submitter`), "email:c@d.example SUSPENDED 3hot")
	check.Equal(t, "policy", h.one(`select max_value_wei || ' ' || max_per_minute from submitter_policy`), "4 1")
	for _, c := range []struct {
		path string
		body members
		want string
	}{
		{"/policy", members{"maxValue": "x", "reason": "r"}, "400 maxValue"},
		{"/policy", members{"maxValue": "9"}, "400 reason"},
		{"/policy", members{"most": "9", "reason": "r"}, "400 most"},
		{"/callers", members{"callers": []string{}, "reason": "r"}, "400 callers"},
	} {
		check.Equal(t, fmt.Sprintf("%v, which is not proposed", c.body), h.ann("PUT", ofShop+c.path, c.body).is("field"), c.want)
	}
	check.Equal(t, "an unknown submitter", h.ann("PUT", "/admin/v1/submitters/eip155:1337:0x00000000000000000000000000000000000000a1/policy", members{"reason": "r"}).is("code"), "404 UNKNOWN_SUBMITTER")
	h.url = h.serve()
	check.Equal(t, "without the rule", h.as("ann", "PUT", ofShop+"/policy", members{"maxValue": "9", "reason": "r"}).is("status"), "200 SUSPENDED")
}

// An act whose answer was lost is not carried out again.
func TestAnApprovalThatLostItsAnswerIsStored(t *testing.T) {
	t.Parallel()
	h := buildWithPolicy(t, ruleFor("policy")...)
	proposal, a := h.propose("PUT", ofShop+"/policy", members{"maxValue": "9", "reason": "r"})
	id := a.body["proposalId"]
	// The act was approved, and then the process ended.
	check.Equal(t, "approve", h.one(`select verdict from approve_proposal($1, 'email:ben@fencepost.example', '{email:ben@fencepost.example}', 'r')`, id), "OPEN")
	check.Equal(t, "approved", h.ben("GET", proposal, nil).is("status", "outcome"), "200 APPROVED <nil>")
	check.Equal(t, "gone on with", h.by("cat", "cat", "POST", proposal+"/approve", agreed).is("status", "approvedBy"), "200 CARRIED_OUT email:ben@fencepost.example")
	proposal, a = h.propose("PUT", ofShop+"/policy", members{"maxValue": "10", "reason": "r"})
	id = a.body["proposalId"]
	h.one(`select verdict from approve_proposal($1, 'email:ben@fencepost.example', '{email:ben@fencepost.example}', 'r')`, id)
	h.one(`select carry_out_proposal($1)`, id) // and its answer was lost
	check.Equal(t, "carried out before", h.ben("POST", proposal+"/approve", agreed).is("status", "outcome"), "200 CARRIED_OUT <nil>")
	check.Equal(t, "the policy (it is not carried out by the second call)", h.one(`select max_value_wei from submitter_policy`), "9")
	check.Equal(t, "the policy that was seen", h.one(`select observed_state ->> 'policy' is not null from proposal where proposal_id = $1`, id), "true")
}

// The client's error tells an operator that nothing was carried out yet. Another operator finds the
// proposal and approves or rejects it. An operator has at most 100 open proposals.
func TestClientOfProposals(t *testing.T) {
	t.Parallel()
	h := buildWithPolicy(t, ruleFor("policy")...)
	ann, ben := h.clientOf(h.callerToken("ann")), h.clientOf(h.callerToken("ben"))
	_, err := ann.SetPolicy(t.Context(), shopAccount, client.Policy{MaxValue: "9"}, "wider")
	p := client.ProposedBy(err)
	if p == nil || p.Status != "PROPOSED" || p.ProposedBy != "email:ann@fencepost.example" || !strings.Contains(err.Error(), "not carried out: proposal "+p.ProposalID) || client.CodeOf(err) != "" {
		t.Fatalf("set a wider policy: got %v, want it proposed", err)
	}
	refused(t, "approved by its proposer", "SAME_OPERATOR")(ann.Approve(t.Context(), p.ProposalID, "r"))
	done, err := ben.Approve(t.Context(), p.ProposalID, "seen")
	if err != nil || done.Status != "CARRIED_OUT" || done.Outcome == nil || done.Outcome.Status != 200 || !strings.Contains(string(done.Outcome.Body), `"maxValue":"9"`) || done.ApproveReason != "seen" {
		t.Errorf("approved: got %+v, %v; want it carried out, with the submitter", done, err)
	}
	if shown, err := ann.Proposal(t.Context(), p.ProposalID); err != nil || shown.ApprovedBy != "email:ben@fencepost.example" || shown.ClosedAt == nil {
		t.Errorf("shown: got %+v, %v", shown, err)
	}
	for i := range 100 {
		if _, err = ann.SetPolicy(t.Context(), shopAccount, client.Policy{MaxValue: fmt.Sprint(100 + i)}, "wider"); client.ProposedBy(err) == nil {
			t.Fatalf("proposal %d: got %v, want it proposed", i, err)
		}
	}
	check.Equal(t, "one more than 100", h.as("ann", "PUT", ofShop+"/policy", members{"maxValue": "777", "reason": "r"}).is("code"), "429 TOO_MANY_REQUESTS")
	ids := func(closed bool) []string {
		return strings.Fields(check.Value(collect(ben.ListProposals(t.Context(), closed), func(p client.Proposal) string { return p.ProposalID }))(t))
	}
	check.Equal(t, "open", len(ids(false)), 100)
	check.Equal(t, "all, two pages", len(ids(true)), 101)
	rejected, err := ben.Reject(t.Context(), ids(false)[0], "not wanted")
	if err != nil || rejected.Status != "REJECTED" || rejected.ClosedBy != "email:ben@fencepost.example" {
		t.Errorf("rejected: got %+v, %v", rejected, err)
	}
}

// actServed finds an operator's act with its kind of approvals.required in the code; without a kind one operator is enough.
var actServed = regexp.MustCompile(`(?m)^\s*[ad]\.act\(mux, "((?:POST|PUT|PATCH|DELETE) /admin/v1/\S+)", (?:"(\w+)"|oneOperator), `)

// actKinds returns the kinds of the acts by their patterns.
var actKinds = sync.OnceValue(func() map[string]string {
	text, _ := os.ReadFile("admin/routes.go") // without it no act has a rule
	kinds := map[string]string{}
	for _, found := range actServed.FindAllStringSubmatch(string(text), -1) {
		kinds[found[1]] = found[2]
	}
	return kinds
})

// Each operator call that can change something has its rule, in the code and on the page, which also has the reason.
func TestEveryActOfAnOperatorHasItsRule(t *testing.T) {
	t.Parallel()
	var want []string
	for pattern, kind := range actKinds() {
		want = append(want, fmt.Sprintf("| `%s` | %s |", pattern, cmp.Or(kind, "one operator")))
	}
	described := slices.DeleteFunc(apiOf(t).Operations(), func(pattern string) bool {
		return !strings.Contains(pattern, " /admin/v1/") || strings.HasPrefix(pattern, "GET ")
	})
	check.Same(t, "acts of routes.go", slices.Sorted(maps.Keys(actKinds())), described)
	kinds := slices.DeleteFunc(slices.Sorted(maps.Values(actKinds())), func(kind string) bool { return kind == "" })
	check.Same(t, "kinds of acts", slices.Compact(kinds), slices.Sorted(slices.Values(config.ApprovalKinds)))
	page := check.Value(os.ReadFile("../docs/approvals.md"))(t)
	var got []string
	for _, row := range regexp.MustCompile("(?m)^(\\| `(?:POST|PUT|PATCH|DELETE) /admin/v1/\\S+` \\| [^|]+ \\|) [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[1])
	}
	check.Same(t, "docs/approvals.md, by routes.go", slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

// An operator's statement about a ledger's answer needs two operators; asking the ledger itself needs
// one. If the act is refused when it is carried out, the proposal stays open until a rejection.
func TestARefusedActLeavesItsProposal(t *testing.T) {
	t.Parallel()
	h := build(t, append(ruleFor("adjustments"), "FENCEPOST_TRANSFER_CALL_TIMEOUT=300ms")...)
	reqID := h.pending()
	path := "/admin/v1/transfers/" + reqID + "/resolve"
	proposal, a := h.propose("POST", path, members{"op": "deposit", "outcome": "applied", "line": 1, "reason": "r"})
	says(t, "effect", a.is("effect"), "deposit of transfer "+reqID+" was applied")
	h.signal(syscall.SIGCONT)
	check.Equal(t, "approved, the act's own refusal", h.ben("POST", proposal+"/approve", agreed).is("code"), "409 NOT_FORGOTTEN")
	check.Equal(t, "refused", h.ben("GET", proposal, nil).is("status", "outcome"), "200 APPROVED <nil>")
	check.Equal(t, "rejected", h.by("cat", "cat", "POST", proposal+"/reject", members{"reason": "the core knows"}).is("status", "closedBy"), "200 REJECTED email:cat@fencepost.example")
	h.ann("POST", path, members{"op": "deposit", "reason": "r"}).wants(t, 200, "the ledger's own answer")
}

// A bulk release after a planned move is many transactions and needs two operators.
func TestTwoOperatorsReleaseInBulk(t *testing.T) {
	t.Parallel()
	h := build(t, ruleFor("release")...)
	check.Equal(t, "without a move", h.ann("POST", "/admin/v1/database/release-untouched", members{"reason": "r"}).is("code"), "409 NOT_A_PLANNED_MOVE")
	h.run(`insert into database_move (mark, from_system, from_timeline, by, reason, outcome, ended_at, ended_by, ended_reason, to_system, to_timeline, after_change)
		select 'm', 1, 1, 'ann', 'r', 'CONFIRMED', now(), 'ann', 'r', system_identifier, timeline_id, 0 from database_identity`)
	done := h.decide("POST", "/admin/v1/database/release-untouched", members{"reason": "the upgrade of the 23rd", "pageSize": 10})
	check.Equal(t, "in bulk", done.is("status", "outcome.body"), "200 CARRIED_OUT map[left:[] released:[] remaining:0]")
}

// An act that was approved, and not carried out, does not outlive a change of its subject that
// was taken back: no operator has agreed to it since.
func TestAnApprovalEndsWithTheNextChange(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, ruleFor("policy")...)
	h.ann("POST", ofShop+"/suspend", members{"reason": "maintenance"})
	first, made := h.propose("POST", ofShop+"/resume", members{"reason": "maintenance is over"})
	h.run(`select approve_proposal($1, 'email:ben@fencepost.example', '{email:ben@fencepost.example,sub:ben}', 'seen')`, made.body["proposalId"]) // and ben's process died
	h.decide("POST", ofShop+"/resume", members{"reason": "again"}).wants(t, 200, "approve the second")
	h.ben("POST", ofShop+"/suspend", members{"reason": "a stolen key"}).wants(t, 200, "suspend again")
	check.Equal(t, "approve the first after the second suspension", h.by("cat", "cat", "POST", first+"/approve", agreed).is("code"), "409 PROPOSAL_STALE")
	check.Equal(t, "the submitter", h.one(`select status from submitter where submitter = $1`, shopAccount), "SUSPENDED")
}
