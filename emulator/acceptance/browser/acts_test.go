package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// By clicks alone: an operator finds a submitter in PROTECT, reads the evidence, is refused with a wrong count, tries the
// release, releases, and writes the foreign transaction off.
func TestWayOutOfProtect(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	said, ended := h.drill(t, "foreign-key")
	s := h.drilled()
	poll(t, "the drill says what to expect", func() bool { return strings.Contains(said(), "finalized") })
	nonce := must(h.operator.Lost(t.Context(), s, ""))(t).Nonces[0].Nonce
	b.until("/console/", "PROTECT")
	b.follow("/console/attention")
	b.shows("attention", "PROTECT")
	b.followPath(submitterPath(s))
	b.shows("submitter", "PROTECT")
	b.square(nonce, "LOST", "GAP", "UNRECORDED")
	b.follow("/protect")
	b.shows("protect", fmt.Sprint(nonce))
	b.suits()
	b.follow("/protect/release")
	b.shows("release", fmt.Sprint(nonce))
	b.suits()

	const try = "Show what would happen (changes nothing)"
	count, answer := b.value("count"), fmt.Sprintf("request-%d", nonce)
	b.fill("count", "999999")
	b.choose(answer, "none")
	b.fill("reason", "a program of ours had the key")
	b.presses(try, http.StatusBadRequest)
	b.shows("release", "count", "finalized")
	if got := b.value("reason"); got != "a program of ours had the key" {
		t.Errorf("the reason after the refusal: got %q, want it kept", got)
	}
	h.incident(t, s) // it is still open
	b.fill("count", count)
	b.press(try)
	b.shows("release", "What the release would do", fmt.Sprint(nonce))
	b.suits()
	b.fill("confirm", s[len(s)-6:])
	b.press("Release: accept the loss")
	b.shows("protect", "No incident is open")
	b.ends(t, ended, said)
	b.open(submitterPath(s) + "/foreign")
	b.shows("foreign", fmt.Sprint(nonce))
	b.follow("/foreign/write-off")
	b.fill("reason", "no request of ours")
	b.fill("confirm", fmt.Sprint(nonce))
	b.submit("button")
	if open := foreign(t, h, s); slices.Contains(open, nonce) {
		t.Errorf("foreign transactions to decide about: got nonces %d, want %d gone", open, nonce)
	}
	b.until("/console/audit", "no request of ours", "a program of ours had the key")
}

// foreign returns the nonces of the foreign transactions that wait for a decision.
func foreign(t *testing.T, h *deployment, s string) (nonces []uint64) {
	t.Helper()
	for f, err := range h.operator.ListForeign(t.Context(), s) {
		check(t, err)
		nonces = append(nonces, f.Nonce)
	}
	return nonces
}

// suits checks a page that only some states have: on a phone, and by axe-core.
func (b *tab) suits() {
	b.t.Helper()
	b.width(narrow)
	b.fits(b.at())
	b.width(wide)
	if os.Getenv("AXE_CORE") != "" {
		b.accessible(b.at(), axeCore(b.t))
	}
}

// ends waits for the drill's end, which is that of its runbook.
func (b *tab) ends(t *testing.T, ended <-chan struct{}, said func() string) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(time.Minute):
	}
	if !strings.Contains(said(), "Ended as") {
		t.Fatalf("the drill: got\n%s\nwant it ended; the page is %s", said(), b.where())
	}
}

// By clicks alone: an operator finds a STUCK transaction, reads why, and sends it again.
func TestWayOutOfStuck(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	said, ended := h.drill(t, "stuck")
	poll(t, "the drill says what to expect", func() bool { return strings.Contains(said(), "Expect:") })
	_, rest, _ := strings.Cut(said(), "/api/v1/tx/")
	txID, _, _ := strings.Cut(rest, "\n")
	b.open("/console/")
	b.follow("/console/attention")
	b.followPath("/console/tx/" + txID)
	b.shows("transaction", "STUCK", "over_node_cap")
	b.follow("/decide")
	b.suits()
	b.choose("action", "rebroadcast")
	b.fill("reason", "the limit was raised")
	b.submit("button")
	b.ends(t, ended, said)
	b.until("/console/tx/"+txID, "CONFIRMED", "the limit was raised", stack.OperatorAccount)
}

// A payout is found by the hash of its transaction, which the chain's explorer shows.
func TestPayoutIsFoundByItsHash(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open("/console/")
	b.run("type the hash", chromedp.SendKeys(chromedp.CSS(`header input[name=q]`), h.paid))
	b.answered("search", http.StatusOK, chromedp.SendKeys(chromedp.CSS(`header input[name=q]`), "\r"))
	if !strings.HasPrefix(b.at(), "/console/tx/") {
		b.follow("/console/tx/")
	}
	b.shows("transaction", "CONFIRMED", h.transfer)
	b.follow("/console/transfers/" + h.transfer)
	b.shows("transfer", "COMMITTED", "0.5")
}

