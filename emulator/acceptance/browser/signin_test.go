package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/stack"
)

// as returns a tab of the person with the account, who has signed in once.
func (h *deployment) as(t *testing.T, account string) *tab {
	t.Helper()
	h.people.Lock()
	defer h.people.Unlock()
	person := h.signed[account]
	if person == nil {
		person = h.profile(t)
		b := newTab(t, person, h.console)
		b.answered("sign in as "+account, http.StatusOK, chromedp.Navigate(h.way(t, account)))
		h.signed[account] = person
		return b
	}
	return newTab(t, person, h.console)
}

// profile is a new profile of the browser, without cookies. It lasts as long as the browser.
func (h *deployment) profile(t *testing.T) context.Context {
	t.Helper()
	ctx, _ := chromedp.NewContext(h.chromium, chromedp.WithNewBrowserContext()) // it ends with the browser
	check(t, chromedp.Do(ctx))
	return ctx
}

// way is the address with a one-time code, by which the person signs in.
func (h *deployment) way(t *testing.T, account string) string {
	t.Helper()
	return must(h.ConsoleURL(account))(t)
}

// A one-time code opens the console once, and is gone from the address afterwards.
func TestOneTimeCodeOpensTheConsoleOnce(t *testing.T) {
	t.Parallel()
	h := setup(t)
	way := h.way(t, stack.OperatorAccount)
	b := newTab(t, h.profile(t), h.console)
	b.answered("sign in", http.StatusOK, chromedp.Navigate(way))
	b.shows("overview")
	equal(t, "after signing in (without the code)", b.at(), "/console/")
	var person string
	b.evaluate(`document.querySelector("[data-field=person]").textContent`, &person)
	equal(t, "signed in", person, stack.OperatorAccount)
	for _, c := range b.cookies() {
		if !c.HTTPOnly || c.SameSite == "None" || c.SameSite == "" {
			t.Errorf("the cookie %s: got HttpOnly %t, SameSite %q; want one that no script reads and no other site sends", c.Name, c.HTTPOnly, c.SameSite)
		}
	}
	thief := newTab(t, h.profile(t), h.console)
	thief.answered("sign in by a used code", http.StatusForbidden, chromedp.Navigate(way))
	if len(thief.cookies()) > 0 {
		t.Error("a used code: got a cookie, want none")
	}
	thief.opens("/console/attention", http.StatusUnauthorized)

	var button string
	b.evaluate(`document.querySelector("form.who button").textContent.trim()`, &button)
	b.answered("sign out", http.StatusOK, chromedp.Click(chromedp.CSS("form.who button")))
	b.opens("/console/attention", http.StatusUnauthorized)
}

// A name that leads to this machine does not open the console: a foreign page could read it by such a name.
func TestForeignHostIsRefused(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	for host, want := range map[string]int{"": http.StatusOK, "attacker.example": http.StatusForbidden, "attacker.example:80": http.StatusForbidden} {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, h.console+"/console/", nil))(t)
		req.Host = host
		resp := b.sends(req)
		check(t, resp.Body.Close())
		equal(t, fmt.Sprintf("host %q", host), resp.StatusCode, want)
		if policy := resp.Header.Get("Content-Security-Policy"); host == "" && (!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe")) {
			t.Errorf("the policy: got %q, want one that allows nothing but the console's files", policy)
		}
	}
}
