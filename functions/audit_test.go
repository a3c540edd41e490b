package functions_test

import (
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
)

// Tests in which several calls are proposed, and carried out after a second operator has approved them.
const (
	twoDecide      = "functions/proposals_test.go: TestTwoOperatorsDecide"
	twoForAccounts = "functions/accounts_test.go: TestTwoOperatorsForAccounts"
	twoForWebhooks = "functions/webhooks_test.go: TestTwoOperatorsResumeAndRedeliver"
	stolenToken    = "emulator/acceptance/attacks/approvals_test.go: TestOneStolenOperatorTokenDecidesNothingAlone"
)

// operatorActs are the operator calls that can change something.
var operatorActs = map[string]struct {
	name       string // under which the list of acts shows it; "": it changes nothing that an operator decides
	proposedIn string // the test in which it is only proposed, and carried out after a second approval; "": it needs one operator
}{
	"POST /admin/v1/submitters":                                           {"register", stolenToken},
	"PATCH /admin/v1/submitters/{submitter}":                              {"update", twoDecide},
	"POST /admin/v1/submitters/{submitter}/retire":                        {"retire", twoDecide},
	"PUT /admin/v1/submitters/{submitter}/policy":                         {"policy", twoDecide},
	"POST /admin/v1/submitters/{submitter}/resume":                        {"resume", twoDecide},
	"PUT /admin/v1/submitters/{submitter}/callers":                        {"callers", twoDecide},
	"POST /admin/v1/submitters/{submitter}/signer":                        {"signer", stolenToken},
	"POST /admin/v1/submitters/{submitter}/suspend":                       {"suspend", ""},
	"POST /admin/v1/submitters/{submitter}/release":                       {"release", stolenToken},
	"POST /admin/v1/submitters/{submitter}/queue/cancel":                  {"cancel", ""},
	"POST /admin/v1/submitters/{submitter}/foreign/match":                 {"foreign-match", twoDecide},
	"POST /admin/v1/submitters/{submitter}/foreign/write-off":             {"foreign-write-off", twoDecide},
	"POST /admin/v1/submitters/{submitter}/proceed":                       {"proceed", twoDecide},
	"POST /admin/v1/database/release-untouched":                           {"release", "functions/proposals_test.go: TestTwoOperatorsReleaseInBulk"},
	"POST /admin/v1/database/accept":                                      {"database-accept", twoDecide},
	"POST /admin/v1/tx/{txId}/proceed":                                    {"proceed", twoDecide},
	"POST /admin/v1/tx/{txId}/cancel":                                     {"cancel", ""},
	"POST /admin/v1/tx/{txId}/decide":                                     {"wait", ""},
	"POST /admin/v1/conservation/findings/{id}/adjust":                    {"adjust", twoDecide},
	"POST /admin/v1/conservation/check":                                   {"", ""}, // it reads, and can only halt
	"POST /admin/v1/halts/{id}/resume":                                    {"halt-resume", twoDecide},
	"POST /admin/v1/transfers/{req_id}/cancel":                            {"transfer-cancel", ""},
	"POST /admin/v1/transfers/{req_id}/resolve":                           {"transfer-resolve", "functions/proposals_test.go: TestARefusedActLeavesItsProposal"},
	"POST /admin/v1/transfers/{req_id}/acknowledge":                       {"transfer-acknowledge", ""},
	"POST /admin/v1/transfers/{req_id}/payout-statement":                  {"payout-state", twoDecide},
	"POST /admin/v1/transfers/{req_id}/payout-statement/withdraw":         {"payout-withdraw", ""},
	"POST /admin/v1/users/{user_id}/payout_addresses/unblock":             {"addresses-unblock", twoDecide},
	"POST /admin/v1/users/{user_id}/payout_addresses/block":               {"addresses-block", ""},
	"POST /admin/v1/users/{user_id}/payout_addresses/{address_id}/remove": {"address-remove", ""},
	"POST /admin/v1/proposals/{proposalId}/approve":                       {"approve", ""},
	"POST /admin/v1/proposals/{proposalId}/reject":                        {"reject", ""},
	"PUT /admin/v1/assets/{asset}":                                        {"asset", twoForAccounts},
	"POST /admin/v1/accounts/{user}/{asset}/deposits":                     {"deposit", twoForAccounts},
	"POST /admin/v1/accounts/{user}/{asset}/withdrawals":                  {"withdrawal", twoForAccounts},
	"POST /admin/v1/accounts/{user}/{asset}/status":                       {"account-status", twoForAccounts},
	"POST /admin/v1/webhook-endpoints/{endpoint}/test":                    {"webhook-test", ""},
	"POST /admin/v1/webhook-endpoints/{endpoint}/redeliver":               {"webhook-redeliver", twoForWebhooks},
	"POST /admin/v1/webhook-endpoints/{endpoint}/pause":                   {"webhook-pause", ""},
	"POST /admin/v1/webhook-endpoints/{endpoint}/resume":                  {"webhook-resume", twoForWebhooks},
}

