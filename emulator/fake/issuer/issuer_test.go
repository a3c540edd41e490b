package issuer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
	"go.uber.org/goleak"
)

const (
	tasks    = "tasks@fencepost.test"
	tenant   = "tenant@fencepost.test"
	audience = "https://internal.fencepost.test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o issuer.Options) *issuer.Issuer {
	t.Helper()
	o.Accounts = []string{tasks, tenant}
	i := check.Value(issuer.Start(o))(t)
	t.Cleanup(func() { _ = i.Close() })
	return i
}

func verifier(t *testing.T, i *issuer.Issuer, refresh time.Duration) *web.Verifier {
	t.Helper()
	return check.Value(web.NewVerifier(web.VerifierOptions{Issuer: i.URL(), JWKSURL: i.JWKSURL(), Audience: audience, KeysRefresh: refresh}))(t)
}

func token(t *testing.T, i *issuer.Issuer, email string) string {
	t.Helper()
	return check.Value(i.Token(t.Context(), email, audience))(t)
}

func flawed(t *testing.T, i *issuer.Issuer, flaw issuer.Flaw) string {
	t.Helper()
	return check.Value(i.FlawedToken(tasks, audience, flaw))(t)
}

func request(token string) *http.Request {
	r := httptest.NewRequest("POST", "/internal/advance", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func code(_ any, err error) string {
	var p *web.Problem
	if errors.As(err, &p) {
		return p.Code.Name
	}
	return ""
}

func TestValidTokenIsAcceptedWithBothAlgorithms(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"RS256", "ES256"} {
		i := start(t, issuer.Options{Algorithm: algorithm})
		got := check.Value(verifier(t, i, 0).Authenticate(request(token(t, i, tasks))))(t)
		if got.Email != tasks || !got.EmailVerified || len(got.Subject) != 21 {
			t.Errorf("%s: got %+v, want the verified e-mail %s and a subject of 21 digits", algorithm, got, tasks)
		}
	}
}

func TestEveryFlawIsUnauthorized(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"RS256", "ES256"} {
		i := start(t, issuer.Options{Algorithm: algorithm})
		v := verifier(t, i, 0)
		for flaw := issuer.Expired; flaw <= issuer.Tampered; flaw++ {
			check.Equal(t, fmt.Sprintf("%s, flaw %d", algorithm, flaw), code(v.Authenticate(request(flawed(t, i, flaw)))), "UNAUTHORIZED")
		}
	}
}

// cloudRun passes requests to an internal function. With its check of callers it verifies a token, and removes the
// signature. Without the check it passes the request as it came.
func cloudRun(v *web.Verifier, checksCallers bool, function http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !checksCallers {
			function.ServeHTTP(w, r)
			return
		}
		if _, err := v.Authenticate(r); err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		token := r.Header.Get("Authorization")
		r.Header.Set("Authorization", token[:strings.LastIndex(token, ".")+1]+"SIGNATURE_REMOVED_BY_GOOGLE")
		function.ServeHTTP(w, r)
	})
}

// Where Cloud Run's check removes signatures, a task is served with internal_tokens_verified_once, which
// switches that check off, and refused without. No token without its signature is ever served.
func TestATaskIsServedWhereCloudRunWouldRemoveTheSignature(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	v := verifier(t, i, 0)
	function := web.RequireAccounts(verifier(t, i, 0), tasks)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	whole := token(t, i, tasks)
	removed := whole[:strings.LastIndex(whole, ".")+1] + "SIGNATURE_REMOVED_BY_GOOGLE"
	for _, c := range []struct {
		name          string
		checksCallers bool
		token         string
		want          int
	}{
		{"a task, both check", true, whole, http.StatusUnauthorized},
		{"a task, the function checks alone", false, whole, http.StatusNoContent},
		{"no signature, both check", true, removed, http.StatusForbidden},
		{"no signature, the function checks alone", false, removed, http.StatusUnauthorized},
		{"another account, the function checks alone", false, token(t, i, tenant), http.StatusForbidden},
		{"no token, the function checks alone", false, "", http.StatusUnauthorized},
	} {
		w := httptest.NewRecorder()
		cloudRun(v, c.checksCallers, function).ServeHTTP(w, request(c.token))
		check.Equal(t, c.name, w.Code, c.want)
	}
}

