package functions_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/functions/console"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/signin"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/web"
)

// backend is the audience of the console's own backend service behind Identity-Aware Proxy.
const backend = "/projects/1/global/backendServices/2"

var sessionKey = base64.StdEncoding.EncodeToString(make([]byte, 32))

// consoleSettings are settings of a console whose people sign in at the issuer.
func consoleSettings(issuer string) []string {
	return []string{
		"FENCEPOST_CONSOLE_MODE=oidc", "FENCEPOST_CONSOLE_AUDIENCE=console", "FENCEPOST_CONSOLE_OIDC_ISSUER=" + issuer, "FENCEPOST_CONSOLE_OIDC_JWKS_URL=" + issuer,
		"FENCEPOST_CONSOLE_SESSION_KEYS=" + sessionKey, "FENCEPOST_CONSOLE_ADMIN_URL=http://127.0.0.1:1", "FENCEPOST_CONSOLE_HOSTS=console.example",
		"FENCEPOST_AUTH_VIEWERS=email:eve@fencepost.example",
	}
}

// iapSettings are settings of a console behind Identity-Aware Proxy, whose tokens the issuer makes.
func iapSettings(issuer string) []string {
	return append(consoleSettings(""), "FENCEPOST_CONSOLE_MODE=iap", "FENCEPOST_CONSOLE_AUDIENCE="+backend, "FENCEPOST_CONSOLE_IAP_ISSUER="+issuer,
		"FENCEPOST_CONSOLE_IAP_JWKS_URL="+issuer)
}

// iapClaims are those of Identity-Aware Proxy, which has no email_verified.
func iapClaims(account string) jwt.MapClaims {
	return jwt.MapClaims{"sub": "accounts.google.com:1", "email": account + "@fencepost.example"}
}

// Admin accepts the token of a person who has come through Identity-Aware Proxy to this console, and no other.
// No other function accepts it.
func TestAdminAcceptsTheProxysToken(t *testing.T) {
	t.Parallel()
	h := build(t)
	proxy := startIssuer(t)
	settings := append(h.transferSettings(), iapSettings(proxy.url)...)
	h.url = h.serve(settings...)
	const submitters = "GET /admin/v1/submitters"
	old := jwt.MapClaims{"iat": time.Now().Add(-2 * time.Hour).Unix(), "exp": time.Now().Add(-time.Minute).Unix()}
	ann := proxy.token(t, backend, iapClaims("ann"))
	public := check.Value(proxy.key.PublicKey.Bytes())(t)
	for name, c := range map[string]struct{ token, call, want string }{
		"an operator":                   {ann, submitters, "200 <nil>"},
		"an operator's act":             {ann, "POST /admin/v1/conservation/check", "200 <nil>"},
		"a viewer":                      {proxy.token(t, backend, iapClaims("eve")), submitters, "200 <nil>"},
		"a viewer's act":                {proxy.token(t, backend, iapClaims("eve")), "POST /admin/v1/conservation/check", "403 READ_ONLY"},
		"a viewer's dry run":            {proxy.token(t, backend, iapClaims("eve")), "POST " + ofShop + "/release?dryRun=true", "403 READ_ONLY"},
		"a viewer's own token":          {h.callerToken("eve"), submitters, "200 <nil>"},
		"somebody else":                 {proxy.token(t, backend, iapClaims("shop")), submitters, "403 FORBIDDEN"},
		"another backend":               {proxy.token(t, "/projects/1/global/backendServices/3", iapClaims("ann")), submitters, "401 UNAUTHORIZED"},
		"the audience of callers":       {proxy.token(t, "public", iapClaims("ann")), submitters, "401 UNAUTHORIZED"},
		"by the issuer of callers":      {h.issuer.token(t, backend, iapClaims("ann")), submitters, "401 UNAUTHORIZED"},
		"by another issuer's key":       {startIssuer(t).token(t, backend, with(iapClaims("ann"), jwt.MapClaims{"iss": proxy.url})), submitters, "401 UNAUTHORIZED"},
		"expired":                       {proxy.token(t, backend, with(iapClaims("ann"), old)), submitters, "401 UNAUTHORIZED"},
		"without a signature":           {proxy.signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, backend, iapClaims("ann")), submitters, "401 UNAUTHORIZED"},
		"by the public key as a secret": {proxy.signed(t, jwt.SigningMethodHS256, public, backend, iapClaims("ann")), submitters, "401 UNAUTHORIZED"},
		"an account of another kind":    {proxy.token(t, backend, with(iapClaims("ann"), jwt.MapClaims{"sub": "securetoken.google.com/p:1"})), submitters, "401 UNAUTHORIZED"},
		"without an address":            {proxy.token(t, backend, with(iapClaims("ann"), jwt.MapClaims{"email": ""})), submitters, "403 FORBIDDEN"},
		"at another public function":    {ann, "GET /api/v1/tx?submitter=" + shopAccount, "401 UNAUTHORIZED"},
		"at a users' function":          {ann, "GET /api/v1/internal_transfer", "401 UNAUTHORIZED"},
		"nobody":                        {"", submitters, "401 UNAUTHORIZED"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		var body any
		if method == http.MethodPost {
			body = map[string]any{"full": false}
		}
		check.Equal(t, name, call(t, t.Context(), c.token, method, h.url+path, body).is("code"), c.want)
	}
	// The platform's header, and the proxy's own, prove nothing to admin.
	headers := http.Header{"X-Serverless-Authorization": {"Bearer " + ann}, "X-Goog-Iap-Jwt-Assertion": {ann}}
	check.Equal(t, "in other headers", call(t, context.WithValue(t.Context(), headerKey{}, headers), "", "GET", h.url+"/admin/v1/submitters", nil).is("code"), "401 UNAUTHORIZED")
	check.Equal(t, "at an internal function", fromTheCloud(t, ann, "POST", h.url+"/internal/sweep"), 401)
	h.url = h.serve(append(settings, "FENCEPOST_AUTH_OPERATORS=email:bob@fencepost.example")...)
	check.Equal(t, "an operator who was removed", call(t, t.Context(), ann, "GET", h.url+"/admin/v1/submitters", nil).is("code"), "403 FORBIDDEN")
}

