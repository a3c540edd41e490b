package issuer_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/shared/check"
)

// exchange sends a code to the issuer, and returns the status and the token.
func exchange(t *testing.T, i *issuer.Issuer, form url.Values) (int, string) {
	t.Helper()
	form.Set("grant_type", "authorization_code")
	resp := check.Value(http.PostForm(i.URL()+"/token", form))(t)
	defer resp.Body.Close()
	var answer struct {
		Token string `json:"id_token"`
	}
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Token
}

// A code ends a minute after it was made, and at its first use, also a late one.
func TestCodesEndAfterAMinute(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	made := time.Now()
	i := start(t, issuer.Options{Now: func() time.Time { return made.Add(time.Duration(passed.Load())) }})
	for _, c := range []struct {
		after  time.Duration
		status int
	}{{time.Minute - time.Millisecond, 200}, {time.Minute, 400}, {time.Hour, 400}} {
		passed.Store(0)
		code := check.Value(i.Code(tenant, audience))(t)
		passed.Store(int64(c.after))
		status, _ := exchange(t, i, url.Values{"code": {code}, "client_id": {audience}})
		check.Equal(t, fmt.Sprint("after ", c.after), status, c.status)
		passed.Store(0)
		status, _ = exchange(t, i, url.Values{"code": {code}, "client_id": {audience}})
		check.Equal(t, fmt.Sprint("again, after ", c.after), status, 400)
	}
}

// A code is exchanged once, by the client for which it was made. A code of a browser's sign-in also needs the
// verifier of its challenge.
func TestCodesAreExchangedOnce(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	code, another := check.Value(i.Code(tenant, audience))(t), check.Value(i.Code(tenant, audience))(t)
	status, token := exchange(t, i, url.Values{"code": {code}, "client_id": {audience}})
	check.Equal(t, "a code", status, 200)
	check.Equal(t, "its holder", check.Value(verifier(t, i, 0).Verify(t.Context(), token))(t).Email, tenant)
	for name, form := range map[string]url.Values{
		"again": {"code": {code}, "client_id": {audience}}, "unknown": {"code": {"x"}, "client_id": {audience}}, "none": {"client_id": {audience}},
		"by another client": {"code": {another}, "client_id": {"other"}},
	} {
		status, _ := exchange(t, i, form)
		check.Equal(t, name, status, 400)
	}
	if _, err := i.Code("nobody@fencepost.test", audience); err == nil {
		t.Error("a code of an unknown account: got no error, want one")
	}
	const verifierText, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" // RFC 7636, appendix B
	authorize := func() url.Values {
		t.Helper()
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		resp, err := client.Get(i.URL() + "/authorize?" + url.Values{
			"response_type": {"code"}, "client_id": {audience}, "redirect_uri": {"http://127.0.0.1:1/back"}, "state": {"s"},
			"code_challenge": {challenge}, "code_challenge_method": {"S256"},
		}.Encode())
		check.OK(t)(err)
		defer resp.Body.Close()
		client.CloseIdleConnections()
		to := check.Value(resp.Location())(t)
		check.Equal(t, "state", to.Query().Get("state"), "s")
		return to.Query()
	}
	check.Equal(t, "nobody signs in", authorize().Get("error"), "access_denied")
	i.SignIn(tenant)
	for verifier, want := range map[string]int{verifierText: 200, "another": 400, "": 400} {
		status, _ := exchange(t, i, url.Values{"code": {authorize().Get("code")}, "client_id": {audience}, "redirect_uri": {"http://127.0.0.1:1/back"}, "code_verifier": {verifier}})
		check.Equal(t, "verifier "+verifier, status, want)
	}
	status, _ = exchange(t, i, url.Values{"code": {authorize().Get("code")}, "client_id": {audience}, "redirect_uri": {"http://attacker.example/"}, "code_verifier": {verifierText}})
	check.Equal(t, "to another address", status, 400)
	http.DefaultClient.CloseIdleConnections()
}
