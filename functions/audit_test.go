package functions_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/functions/admin"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
)

// auditedAs are the acts under which the list of acts shows each operator call. "" is a call that changes nothing that an
// operator decides.
var auditedAs = map[string]string{
	"POST /admin/v1/submitters":                                           "register",
	"PATCH /admin/v1/submitters/{submitter}":                              "update",
	"POST /admin/v1/submitters/{submitter}/retire":                        "retire",
	"PUT /admin/v1/submitters/{submitter}/policy":                         "policy",
	"POST /admin/v1/submitters/{submitter}/resume":                        "resume",
	"PUT /admin/v1/submitters/{submitter}/callers":                        "callers",
	"POST /admin/v1/submitters/{submitter}/signer":                        "signer",
	"POST /admin/v1/submitters/{submitter}/suspend":                       "suspend",
	"POST /admin/v1/submitters/{submitter}/release":                       "release",
	"POST /admin/v1/submitters/{submitter}/queue/cancel":                  "cancel",
	"POST /admin/v1/submitters/{submitter}/foreign/match":                 "foreign-match",
	"POST /admin/v1/submitters/{submitter}/foreign/write-off":             "foreign-write-off",
	"POST /admin/v1/submitters/{submitter}/proceed":                       "proceed",
	"POST /admin/v1/database/release-untouched":                           "release",
	"POST /admin/v1/database/accept":                                      "database-accept",
	"POST /admin/v1/tx/{txId}/proceed":                                    "proceed",
	"POST /admin/v1/tx/{txId}/cancel":                                     "cancel",
	"POST /admin/v1/tx/{txId}/decide":                                     "wait",
	"POST /admin/v1/conservation/findings/{id}/adjust":                    "adjust",
	"POST /admin/v1/conservation/check":                                   "", // it reads, and can only halt
	"POST /admin/v1/halts/{id}/resume":                                    "halt-resume",
	"POST /admin/v1/transfers/{req_id}/cancel":                            "transfer-cancel",
	"POST /admin/v1/transfers/{req_id}/resolve":                           "transfer-resolve",
	"POST /admin/v1/transfers/{req_id}/acknowledge":                       "transfer-acknowledge",
	"POST /admin/v1/transfers/{req_id}/payout-statement":                  "payout-state",
	"POST /admin/v1/transfers/{req_id}/payout-statement/withdraw":         "payout-withdraw",
	"POST /admin/v1/users/{user_id}/payout_addresses/unblock":             "addresses-unblock",
	"POST /admin/v1/users/{user_id}/payout_addresses/block":               "addresses-block",
	"POST /admin/v1/users/{user_id}/payout_addresses/{address_id}/remove": "address-remove",
	"POST /admin/v1/proposals/{proposalId}/approve":                       "approve",
	"POST /admin/v1/proposals/{proposalId}/reject":                        "reject",
	"PUT /admin/v1/assets/{asset}":                                        "asset",
	"POST /admin/v1/accounts/{user}/{asset}/deposits":                     "deposit",
	"POST /admin/v1/accounts/{user}/{asset}/withdrawals":                  "withdrawal",
	"POST /admin/v1/accounts/{user}/{asset}/status":                       "account-status",
	"POST /admin/v1/webhook-endpoints/{endpoint}/test":                    "webhook-test",
	"POST /admin/v1/webhook-endpoints/{endpoint}/redeliver":               "webhook-redeliver",
	"POST /admin/v1/webhook-endpoints/{endpoint}/pause":                   "webhook-pause",
	"POST /admin/v1/webhook-endpoints/{endpoint}/resume":                  "webhook-resume",
}

// Each operator call that can change something is in the list of acts, under a name that a source gives.
func TestEveryActOfAnOperatorIsAudited(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(admin.Acts)), slices.Sorted(maps.Keys(auditedAs))); diff != "" {
		t.Errorf("acts of operators (-acts.go +audited):\n%s", diff)
	}
	for pattern, act := range auditedAs {
		if act != "" && !slices.Contains(store.ActNames(), act) {
			t.Errorf("%s: no source of the list has the act %q", pattern, act)
		}
	}
}