// The console's account has no right at any operation of admin: not by the platform's header, and not as a caller. A
// submitter's caller has none either. A viewer's token beside that header reads each of them and changes nothing.
func TestTheConsolesAccountHasNoRights(t *testing.T) {
	t.Parallel()
	people := startIssuer(t)
	h := buildWithShop(t, consoleSettings(people.url)...)
	account := h.callerToken("console")
	platform := context.WithValue(t.Context(), headerKey{}, http.Header{"X-Serverless-Authorization": {"Bearer " + account}})
	viewer := people.token(t, "console", jwt.MapClaims{"sub": "5", "email": "eve@fencepost.example", "email_verified": true})
	own := h.createTx("own") // of the caller that asks
	reads, acts := 0, 0
	for _, operation := range apiOf(t).Operations() {
		method, path, _ := strings.Cut(operation, " ")
		if !strings.HasPrefix(path, "/admin/v1/") {
			continue
		}
		path = strings.NewReplacer("{submitter}", shopAccount, "{txId}", own).Replace(path)
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "1")
		var body any
		if method != http.MethodGet {
			body = map[string]any{}
		}
		check.Equal(t, operation+", by the account alone", call(t, platform, "", method, h.url+path, body).is("code"), "401 UNAUTHORIZED")
		check.Equal(t, operation+", by the account as a caller", call(t, platform, account, method, h.url+path, body).is("code"), "403 FORBIDDEN")
		check.Equal(t, operation+", by a caller", h.as("shop", method, path, body).is("code"), "403 FORBIDDEN")
		got := call(t, platform, viewer, method, h.url+path, body)
		switch {
		case method != http.MethodGet:
			acts++
			check.Equal(t, operation+", by a viewer", got.is("code"), "403 READ_ONLY")
		case got.status == 401 || got.status == 403:
			t.Errorf("%s, by a viewer: got %d %v, want it admitted", operation, got.status, got.body)
		default:
			reads++
		}
	}
	if reads < 25 || acts < len(actKinds()) {
		t.Errorf("got %d reads and %d acts, want all of them", reads, acts)
	}
}