// An act wants a reason, appears in Audit, and ends what it is about.
func TestSuspendAndResume(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open(submitterPath(h.changed()))
	b.follow("/suspend")
	b.suits()
	b.evaluate(`document.querySelectorAll("main form").forEach(f => f.noValidate = true)`, nil)
	b.submits("button", http.StatusBadRequest)
	if got := h.status(t); got != "ACTIVE" {
		t.Errorf("without a reason: got %s, want it ACTIVE", got)
	}
	b.fill("reason", "a leak")
	b.submit("button")
	b.until(submitterPath(h.changed()), "SUSPENDED")
	b.follow("/resume")
	b.fill("reason", "no leak")
	b.submit("button")
	if got := h.status(t); got != "ACTIVE" {
		t.Errorf("resumed: got %s, want it ACTIVE", got)
	}
	b.until("/console/audit", "a leak", "no leak")
}

// status is the status of the submitter that tests change.
func (h *deployment) status(t *testing.T) string {
	t.Helper()
	return must(h.operator.Submitter(t.Context(), h.changed()))(t).Status
}

// An act that needs two operators makes a proposal. Another operator approves it by clicks; its proposer cannot.
func TestSecondOperatorApproves(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open("/console/webhooks")
	b.follow("/resume")
	b.fill("reason", "it is open again")
	b.submit("button")
	path := b.at()
	if !strings.HasPrefix(path, "/console/proposals/") {
		t.Fatalf("after the act: got %s, want the proposal", path)
	}
	b.shows("proposal", "it is open again")
	b.opens(path+"/approve", http.StatusOK)
	b.fill("reason", "I approve of myself")
	b.fill("confirm", path[len(path)-6:])
	b.submits("button", http.StatusForbidden)
	paused := func() bool { return must(h.operator.WebhookEndpoints(t.Context()))(t)[0].Paused != nil }
	if !paused() {
		t.Error("before the second operator: got it resumed, want it paused")
	}
	second := h.as(t, stack.SecondAccount)
	second.open("/console/proposals")
	second.followPath(path)
	second.follow("/approve")
	second.suits()
	second.fill("reason", "I called them")
	second.fill("confirm", path[len(path)-6:])
	second.submit("button")
	if paused() {
		t.Error("after the second operator: got it paused, want it resumed")
	}
	must(h.operator.PauseWebhookEndpoint(t.Context(), "shop", chosen.reason))(t)
}

// A viewer reads all pages and changes nothing, neither by a form nor without one.
func TestViewerOnlyReads(t *testing.T) {
	h := setup(t)
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
	if got := h.posts(t, b, h.console, path, url.Values{"csrf": {b.token("/console/")}, "reason": {"as a viewer"}}); got != http.StatusForbidden {
		t.Errorf("a viewer's act: got %d, want 403", got)
	}
	if got := h.status(t); got != "ACTIVE" {
		t.Errorf("after a viewer's act: got %s, want ACTIVE", got)
	}
}

// A form of another page, which has no token, another person's, or another origin, changes nothing.
func TestForgedFormsAreRefused(t *testing.T) {
	h := setup(t)
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
		if got := h.posts(t, b, h.console, path, values); got != http.StatusForbidden {
			t.Errorf("a form %s: got %d, want 403", what, got)
		}
		if got := h.status(t); got != "ACTIVE" {
			t.Errorf("after a form %s: got %s, want ACTIVE", what, got)
		}
	}
	ours := url.Values{"reason": {"a form of ours"}, "csrf": {own}}
	for _, origin := range []string{"", "null", "http://attacker.example"} {
		if got := h.posts(t, b, origin, path, ours); got != http.StatusForbidden || h.status(t) != "ACTIVE" {
			t.Errorf("a form of the origin %q: got %d, %s; want 403, ACTIVE", origin, got, h.status(t))
		}
	}
	if got := h.posts(t, b, h.console, path, ours); got != http.StatusSeeOther {
		t.Errorf("a form of ours: got %d, want 303", got)
	}
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
	for _, c := range b.cookies() {
		req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	resp := must(http.DefaultTransport.RoundTrip(req))(t)
	check(t, resp.Body.Close())
	return resp.StatusCode
}

// The nonce lane follows what happens without being loaded again.
func TestLaneIsLive(t *testing.T) {
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