func TestATokenForAnotherAudienceOrAlgorithmIsUnauthorized(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	other := check.Value(i.Token(t.Context(), tasks, "https://elsewhere.fencepost.test"))(t)
	check.Equal(t, "another audience", code(verifier(t, i, 0).Authenticate(request(other))), "UNAUTHORIZED")
	v := check.Value(web.NewVerifier(web.VerifierOptions{Issuer: i.URL(), JWKSURL: i.JWKSURL(), Audience: audience, Algorithms: []string{"ES256"}}))(t)
	check.Equal(t, "RS256 where only ES256 is accepted", code(v.Authenticate(request(token(t, i, tasks)))), "UNAUTHORIZED")
}

func TestRefusalHasAShortReasonOnly(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	v := verifier(t, i, 0)
	for text, want := range map[string]string{
		flawed(t, i, issuer.Expired):     "expired",
		flawed(t, i, issuer.WrongIssuer): "not a valid one",
		"":                               "no bearer token",
		"not.a":                          "not one bearer token",
	} {
		rec := httptest.NewRecorder()
		_, err := v.Authenticate(request(text))
		web.Fail(rec, request(""), err)
		if got := rec.Body.String(); !strings.Contains(got, want) || strings.Contains(got, "oidc") || strings.Contains(got, i.URL()) {
			t.Errorf("got body %s, want %q and nothing of the inside", got, want)
		}
		if got := rec.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
			t.Errorf("got WWW-Authenticate %q, want a Bearer challenge", got)
		}
	}
}

func TestTwoAuthorizationHeadersAreUnauthorized(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	r := request(token(t, i, tasks))
	r.Header.Add("Authorization", "Bearer "+token(t, i, tenant))
	check.Equal(t, "two headers", code(verifier(t, i, 0).Authenticate(r)), "UNAUTHORIZED")
}

func TestUnreachableKeysAreUnavailableNotUnauthorized(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	text, unseen := token(t, i, tasks), token(t, i, tenant)
	warm, cold := verifier(t, i, 0), verifier(t, i, 0)
	check.OK(t)(warm.Authenticate(request(text)))
	check.OK(t)(i.Close())
	check.Equal(t, "without keys", code(cold.Authenticate(request(text))), "UNAVAILABLE")
	check.OK(t)(warm.Authenticate(request(unseen)))
}

func TestKeysThatAnswerAnErrorAreUnavailable(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	v := check.Value(web.NewVerifier(web.VerifierOptions{Issuer: i.URL(), JWKSURL: i.URL() + "/missing", Audience: audience}))(t)
	check.Equal(t, "a key set that answers 404", code(v.Authenticate(request(token(t, i, tasks)))), "UNAVAILABLE")
}

func TestANewKeyIsFetchedWhenATokenNamesIt(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{Algorithm: "ES256"})
	v := verifier(t, i, time.Nanosecond)
	old := token(t, i, tasks)
	check.OK(t)(v.Authenticate(request(old)))
	check.OK(t)(i.Rotate())
	check.OK(t)(v.Authenticate(request(token(t, i, tasks))))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for code(v.Authenticate(request(old))) != "UNAUTHORIZED" { // the old keys are in use for a moment longer; nothing verified by them is kept
		check.OK(t)(ctx.Err())
	}
}

func TestMadeUpKeyIDsDoNotHammerTheIssuer(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{Algorithm: "ES256"})
	v := verifier(t, i, time.Hour)
	for range 20 {
		check.Equal(t, "an unknown key", code(v.Authenticate(request(flawed(t, i, issuer.UnknownKey)))), "UNAUTHORIZED")
	}
	check.OK(t)(v.Authenticate(request(token(t, i, tasks))))
	check.Equal(t, "fetches of the keys", i.KeyFetches(), 1)
}