// Admin accepts the token of a person who has signed in at the console's issuer. A subject of that issuer
// is no name in the settings, which have subjects of another.
func TestAdminAcceptsTheConsolesToken(t *testing.T) {
	t.Parallel()
	people := startIssuer(t)
	h := build(t, append(consoleSettings(people.url),
		"FENCEPOST_AUTH_OPERATORS=email:ann@fencepost.example,sub:77", "FENCEPOST_AUTH_DEPOSIT_SERVICE=email:bank@fencepost.example", "FENCEPOST_AUTH_VIEWERS=email:bank@fencepost.example")...)
	claims := func(email string, verified bool) jwt.MapClaims {
		return jwt.MapClaims{"sub": "77", "email": email + "@fencepost.example", "email_verified": verified}
	}
	ask := func(token, method, path string, body any) string {
		t.Helper()
		return call(t, t.Context(), token, method, h.url+path, body).is("code")
	}
	for name, c := range map[string]struct{ token, want string }{
		"an operator":           {people.token(t, "console", claims("ann", true)), "200 <nil>"},
		"an unverified address": {people.token(t, "console", claims("ann", false)), "403 FORBIDDEN"},
		"another issuer's sub":  {people.token(t, "console", jwt.MapClaims{"sub": "77"}), "403 FORBIDDEN"},
		"the same at our own":   {h.issuer.token(t, "public", jwt.MapClaims{"sub": "77"}), "200 <nil>"},
		"another client":        {people.token(t, "other", claims("ann", true)), "401 UNAUTHORIZED"},
		"our issuer":            {h.issuer.token(t, "console", claims("ann", true)), "401 UNAUTHORIZED"},
	} {
		check.Equal(t, name, ask(c.token, "GET", "/admin/v1/submitters", nil), c.want)
	}
	deposit := map[string]any{"id": "d", "amount": "1", "reason": "r"}
	path := fmt.Sprintf("/admin/v1/accounts/%d/USDT/deposits", alice)
	check.Equal(t, "the deposit service, by the console", ask(people.token(t, "console", claims("bank", true)), "POST", path, deposit), "403 READ_ONLY")
	check.Equal(t, "the deposit service, which the asset allows nothing", ask(h.callerToken("bank"), "POST", path, deposit), "429 SERVICE_LIMIT_EXCEEDED")
}

// A process that serves the console alone has no settings of a database, a chain or tasks, and starts.
func TestTheConsoleAloneOpensNoDatabase(t *testing.T) {
	t.Parallel()
	c := check.Value(config.Load(append(consoleSettings("https://people.example"), "FUNCTION_TARGET=console")))(t)
	app := check.Value(functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", functions.Extensions{}))(t)
	handlers := app.Handlers()
	if len(handlers) != 2 || handlers["console"] == nil {
		t.Errorf("functions: got %d, want the console, and all", len(handlers))
	}
	for path, want := range map[string]int{"/startupz": 200, "/readyz": 200, "/console/": 303, "/admin/v1/submitters": 404, "/api/v1/tx": 404} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "console.example"
		w := httptest.NewRecorder()
		handlers["console"].ServeHTTP(w, r)
		check.Equal(t, path, w.Code, want)
	}
	check.OK(t)(app.Close(t.Context()))
	for settings, want := range map[string]string{
		"FENCEPOST_CONSOLE_MODE=off":      "FENCEPOST_CONSOLE_MODE",
		"FENCEPOST_CONSOLE_SESSION_KEYS=": "FENCEPOST_CONSOLE_SESSION_KEYS is not set",
		"FENCEPOST_CONSOLE_ADMIN_URL=":    "FENCEPOST_CONSOLE_ADMIN_URL is not set",
		"FENCEPOST_CONSOLE_HOSTS=":        "FENCEPOST_CONSOLE_HOSTS is not set",
	} {
		c := check.Value(config.Load(append(consoleSettings("https://people.example"), "FUNCTION_TARGET=console", settings)))(t)
		if _, err := functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", functions.Extensions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %s", settings, err, want)
		}
	}
}

