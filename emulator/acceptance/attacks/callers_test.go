package attacks

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// allOf is what the bearer of the token is answered to everything that a caller may ask
// about a submitter, and about one of its transactions, by what it asked.
func (h deployment) allOf(t *testing.T, token string, s txmanager.Submitter, txID, requestID string) map[string]answer {
	t.Helper()
	of := url.Values{"submitter": {string(s)}}
	byRequest := url.Values{"submitter": {string(s)}, "requestId": {requestID}}
	return map[string]answer{
		"create":     h.post(t, token, s, "by a stranger"),
		"retry":      h.post(t, token, s, requestID),
		"get":        h.call(t, token, http.MethodGet, "/api/v1/tx/"+txID, nil),
		"by-request": h.call(t, token, http.MethodGet, "/api/v1/tx/by-request?"+byRequest.Encode(), nil),
		"list":       h.call(t, token, http.MethodGet, "/api/v1/tx?"+of.Encode(), nil),
		"cancel":     h.call(t, token, http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil),
	}
}

// isUnauthorised wants that the bearer of the token gets nothing out of the submitter.
func (h deployment) isUnauthorised(t *testing.T, who, token string, s txmanager.Submitter, txID, requestID string) {
	t.Helper()
	all := h.allOf(t, token, s, txID, requestID)
	want := map[string]string{
		"create": "404 UNKNOWN_SUBMITTER", "retry": "404 UNKNOWN_SUBMITTER", "get": "404 NOT_FOUND",
		"by-request": "404 NOT_FOUND", "list": "200 ", "cancel": "404 NOT_FOUND",
	}
	for what, a := range all {
		if a.String() != want[what] || len(a.Transactions) > 0 || a.TxID != "" {
			t.Errorf("%s, %s: got %v with %q and %d transactions, want %s and nothing", who, what, a, a.TxID, len(a.Transactions), want[what])
		}
	}
	batch := map[string]any{"intents": []any{intent(s, "by a stranger")}}
	status, text, err := stack.CallWith(h.ctx, token, http.MethodPost, h.URLMap.PublicURL()+"/api/v1/tx:batch", batch)
	if err != nil || status != http.StatusOK || !slices.Contains([]string{`{"results":[{"status":404,"code":"UNKNOWN_SUBMITTER"`}, string(text)[:min(len(text), 52)]) {
		t.Errorf("%s, batch: got %d %s, %v; want UNKNOWN_SUBMITTER", who, status, text, err)
	}
	h.wantCount(t, "stored intents of "+who, 0, `select count(*) from managed_tx where request_id = 'by a stranger'`)
}

// A token whose subject is spelled like a listed e-mail is of an unauthorised caller. So is one
// with that e-mail, where the issuer has not verified it.
func TestASubjectIsNoEmail(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 1})
	s := h.Submitters()[0]
	first := h.posted(t, h.token(t, stack.CallerAccount), s, "first")
	for who, claims := range map[string]map[string]any{
		"subject like the e-mail":      {"sub": stack.CallerAccount, "email": "mallory@evil.example", "email_verified": false},
		"no e-mail":                    {"sub": stack.CallerAccount},
		"subject like the full name":   {"sub": "email:" + stack.CallerAccount},
		"the e-mail, not verified":     {"sub": "666", "email": stack.CallerAccount, "email_verified": false},
		"the e-mail in another case":   {"sub": "666", "email": "Shop@fencepost.example", "email_verified": true},
		"an e-mail like the full name": {"sub": "666", "email": "email:" + stack.CallerAccount, "email_verified": true},
		"the coordinator's name":       {"sub": "transfer"},
		"the hooks' name":              {"sub": "hooks"},
		"everybody's name":             {"sub": "*"},
	} {
		h.isUnauthorised(t, who, h.mint(t, claims), s, first, "first")
	}
	operators := h.mint(t, map[string]any{"sub": stack.OperatorAccount, "email": "mallory@evil.example", "email_verified": false})
	h.call(t, operators, http.MethodGet, "/admin/v1/submitters", nil).wantStatus(t, "a subject like the operator's e-mail", http.StatusForbidden)
}

