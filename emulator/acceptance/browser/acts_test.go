package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// By clicks alone: the ways out of what only a person ends. One drill runs at a time, and the faults are of all nodes, so
// they come one after the other.
func TestWaysOut(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, way := range []struct {
		name string
		test func(t *testing.T, h *deployment)
	}{
		{"of PROTECT", testWayOutOfProtect}, {"of STUCK", testWayOutOfStuck},
		{"of a payment that no node takes", testPaymentIsCancelled}, {"of a wrong balance", testWrongBalanceIsAdjusted},
	} {
		t.Run(way.name, func(t *testing.T) { way.test(t, h) })
	}
}

// audited checks that Audit has the act, with its reason and the person.
func (b *tab) audited(act, reason, person string) {
	b.t.Helper()
	path := "/console/audit?act=" + act
	b.until(path, act, reason)
	var rows []string
	b.evaluate(fmt.Sprintf(`[...document.querySelectorAll('main tr[data-act=%q]')].map(row => row.textContent)`, act), &rows)
	if !slices.ContainsFunc(rows, func(row string) bool { return missing(row, []string{reason, person}) == "" }) {
		b.t.Errorf("%s: got %q, want the reason %q of %s", path, rows, reason, person)
	}
}

// An act wants a reason, appears in Audit, and ends what it is about.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.changing.Lock()
	defer h.changing.Unlock()
	b := h.as(t, stack.OperatorAccount)
	b.open(submitterPath(h.changed()))
	b.follow("/suspend")
	b.suits(axeCore(t))
	b.evaluate(`document.querySelectorAll("main form").forEach(f => f.noValidate = true)`, nil)
	b.submits("button", http.StatusBadRequest)
	equal(t, "without a reason", h.status(t), "ACTIVE")
	b.fill("reason", "a leak")
	b.submit("button")
	b.until(submitterPath(h.changed()), "SUSPENDED")
	b.follow("/resume")
	b.fill("reason", "no leak")
	b.submit("button")
	equal(t, "resumed", h.status(t), "ACTIVE")
	b.audited("suspend", "a leak", stack.OperatorAccount)
	b.audited("resume", "no leak", stack.OperatorAccount)
}

// A policy that is no JSON is kept on its form. Corrected it is set, and the page shows it.
func TestPolicyIsSet(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.changing.Lock()
	defer h.changing.Unlock()
	b := h.as(t, stack.OperatorAccount)
	b.open(submitterPath(h.changed()))
	b.follow("/policy")
	const wrong = `{"maxPerMinute": 4321,}`
	b.fill("reason", "a limit")
	b.fill("policy", wrong)
	b.submits("button", http.StatusBadRequest)
	equal(t, "the policy after a refusal, which is kept", b.value("policy"), wrong)
	b.suits(axeCore(t))
	b.fill("policy", `{"maxPerMinute": 4321}`)
	b.submit("button")
	b.until(submitterPath(h.changed()), "of 4321")
	b.audited("policy", "a limit", stack.OperatorAccount)
	must(h.operator.SetPolicy(t.Context(), h.changed(), client.Policy{}, "the test is over"))(t)
}

// status is the status of the submitter that tests change.
func (h *deployment) status(t *testing.T) string {
	t.Helper()
	return must(h.operator.Submitter(t.Context(), h.changed()))(t).Status
}

// An act that needs two operators makes a proposal. Another operator approves it by clicks; its proposer cannot.
func TestSecondOperatorApproves(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open("/console/webhooks")
	b.follow("/books/pause")
	b.fill("reason", "it is closed")
	b.submit("button")
	b.follow("/books/resume")
	b.fill("reason", "it is open again")
	b.submit("button")
	path := b.at()
	if !strings.HasPrefix(path, "/console/proposals/") {
		t.Fatalf("after the act: got %s, want the proposal", path)
	}
	b.shows("proposal", "it is open again", "You proposed it")
	b.suits(axeCore(t))
	b.opens(path+"/approve", http.StatusOK)
	b.fill("reason", "I approve of myself")
	b.fill("confirm", b.label("confirm"))
	b.submits("button", http.StatusForbidden)
	b.shows("approve", "SAME_OPERATOR")
	if h.paused(t, "books") == nil {
		t.Error("before the second operator: got it resumed, want it paused")
	}
	second := h.as(t, stack.SecondAccount)
	second.open("/console/proposals")
	second.followPath(path)
	second.suits(axeCore(t))
	second.follow("/reject")
	second.suits(axeCore(t))
	second.open(path)
	second.follow("/approve")
	second.suits(axeCore(t))
	second.fill("reason", "I called them")
	second.fill("confirm", second.label("confirm"))
	second.submit("button")
	second.shows("proposal", "Carried out", "I called them")
	if got := h.paused(t, "books"); got != nil {
		t.Errorf("after the second operator: got %+v, want it resumed", got)
	}
	second.audited("webhook-pause", "it is closed", stack.OperatorAccount)
	second.audited("propose", "it is open again", stack.OperatorAccount)
	second.audited("approve", "I called them", stack.SecondAccount)
	second.audited("webhook-resume", "it is open again", stack.OperatorAccount)
	second.audited("webhook-resume", "it is open again", stack.SecondAccount)
}