// On Cloud Run the console's calls of admin have two tokens: the platform's in its own header, and the person's
// untouched. The platform's is fetched once.
func TestTheConsolesAccountHasItsOwnHeader(t *testing.T) {
	var fetched atomic.Int32
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		w.Header().Set("Metadata-Flavor", "Google")
		_, _ = fmt.Fprint(w, "account for ", r.URL.Query().Get("audience"))
	}))
	t.Cleanup(metadata.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header.Get("Authorization"), ", ", r.Header.Get("X-Serverless-Authorization"))
	}))
	t.Cleanup(admin.Close)
	for service, want := range map[string]string{"": "Bearer ann, ", "fencepost-console": "Bearer ann, Bearer account for http://127.0.0.1:1"} {
		c := check.Value(config.Load(append(consoleSettings("https://people.example"), "FUNCTION_TARGET=console", "K_SERVICE="+service)))(t)
		app := check.Value(functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", functions.Extensions{}))(t)
		transport := app.AdminTransport()
		for range 2 {
			r := check.Value(http.NewRequestWithContext(t.Context(), "GET", admin.URL, nil))(t)
			r.Header.Set("Authorization", "Bearer ann")
			resp := check.Value(transport.RoundTrip(r))(t)
			text := check.Value(io.ReadAll(resp.Body))(t)
			check.OK(t)(resp.Body.Close())
			check.Equal(t, "service "+service, string(text), want)
		}
		check.OK(t)(app.Close(t.Context()))
	}
	check.Equal(t, "tokens fetched", fetched.Load(), 1)
}

// people is an OIDC issuer with the authorization code flow.
type people struct {
	issuer
	t *testing.T

	mu     sync.Mutex
	claims jwt.MapClaims // of the person who signs in, over the usual ones
	asked  url.Values    // of the last sign-in
}

// claimsOf are the claims of a person.
func claimsOf(account string, verified bool) jwt.MapClaims {
	return jwt.MapClaims{"sub": "1", "email": account + "@fencepost.example", "email_verified": verified}
}

// startPeople serves an issuer at one address with its keys and its discovery document. Ann signs in.
func startPeople(t *testing.T) *people {
	t.Helper()
	p := &people{issuer: startIssuer(t), t: t, claims: claimsOf("ann", true)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.serveKey)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.url, "jwks_uri": p.url, "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token"})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = r.URL.Query()
		http.Redirect(w, r, p.asked.Get("redirect_uri")+"?"+url.Values{"code": {"the code"}, "state": {p.asked.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", p.exchange)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *people) exchange(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	local := p.asked == nil // a code that was given to a person
	if r.PostFormValue("code") != "the code" || r.PostFormValue("client_id") != "console" ||
		!local && (base64.RawURLEncoding.EncodeToString(sum[:]) != p.asked.Get("code_challenge") || r.PostFormValue("redirect_uri") != p.asked.Get("redirect_uri")) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error": "invalid_grant"}`)
		return
	}
	claims := jwt.MapClaims{"nonce": p.asked.Get("nonce")}
	maps.Copy(claims, p.claims)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": p.token(p.t, "console", claims)})
}

// browser is a browser at a console whose one page shows who asks.
type browser struct {
	*http.Client
	t   *testing.T
	url string
}

// open returns the status and the text of the page, and the path at which it ends.
func (b browser) open(path string) string {
	b.t.Helper()
	return b.send("GET", path, "Accept", "text/html")
}

// send is [browser.open] by another method or with another header.
func (b browser) send(method, path, header, value string) string {
	b.t.Helper()
	request := check.Value(http.NewRequestWithContext(b.t.Context(), method, b.url+path, nil))(b.t)
	request.Header.Set(header, value)
	resp := check.Value(b.Do(request))(b.t)
	defer resp.Body.Close()
	text := check.Value(io.ReadAll(resp.Body))(b.t)
	return fmt.Sprint(resp.StatusCode, " ", resp.Request.URL.RequestURI(), " ", string(text))
}

// consoleOf serves a console by the way, and returns a browser without a session.
func consoleOf(t *testing.T, p *people, wayOf func(signin.Options) signin.Way) browser {
	t.Helper()
	v := check.Value(web.NewVerifier(web.VerifierOptions{Issuer: p.url, JWKSURL: p.url, Audience: "console"}))(t)
	sealer := check.Value(signin.NewSealer([]string{sessionKey}))(t)
	server := httptest.NewUnstartedServer(nil)
	o := signin.Options{Issuer: p.url, ClientID: "console", Verifier: v, Sealer: sealer, Page: plainPage, Log: slog.New(slog.DiscardHandler)}
	h, err := console.New(console.Options{
		Sections: []page.Section{{Routes: []page.Route{{Pattern: "GET /console/{$}", Handle: whoAsks}, {Pattern: "GET /console/deep", Handle: whoAsks}}}},
		Pages:    textPages{}, Way: wayOf(o), Sealer: sealer, Hosts: []string{server.Listener.Addr().String()}, AdminURL: "http://127.0.0.1:1", Operators: []string{"email:ann@fencepost.example"}, Log: o.Log,
	})
	check.OK(t)(err)
	server.Config.Handler = h
	server.Start()
	t.Cleanup(server.Close)
	jar := check.Value(cookiejar.New(nil))(t)
	return browser{&http.Client{Jar: jar}, t, server.URL}
}

func whoAsks(_ context.Context, c page.Call) (page.View, error) {
	return page.View{Title: c.Person}, nil
}

// textPages draws the title of a page alone.
type textPages struct{}

func (textPages) Render(w http.ResponseWriter, _ page.Call, v page.View) {
	_, _ = io.WriteString(w, v.Title)
}
func (textPages) RenderError(w http.ResponseWriter, _ page.Call, err error) {
	plainPage(w, 500, err.Error(), "")
}
func (textPages) RenderPlain(w http.ResponseWriter, status int, title, text string) {
	plainPage(w, status, title, text)
}

func plainPage(w http.ResponseWriter, status int, title, _ string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, title)
}