// A stored caller name without a kind prefix counts as a name of its kind. The owner of the verified
// e-mail continues and gets the earlier answers. A subject with the same spelling is unauthorised.
func TestNamesOfBefore(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 1})
	s := h.Submitters()[0]
	must(h.DB.Exec(h.ctx, `update submitter set callers = $2 where submitter = $1`, s, []string{stack.CallerAccount}))(t)
	shop := h.token(t, stack.CallerAccount)
	first := h.post(t, shop, s, "first")
	if first.status != http.StatusAccepted || h.count(t, `select count(*) from managed_tx where caller = $1`, stack.CallerAccount) != 1 {
		t.Fatalf("the shop posts: got %v, want 202, stored under the name that is listed", first)
	}
	h.isUnauthorised(t, "subject like the e-mail", h.mint(t, map[string]any{"sub": stack.CallerAccount}), s, first.TxID, "first")
	operator := h.operator(t)
	must(operator.SetCallers(h.ctx, string(s), []string{"email:" + stack.CallerAccount}, nil, "in full"))(t)
	h.post(t, shop, s, "first").wantKnown(t, "the same again, once the name is in full", first.TxID)
}

// While the issuer is open "*" lets no token in. No submitter is registered with it, or
// given it. One that has it from before takes no intent of an unauthorised caller.
func TestEverybodyIsNobodyAtAnOpenIssuer(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 1})
	s := h.Submitters()[0]
	operator := h.operator(t)
	equal(t, "callers \"*\"", code(operator.SetCallers(h.ctx, string(s), []string{"*"}, nil, "a test")), "CALLERS_OPEN")
	equal(t, "registered with \"*\"", code(operator.RegisterSubmitter(h.ctx, client.Registration{Submitter: string(s), Callers: []string{"*"}})), "CALLERS_OPEN")
	shop := h.token(t, stack.CallerAccount)
	first := h.post(t, shop, s, "first")
	must(h.DB.Exec(h.ctx, `update submitter set callers = '{*}' where submitter = $1`, s))(t)
	stranger := h.mint(t, map[string]any{"sub": "1066", "email": "nobody@some-other-project.iam.gserviceaccount.com", "email_verified": true})
	for what, a := range h.allOf(t, stranger, s, first.TxID, "first") {
		want := cmp.Or(map[string]string{"create": "403 ANY_CALLER_REFUSED", "retry": "403 ANY_CALLER_REFUSED", "list": "200 "}[what], "404 NOT_FOUND")
		if a.String() != want || len(a.Transactions) > 0 {
			t.Errorf("a stranger, %s: got %v and %d transactions, want %s and none", what, a, len(a.Transactions), want)
		}
	}
	h.wantCount(t, "stored intents of a stranger", 0, `select count(*) from managed_tx where request_id = 'by a stranger'`)
	h.post(t, shop, s, "first").wantKnown(t, "who has posted posts it again", first.TxID)
	h.post(t, shop, s, "more").want(t, "and something new", "403 ANY_CALLER_REFUSED")
}

// Where the issuer is said to be closed "*" stands for each token's holder, and for no
// handler, hooks or coordinator.
func TestEverybodyAtAClosedIssuer(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 1, Settings: map[string]string{"FENCEPOST_AUTH_OPEN_ISSUER": "false"}})
	s := h.Submitters()[0]
	must(h.operator(t).SetCallers(h.ctx, string(s), []string{"*"}, nil, "a test"))(t)
	h.post(t, h.mint(t, map[string]any{"sub": "1066"}), s, "one").wantStatus(t, "somebody", http.StatusAccepted)
	h.wantCount(t, "stored under its name", 1, `select count(*) from managed_tx where caller = 'sub:1066'`)
}

