package browser

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
)

// aside starts one more process with other settings on the same database, until the end of t, and returns its address.
func (h *deployment) aside(t *testing.T, settings map[string]string) (addr string) {
	t.Helper()
	p := must(h.StartAside(t.Context(), settings))(t)
	t.Cleanup(func() { check(t, p.Stop(context.WithoutCancel(t.Context()))) })
	return p.Addr()
}

// asks makes a request of the person's browser for the console at the address, and follows no redirect. A form is posted.
func (h *deployment) asks(t *testing.T, b *tab, addr, path string, form url.Values) (status int, text string) {
	t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req := must(http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(form.Encode())))(t)
	req.Host = strings.TrimPrefix(h.console, "http://")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", h.console)
	}
	resp := b.sends(req)
	defer resp.Body.Close()
	return resp.StatusCode, string(must(io.ReadAll(resp.Body))(t))
}

// sends makes the request with the person's cookies, and follows no redirect.
func (b *tab) sends(req *http.Request) *http.Response {
	b.t.Helper()
	for _, c := range b.cookies() {
		req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	return must(http.DefaultTransport.RoundTrip(req))(b.t)
}

// A person who is taken out of auth.operators or auth.viewers has no access at the next request, while the session goes
// on. Admin refuses it by its own lists where those of the console are old. Others are not affected, and a session that
// another key has sealed is none.
func TestARemovedPersonHasNoAccessAtTheNextRequest(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.changing.Lock()
	defer h.changing.Unlock()
	operator, viewer, second := h.as(t, stack.OperatorAccount), h.as(t, stack.ViewerAccount), h.as(t, stack.SecondAccount)
	page := submitterPath(h.changed())
	suspend := url.Values{"csrf": {operator.token(page + "/suspend")}, "reason": {"as one who was removed"}}
	viewer.open(page)

	restarted := h.aside(t, map[string]string{
		"FENCEPOST_AUTH_OPERATORS": "email:" + stack.SecondAccount + ",email:third@fencepost.example", "FENCEPOST_AUTH_VIEWERS": "email:other@fencepost.example",
	})
	behind := h.aside(t, map[string]string{"FENCEPOST_CONSOLE_ADMIN_URL": "http://" + restarted})
	for where, addr := range map[string]string{"where the console and admin are restarted": restarted, "where admin alone is": behind} {
		for who, b := range map[string]*tab{"the operator": operator, "the viewer": viewer} {
			for _, path := range []string{page, "/console/", "/console/audit"} {
				status, text := h.asks(t, b, addr, path, nil)
				if status != http.StatusForbidden || !strings.Contains(text, "neither an operator nor a viewer") {
					t.Errorf("%s at %s, %s: got %d %s, want 403 and why", who, path, where, status, text)
				}
			}
		}
		if status, text := h.asks(t, operator, addr, page+"/suspend", suspend); status != http.StatusForbidden || !strings.Contains(text, "operator") {
			t.Errorf("the act of the operator, %s: got %d %s, want 403 and why", where, status, text)
		}
		status, _ := h.asks(t, second, addr, page, nil)
		equal(t, "the other operator, "+where, status, http.StatusOK)
	}
	equal(t, "after the acts", h.status(t), "ACTIVE")
	operator.open(page) // the session goes on where the person is an operator

	foreign := h.aside(t, map[string]string{"FENCEPOST_CONSOLE_SESSION_KEYS": "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="})
	status, _ := h.asks(t, operator, foreign, page, nil)
	equal(t, "a session of another key (to the sign-in)", status, http.StatusSeeOther)
	if status, _ := h.asks(t, operator, foreign, page+"/suspend", suspend); status != http.StatusUnauthorized || h.status(t) != "ACTIVE" {
		t.Errorf("an act in a session of another key: got %d, %s; want 401, ACTIVE", status, h.status(t))
	}
}