// A person signs in by the code flow, with state, nonce and PKCE, and comes to the page that was asked for.
func TestSignInByTheCodeFlow(t *testing.T) {
	t.Parallel()
	p := startPeople(t)
	b := consoleOf(t, p, signin.NewOIDC)
	check.Equal(t, "the page", b.open("/console/deep?x=1"), "200 /console/deep?x=1 ann@fencepost.example")
	check.Equal(t, "the next", b.open("/console/"), "200 /console/ ann@fencepost.example")
	if p.asked.Get("code_challenge_method") != "S256" || len(p.asked.Get("nonce")) < 20 || len(p.asked.Get("state")) < 20 || !strings.Contains(p.asked.Get("scope"), "openid") {
		t.Errorf("the issuer was asked %v, want a challenge by S256, a nonce, a state and the scope openid", p.asked)
	}
	check.Equal(t, "the code again", b.open("/console/callback?code=the+code&state=" + p.asked.Get("state"))[:4], "403 ")
	b.send("POST", "/console/sign-out", "Origin", b.url)
	p.claims["email"] = "bob@fencepost.example"
	check.Equal(t, "after the sign-out, as somebody else", b.open("/console/"), "403 /console/ No access")
}

// A sign-in that another browser has begun, whose token was made for another, or whose address is not
// verified, begins no session.
func TestSignInRefusesForeignAnswers(t *testing.T) {
	t.Parallel()
	p := startPeople(t)
	b := consoleOf(t, p, signin.NewOIDC)
	check.Equal(t, "without a sign-in", b.open("/console/callback?code=the+code&state=s"), "403 /console/callback?code=the+code&state=s Not signed in")
	set := func(claims jwt.MapClaims) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.claims = claims
	}
	for name, differs := range map[string]jwt.MapClaims{
		"another nonce": {"nonce": rand.Text()}, "another issuer": {"iss": "https://other.example"}, "another client": {"aud": "other"},
		"expired": {"exp": time.Now().Add(-time.Minute).Unix()},
	} {
		set(with(claimsOf("ann", true), differs))
		if got := b.open("/console/"); !strings.HasPrefix(got, "403 /console/callback?") {
			t.Errorf("%s: got %s, want it refused at the callback", name, got)
		}
	}
	set(claimsOf("ann", false))
	check.Equal(t, "an unverified address", b.open("/console/"), "403 /console/ No access")
}

// A one-time code of the local environment is exchanged for a session and leaves the browser's address. It is
// valid at this machine alone.
func TestSignInByAOneTimeCode(t *testing.T) {
	t.Parallel()
	p := startPeople(t)
	b := consoleOf(t, p, signin.NewLocal)
	check.Equal(t, "without a code", b.open("/console/"), "401 /console/sign-in?to=%2Fconsole%2F Not signed in")
	check.Equal(t, "a wrong code", b.open("/console/enter?code=x"), "403 /console/enter?code=x Not signed in")
	check.Equal(t, "from another machine", b.send("GET", "/console/enter?code=the+code", "X-Forwarded-For", "192.0.2.7")[:3], "403")
	check.Equal(t, "the code", b.open("/console/enter?code=the+code"), "200 /console/ ann@fencepost.example")
	check.Equal(t, "its session, at another machine", b.send("GET", "/console/", "X-Forwarded-For", "192.0.2.7")[:3], "401")
}