func TestOnlyTheNamedAccountsGetIn(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	in := 0
	guard := web.RequireAccounts(verifier(t, i, 0), tasks)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		in++
	}))
	forged := request("")
	forged.Header.Set("X-CloudTasks-QueueName", "advance")
	forged.Header.Set("X-CloudScheduler", "true")
	for _, tc := range []struct {
		name string
		r    *http.Request
		want int
	}{
		{"named account", request(token(t, i, tasks)), http.StatusOK},
		{"other account", request(token(t, i, tenant)), http.StatusForbidden},
		{"e-mail not verified", request(flawed(t, i, issuer.EmailNotVerified)), http.StatusForbidden},
		{"no e-mail", request(flawed(t, i, issuer.NoEmail)), http.StatusForbidden},
		{"expired", request(flawed(t, i, issuer.Expired)), http.StatusUnauthorized},
		{"headers of Cloud Tasks and Scheduler, no token", forged, http.StatusUnauthorized},
	} {
		rec := httptest.NewRecorder()
		guard.ServeHTTP(rec, tc.r)
		check.Equal(t, tc.name, rec.Code, tc.want)
	}
	check.Equal(t, "requests let in", in, 1)
}

func TestVerifierRefusesOptionsThatWouldBeUnsafe(t *testing.T) {
	t.Parallel()
	good := web.VerifierOptions{Issuer: "https://i.test", JWKSURL: "https://i.test/k", Audience: "a"}
	noAudience, hmac, none := good, good, good
	noAudience.Audience, hmac.Algorithms, none.Algorithms = "", []string{"HS256"}, []string{"RS256", "none"}
	for _, o := range []web.VerifierOptions{noAudience, hmac, none} {
		if v, err := web.NewVerifier(o); err == nil {
			t.Errorf("got %v for %+v, want an error", v, o)
		}
	}
}

func TestAnUnknownAccountGetsNoToken(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	check.Err(t, "an unknown account", issuer.ErrUnknownAccount)(i.Token(t.Context(), "new@fencepost.test", audience))
	i.AddAccount("new@fencepost.test")
	check.OK(t)(i.Token(t.Context(), "new@fencepost.test", audience))
}

func TestDiscoveryLeadsAStandardClientToTheKeys(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ctx := oidc.ClientContext(context.Background(), &http.Client{Transport: transport})
	provider := check.Value(oidc.NewProvider(ctx, i.URL()))(t)
	check.OK(t)(provider.Verifier(&oidc.Config{ClientID: audience}).Verify(ctx, token(t, i, tenant)))
}

// A user's token contains the holder's id only.
func TestUserTokenContainsOnlyTheID(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	text := check.Value(i.UserToken(77, audience))(t)
	got, err := verifier(t, i, 0).Authenticate(request(text))
	if err != nil || got.Subject != "77" || got.Email != "" || got.EmailVerified {
		t.Errorf("identity: got %+v, %v; want subject 77 and no e-mail", got, err)
	}
}

// A user's token with any flaw is refused as unauthorized.
func TestEveryFlawOfAUsersTokenIsUnauthorized(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{Algorithm: "ES256"})
	v := verifier(t, i, 0)
	for flaw := issuer.Expired; flaw <= issuer.Tampered; flaw++ {
		text := check.Value(i.FlawedUserToken(77, audience, flaw))(t)
		check.Equal(t, fmt.Sprint("flaw ", flaw), code(v.Authenticate(request(text))), "UNAUTHORIZED")
	}
	text := check.Value(i.UserToken(77, "https://elsewhere.example"))(t)
	check.Equal(t, "for another audience", code(v.Authenticate(request(text))), "UNAUTHORIZED")
}