// A caller whose credential was stolen is shut out at once from every call, while another continues.
// Its successor gets its answers, and a repeated post of the successor is a retry.
func TestARevokedCallerIsShutOut(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	s := h.Submitters()[0]
	operator := h.operator(t)
	other, heir := map[string]any{"sub": "2001"}, map[string]any{"sub": "2002", "email": "shop-2@fencepost.example", "email_verified": true}
	shop := "email:" + stack.CallerAccount
	must(operator.SetCallers(h.ctx, string(s), []string{shop, "sub:2001"}, nil, "a second caller"))(t)
	stolen := h.token(t, stack.CallerAccount)
	first := h.posted(t, stolen, s, "first")
	set, err := operator.SetCallers(h.ctx, string(s), []string{"sub:2001", "sub:2002"}, map[string]string{"sub:2002": shop}, "a credential was stolen")
	if err != nil || !slices.Equal(set.Callers, []string{"sub:2001", "sub:2002"}) || !slices.Equal(set.Succeeded, []client.Succession{{Caller: shop, By: "sub:2002"}}) {
		t.Fatalf("the change: got %v, %v, %v", set.Callers, set.Succeeded, err)
	}
	h.isUnauthorised(t, "the stolen credential", stolen, s, first, "first")
	h.post(t, h.mint(t, other), s, "another's").wantStatus(t, "the other caller", http.StatusAccepted)
	h.post(t, h.mint(t, heir), s, "first").wantKnown(t, "its successor posts the same", first)
	for what, a := range h.allOf(t, h.mint(t, heir), s, first, "first") {
		if a.status >= 300 {
			t.Errorf("its successor, %s: got %v, want an answer", what, a)
		}
	}
	for what, a := range h.allOf(t, h.mint(t, other), s, first, "first") {
		if slices.Contains([]string{"get", "by-request", "cancel"}, what) && a.status != http.StatusNotFound || what == "retry" && a.Code != "REQUEST_ID_CONFLICT" {
			t.Errorf("the other caller, %s: got %v, want it refused", what, a)
		}
	}
	record := h.count(t, `select count(*) from submitter_change where submitter = $1 and action = 'CALLERS' and by = $2 and reason = 'a credential was stolen'
		and from_callers = $3 and to_callers = '{sub:2001,sub:2002}' and succeeds = $4`, s, "email:"+stack.OperatorAccount, []string{shop, "sub:2001"}, fmt.Sprintf(`{"sub:2002": %q}`, shop))
	equal(t, "such changes on record", record, 1)
	equal(t, "the stolen one, listed again", code(operator.SetCallers(h.ctx, string(s), []string{"sub:2001", "sub:2002", shop}, nil, "by mistake")), "CALLERS_CONFLICT")
}

// The runbook of a stolen credential, step by step: no queued intent is carried out, and the owner
// continues under its new name.
func TestRunbookOfAStolenCredential(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	h.Chain.StopMining()
	s := h.Submitters()[0]
	operator := h.operator(t)
	shop := "email:" + stack.CallerAccount
	stolen := h.token(t, stack.CallerAccount)
	bound := h.post(t, stolen, s, "the owner's, which has its nonce")
	h.await(t, bound.TxID, "TRACKING")
	mine := h.post(t, stolen, s, "the owner's, in the queue")
	theft := h.post(t, stolen, s, "the thief's, in the queue")

	must(operator.SuspendSubmitter(h.ctx, string(s), "a credential was stolen"))(t)
	set, err := operator.SetCallers(h.ctx, string(s), []string{"sub:2002"}, map[string]string{"sub:2002": shop}, "a credential was stolen")
	if err != nil || set.Status != "SUSPENDED" || set.Forbidden == nil || *set.Forbidden != 0 {
		t.Fatalf("change the callers: got %s, %v; want it suspended still, and what the successor has allowed", set.Status, err)
	}
	h.isUnauthorised(t, "the thief", stolen, s, theft.TxID, "the thief's, in the queue")
	out, err := operator.CancelQueue(h.ctx, string(s), shop, "a credential was stolen")
	if err != nil || out.Cancelled != 2 || out.Remaining != 0 || out.Bound != 1 {
		t.Fatalf("cancel what is queued: got %+v, %v; want two cancelled, and one with a nonce", out, err)
	}
	if again, err := operator.CancelQueue(h.ctx, string(s), shop, "a credential was stolen"); err != nil || again.Cancelled != 0 || again.Bound != 1 {
		t.Errorf("the same again: got %+v, %v; want none cancelled", again, err)
	}
	must(operator.SetPolicy(h.ctx, string(s), client.Policy{MaxValue: "1", MaxPerMinute: 10}, "a credential was stolen"))(t)
	h.Chain.StartMining()
	must(operator.ResumeSubmitter(h.ctx, string(s), "the credential was replaced"))(t)
	owner := h.mint(t, map[string]any{"sub": "2002"})
	h.post(t, owner, s, "the owner's, in the queue").wantKnown(t, "the owner repeats what it posted", mine.TxID)
	fresh := h.post(t, owner, s, "the owner's, posted anew")
	h.await(t, bound.TxID, "CONFIRMED")
	h.await(t, fresh.TxID, "CONFIRMED")
	h.wantCount(t, "what was queued", 2, `select count(*) from managed_tx where tx_id = any($1) and state = 'FAILED' and sub_state = 'CANCELLED' and nonce is null`, []string{theft.TxID, mine.TxID})
	h.wantCount(t, "on record", 2, `select count(*) from tx_decision where action = 'CANCEL' and by = $1 and reason = 'a credential was stolen'`, "email:"+stack.OperatorAccount)
}