// Each operator call that can change something is in the list of acts, under a name that a source gives. A test proposes each
// that two operators decide about.
func TestEveryActOfAnOperatorIsAuditedAndProposed(t *testing.T) {
	t.Parallel()
	check.Same(t, "acts of operators", slices.Sorted(maps.Keys(operatorActs)), slices.Sorted(maps.Keys(actKinds())))
	for pattern, act := range operatorActs {
		if act.name != "" && !slices.Contains(store.ActNames(), act.name) {
			t.Errorf("%s: no source of the list has the act %q", pattern, act.name)
		}
		check.Equal(t, pattern+": a test proposes it", act.proposedIn != "", actKinds()[pattern] != "")
		testExists(t, pattern, act.proposedIn)
	}
}

// patternOf returns which of the patterns serves a call such as "GET /admin/v1/chains"; "": none.
func patternOf(call string, patterns iter.Seq[string]) string {
	mux := http.NewServeMux()
	for pattern := range patterns {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	method, path, _ := strings.Cut(call, " ")
	_, pattern := mux.Handler(httptest.NewRequest(method, path, nil))
	return pattern
}

// audited requires that the list of acts shows a call of an operator as its newest of that name.
func (h deployment) audited(method, path, reason string) {
	h.t.Helper()
	act := operatorActs[patternOf(method+" "+path, maps.Keys(operatorActs))].name
	a := h.ben("GET", "/admin/v1/audit?pageSize=1&act="+act, nil)
	check.Equal(h.t, fmt.Sprintf("audit of %s %s as %q", method, path, act), a.is("acts.0.by", "acts.0.reason"), "200 sub:ann-at-work "+reason)
}

// The list shows who did what to what, why, and what changed, by each filter and page by page. A caller's own decisions
// are not in it.
func TestOperatorReadsTheAudit(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, append(ruleFor("policy"), "FENCEPOST_NONCE_STRICT_ENABLED=false")...)
	cancelled := h.createTx("a")
	h.as("shop", "POST", "/api/v1/tx/"+cancelled+"/cancel", nil).wants(t, 200, "the caller's cancel")
	queued := h.createTx("b")
	for _, c := range []struct {
		method, path string
		body         members
	}{
		{"PATCH", ofShop, members{"maxInFlight": 3, "reason": "more at once"}},
		{"POST", ofShop + "/queue/cancel", members{"reason": "asked by sub:ann-at-work"}},
		{"POST", ofShop + "/suspend", members{"reason": "a theft"}},
		{"POST", "/admin/v1/users/7/payout_addresses/block", members{"reason": "a stolen token"}},
		{"POST", "/admin/v1/users/7/payout_addresses/unblock", members{"reason": "a new token"}},
	} {
		h.ann(c.method, c.path, c.body).wants(t, 200, "%s %s", c.method, c.path)
		h.audited(c.method, c.path, fmt.Sprint(c.body["reason"]))
	}
	proposal, made := h.propose("POST", ofShop+"/resume", members{"reason": "it was none"})
	h.ben("POST", proposal+"/reject", members{"reason": "it was one"}).wants(t, 200, "reject")
	for query, want := range map[string]string{
		"&since=2026-01-01T00:00:00Z":       "reject propose addresses-unblock addresses-block suspend cancel update register",
		"&since=2999-01-01T00:00:00Z":       "",
		"&who=email:ben@fencepost.example":  "reject",
		"&who=email:shop@fencepost.example": "",
		"&act=cancel":                       "cancel",
		"&subject=7":                        "addresses-unblock addresses-block",
		"&subject=" + shopAccount:           "reject propose suspend cancel update register",
		"&subject=" + queued:                "cancel",
		"&subject=" + cancelled:             "",
		fmt.Sprint("&act=propose&subject=", made.body["proposalId"]): "propose",
	} {
		check.Equal(t, query, column(h.allRows("acts", "/admin/v1/audit", query, 2), "act"), want)
	}
	update := h.ann("GET", "/admin/v1/audit?act=update", nil)
	check.Equal(t, "an update", update.is("acts.0.subject", "acts.0.before", "acts.0.after"),
		"200 map[id:"+shopAccount+" kind:submitter] map[maxInFlight:1] map[maxInFlight:3]")
	for query, want := range map[string]string{
		"?act=pay": "400 INVALID_FIELD act", "?since=yesterday": "400 INVALID_FIELD since",
	} {
		check.Equal(t, query, h.ann("GET", "/admin/v1/audit"+query, nil).is("code", "field"), want)
	}
}