// proposedIn names, for each call of a kind of approvals.required, the test in which it is only proposed, and carried out
// after a second operator has approved it.
var proposedIn = map[string]string{
	"POST /admin/v1/submitters":                               "emulator/acceptance/attacks/approvals_test.go: TestOneStolenOperatorTokenDecidesNothingAlone",
	"PATCH /admin/v1/submitters/{submitter}":                  "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/submitters/{submitter}/retire":            "functions/proposals_test.go: TestTwoOperatorsDecide",
	"PUT /admin/v1/submitters/{submitter}/policy":             "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/submitters/{submitter}/resume":            "functions/proposals_test.go: TestTwoOperatorsDecide",
	"PUT /admin/v1/submitters/{submitter}/callers":            "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/submitters/{submitter}/signer":            "emulator/acceptance/attacks/approvals_test.go: TestOneStolenOperatorTokenDecidesNothingAlone",
	"POST /admin/v1/submitters/{submitter}/release":           "emulator/acceptance/attacks/approvals_test.go: TestOneStolenOperatorTokenDecidesNothingAlone",
	"POST /admin/v1/database/release-untouched":               "functions/proposals_test.go: TestTwoOperatorsReleaseInBulk",
	"POST /admin/v1/submitters/{submitter}/foreign/match":     "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/submitters/{submitter}/foreign/write-off": "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/submitters/{submitter}/proceed":           "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/tx/{txId}/proceed":                        "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/database/accept":                          "functions/proposals_test.go: TestTwoOperatorsAcceptAndState",
	"POST /admin/v1/conservation/findings/{id}/adjust":        "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/halts/{id}/resume":                        "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/transfers/{req_id}/payout-statement":      "functions/proposals_test.go: TestTwoOperatorsAcceptAndState",
	"POST /admin/v1/transfers/{req_id}/resolve":               "functions/proposals_test.go: TestARefusedActLeavesItsProposal",
	"POST /admin/v1/users/{user_id}/payout_addresses/unblock": "functions/proposals_test.go: TestTwoOperatorsDecide",
	"POST /admin/v1/webhook-endpoints/{endpoint}/redeliver":   "functions/webhooks_test.go: TestTwoOperatorsResumeAndRedeliver",
	"POST /admin/v1/webhook-endpoints/{endpoint}/resume":      "functions/webhooks_test.go: TestTwoOperatorsResumeAndRedeliver",
	"PUT /admin/v1/assets/{asset}":                            "functions/accounts_test.go: TestTwoOperatorsForAccounts",
	"POST /admin/v1/accounts/{user}/{asset}/deposits":         "functions/accounts_test.go: TestTwoOperatorsForAccounts",
	"POST /admin/v1/accounts/{user}/{asset}/withdrawals":      "functions/accounts_test.go: TestTwoOperatorsForAccounts",
	"POST /admin/v1/accounts/{user}/{asset}/status":           "functions/accounts_test.go: TestTwoOperatorsForAccounts",
}

// Each call that two operators decide about has a test of that.
func TestEveryActOfTwoOperatorsIsProposed(t *testing.T) {
	t.Parallel()
	var ofTwo []string
	for pattern, rule := range admin.Acts {
		if rule.Kind != "" {
			ofTwo = append(ofTwo, pattern)
		}
	}
	slices.Sort(ofTwo)
	if diff := cmp.Diff(ofTwo, slices.Sorted(maps.Keys(proposedIn))); diff != "" {
		t.Errorf("calls of two operators (-acts.go +proposed in a test):\n%s", diff)
	}
	for pattern, where := range proposedIn {
		testExists(t, pattern, where)
	}
}