// paused is why the endpoint is paused; nil: it is not.
func (h *deployment) paused(t *testing.T, name string) *client.EndpointPause {
	t.Helper()
	for _, e := range must(h.operator.WebhookEndpoints(t.Context()))(t) {
		if e.Name == name {
			return e.Paused
		}
	}
	t.Fatalf("there is no endpoint %s", name)
	return nil
}

// A viewer reads all pages and changes nothing, neither by a form nor without one.
func TestViewerOnlyReads(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.changing.Lock()
	defer h.changing.Unlock()
	b := h.as(t, stack.ViewerAccount)
	for _, p := range h.pages() {
		if p.name == "drill" {
			continue
		}
		b.open(p.path)
		b.shows(p.name, p.texts...)
	}
	path := submitterPath(h.changed()) + "/suspend"
	b.opens(path, http.StatusForbidden)
	equal(t, "a viewer's act", h.posts(t, b, h.console, path, url.Values{"csrf": {b.token("/console/")}, "reason": {"as a viewer"}}), http.StatusForbidden)
	equal(t, "after a viewer's act", h.status(t), "ACTIVE")
}

// A form of another page, which has no token, another person's, or another origin, changes nothing.
func TestForgedFormsAreRefused(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.changing.Lock()
	defer h.changing.Unlock()
	b := h.as(t, stack.OperatorAccount)
	path := submitterPath(h.changed()) + "/suspend"
	own, other := b.token(path), h.as(t, stack.SecondAccount).token(path)
	if own == "" || own == other {
		t.Fatalf("tokens of two sessions: got %q and %q, want two", own, other)
	}
	for what, values := range map[string]url.Values{
		"without a token": {"reason": {"forged"}}, "with an empty one": {"reason": {"forged"}, "csrf": {""}},
		"with another session's": {"reason": {"forged"}, "csrf": {other}}, "with a changed one": {"reason": {"forged"}, "csrf": {own[1:] + "A"}},
	} {
		equal(t, fmt.Sprintf("a form %s", what), h.posts(t, b, h.console, path, values), http.StatusForbidden)
		equal(t, fmt.Sprintf("after a form %s", what), h.status(t), "ACTIVE")
	}
	ours := url.Values{"reason": {"a form of ours"}, "csrf": {own}}
	for _, origin := range []string{"", "null", "http://attacker.example"} {
		if got := h.posts(t, b, origin, path, ours); got != http.StatusForbidden || h.status(t) != "ACTIVE" {
			t.Errorf("a form of the origin %q: got %d, %s; want 403, ACTIVE", origin, got, h.status(t))
		}
	}
	equal(t, "a form of ours", h.posts(t, b, h.console, path, ours), http.StatusSeeOther)
	must(h.operator.ResumeSubmitter(t.Context(), h.changed(), "the test is over"))(t)
}

// token is the hidden field of the page's form.
func (b *tab) token(path string) (token string) {
	b.t.Helper()
	b.open(path)
	b.evaluate(`document.querySelector("[name=csrf]").value`, &token)
	return token
}

// posts posts a form of the origin with the person's cookies, and returns the status.
func (h *deployment) posts(t *testing.T, b *tab, origin, path string, values url.Values) int {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, h.console+path, strings.NewReader(values.Encode())))(t)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	resp := b.sends(req)
	check(t, resp.Body.Close())
	return resp.StatusCode
}

// The nonce lane follows what happens without being loaded again.
func TestLaneIsLive(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open(submitterPath(h.ordinary()))
	b.evaluate(`window.loaded = true`, nil)
	id := must(h.post(t.Context(), h.ordinary(), "live"))(t)
	check(t, h.reaches(t.Context(), id, client.Confirmed))
	nonce := *must(h.operator.Tx(t.Context(), id))(t).Nonce
	b.run("wait for the square", chromedp.WaitReady(chromedp.CSS(fmt.Sprintf(`main [data-nonce="%d"][data-state=CONFIRMED]`, nonce))))
	var same bool
	b.evaluate(`window.loaded === true`, &same)
	if !same {
		t.Error("the lane: got the page loaded again, want only its live part")
	}
}

// square checks that the lane has the nonce in one of the states.
func (b *tab) square(nonce uint64, states ...string) {
	b.t.Helper()
	var got string
	b.evaluate(fmt.Sprintf(`document.querySelector('main [data-nonce="%d"]')?.dataset.state || ""`, nonce), &got)
	if !slices.Contains(states, got) {
		b.t.Errorf("nonce %d in the lane: got %q, want one of %q", nonce, got, states)
	}
}