// patternOf returns the pattern that serves an operator's call.
func patternOf(t *testing.T, method, path string) string {
	t.Helper()
	mux := http.NewServeMux()
	for pattern := range admin.Acts {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	_, pattern := mux.Handler(httptest.NewRequest(method, path, nil))
	return pattern
}

// audited requires that the list of acts shows a call of an operator as its newest of that name.
func (h deployment) audited(method, path, reason string) {
	h.t.Helper()
	act := auditedAs[patternOf(h.t, method, path)]
	a := h.ben("GET", "/admin/v1/audit?pageSize=1&act="+act, nil)
	a.wants(h.t, 200, "audit of %s", act)
	rows, _ := a.body["acts"].([]any)
	if len(rows) != 1 || rows[0].(map[string]any)["reason"] != reason || rows[0].(map[string]any)["by"] != "sub:ann-at-work" {
		h.t.Errorf("audit of %s %s as %q: got %v, want it with the reason %q", method, path, act, a.body, reason)
	}
}

// The list shows who did what to what, why, and what changed, by each filter and page by page. A caller's own decisions
// are not in it.
func TestOperatorReadsTheAudit(t *testing.T) {
	t.Parallel()
	h := build(t, append(ruleFor("policy"), "FENCEPOST_NONCE_STRICT_ENABLED=false")...)
	h.Register(t, shopAccount, 1)
	shop := h.as("shop", "POST", "/api/v1/tx", members{"submitter": shopAccount, "requestId": "a", "payload": members{"to": paidTo}})
	h.as("shop", "POST", fmt.Sprint("/api/v1/tx/", shop.body["txId"], "/cancel"), nil).wants(t, 200, "the caller's cancel")
	queued := h.as("shop", "POST", "/api/v1/tx", members{"submitter": shopAccount, "requestId": "b", "payload": members{"to": paidTo}})
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
	list := func(query string) (acts []string) {
		t.Helper()
		for token := ""; ; {
			a := h.ann("GET", "/admin/v1/audit?pageSize=2"+query+token, nil)
			a.wants(t, 200, "audit %s", query)
			for _, row := range a.body["acts"].([]any) {
				acts = append(acts, fmt.Sprint(row.(map[string]any)["act"]))
			}
			next, _ := a.body["nextPageToken"].(string)
			if next == "" {
				return acts
			}
			token = "&pageToken=" + next
		}
	}
	for query, want := range map[string][]string{
		"&since=2026-01-01T00:00:00Z":                                {"reject", "propose", "addresses-unblock", "addresses-block", "suspend", "cancel", "update", "register"},
		"&since=2999-01-01T00:00:00Z":                                nil,
		"&who=email:ben@fencepost.example":                           {"reject"},
		"&who=email:shop@fencepost.example":                          nil,
		"&act=cancel":                                                {"cancel"},
		"&subject=7":                                                 {"addresses-unblock", "addresses-block"},
		"&subject=" + shopAccount:                                    {"reject", "propose", "suspend", "cancel", "update", "register"},
		fmt.Sprint("&subject=", queued.body["txId"]):                 {"cancel"},
		fmt.Sprint("&subject=", shop.body["txId"]):                   nil,
		fmt.Sprint("&act=propose&subject=", made.body["proposalId"]): {"propose"},
	} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	update := h.ann("GET", "/admin/v1/audit?act=update", nil).body["acts"].([]any)[0].(map[string]any)
	check.Equal(t, "an update", fmt.Sprint(update["subject"], update["before"], update["after"]), fmt.Sprintf("map[id:%s kind:submitter] map[maxInFlight:1] map[maxInFlight:3]", shopAccount))
	for query, want := range map[string]string{
		"?act=pay": "400 INVALID_FIELD act", "?since=yesterday": "400 INVALID_FIELD since", "?pageToken=xx": "400 INVALID_FIELD pageToken", "?by=ann": "400 UNSUPPORTED_FIELD by",
	} {
		check.Equal(t, query, h.ann("GET", "/admin/v1/audit"+query, nil).is("code", "field"), want)
	}
	check.Equal(t, "a caller", h.as("shop", "GET", "/admin/v1/audit", nil).is("code"), "403 FORBIDDEN")
}
