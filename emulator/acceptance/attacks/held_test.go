package attacks

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// said is what a request was answered, and how long that took.
type said struct {
	status int
	text   string
	took   time.Duration
}

// code is the status, and the code of a problem.
func (s said) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(s.text), &problem)
	return strings.TrimSpace(fmt.Sprint(s.status, " ", problem.Code))
}

// same is all that the answer tells, without the request's own number.
func (s said) same() string {
	var body map[string]any
	if json.Unmarshal([]byte(s.text), &body) != nil {
		return fmt.Sprint(s.status, " ", s.text)
	}
	delete(body, "instance")
	return fmt.Sprint(s.status, " ", body)
}

// send makes one request with exactly this text and these headers.
func (h deployment) send(t *testing.T, method, target, text string, header map[string]string) (s said) {
	t.Helper()
	req := must(http.NewRequestWithContext(h.ctx, method, target, strings.NewReader(text)))(t)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	began := time.Now()
	resp := must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))(t)
	return said{resp.StatusCode, string(body), time.Since(began)}
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// flaws are tokens of which each has one thing wrong.
var flaws = map[string]issuer.Flaw{
	"expired": issuer.Expired, "made in the future": issuer.FromTheFuture, "valid later": issuer.NotBeforeLater,
	"of another issuer": issuer.WrongIssuer, "without an audience": issuer.NoAudience, "without an end": issuer.NoExpiry,
	"without its time": issuer.NoIssuedAt, "without a subject": issuer.NoSubject, "by another key": issuer.OtherKey,
	"by an unknown key": issuer.UnknownKey, "not signed": issuer.Unsigned, "by HMAC with the public key": issuer.HMACWithPublicKey,
	"changed afterwards": issuer.Tampered,
}

// Wrong tokens, internal paths from outside, another caller's transactions and hostile
// bodies: each is refused, and at the end neither a log line nor an answer has a secret.
func TestWhatTheAuditSawRefusedIsRefused(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 1, Settings: map[string]string{
		"FENCEPOST_HANDLERS_URLS":    "shop=https://127.0.0.1:1/orders/path-that-is-a-secret",
		"FENCEPOST_HANDLERS_SECRETS": "shop=" + handlerSecret('h'),
	}})
	api, s := h.URLMap.PublicURL(), h.Submitters()[0]
	first := h.posted(t, h.token(t, stack.CallerAccount), s, "first")
	h.await(t, first, "CONFIRMED")
	t.Run("wrong tokens", func(t *testing.T) { h.wrongTokens(t, api, s) })
	t.Run("internal paths", h.internalPaths)
	t.Run("another caller's transactions", func(t *testing.T) { h.ofAnotherCaller(t, api, s, first) })
	t.Run("hostile bodies", func(t *testing.T) { h.hostileBodies(t, api, s) })
	t.Run("two requests in one", func(t *testing.T) { h.smuggled(t, s) })
	t.Run("an account in PROTECT", func(t *testing.T) { h.inTrouble(t, api) })
	t.Run("secrets", func(t *testing.T) { h.showsNoSecret(t, s) })
	h.wantCount(t, "intents of others", 0, `select count(*) from managed_tx where caller <> $1`, "email:"+stack.CallerAccount)
}

func (h deployment) wrongTokens(t *testing.T, api string, s txmanager.Submitter) {
	text := intentText(s, "by a wrong token")
	registration := `{"submitter": "` + string(unregistered) + `", "callers": ["email:` + stack.CallerAccount + `"], "policy": "unlimited"}`
	ask := func(what, token, create, admin string) {
		header := map[string]string{}
		if token != "" {
			header = bearer(token)
		}
		for path, want := range map[string]string{"POST /api/v1/tx": create, "POST /admin/v1/submitters": admin, "GET /admin/v1/submitters": admin} {
			method, path, _ := strings.Cut(path, " ")
			body := map[string]string{"/api/v1/tx": text, "/admin/v1/submitters": registration}[path]
			equal(t, fmt.Sprintf("a token %s, %s %s", what, method, path), h.send(t, method, api+path, body, header).code(), want)
		}
	}
	const refused, stranger, forbidden = "401 UNAUTHORIZED", "404 UNKNOWN_SUBMITTER", "403 FORBIDDEN"
	ask("that is none", "", refused, refused)
	ask("that is garbage", "garbage", refused, refused)
	for what, flaw := range flaws {
		for _, account := range []string{stack.CallerAccount, stack.OperatorAccount} {
			token := must(h.Issuer.FlawedToken(account, stack.PublicAudience, flaw))(t)
			ask(what+" of "+account, token, refused, refused)
		}
	}
	for _, account := range []string{stack.CallerAccount, stack.OperatorAccount, stack.TasksAccount} {
		token := must(h.Issuer.Token(h.ctx, account, stack.InternalAudience))(t)
		ask("for internal functions of "+account, token, refused, refused)
	}
	for what, claims := range map[string]map[string]any{
		"whose e-mail is not verified":                {"sub": "1", "email_verified": false},
		"that says nothing of verification":           {"sub": "1"},
		"whose e-mail is in another case":             {"sub": "1", "email_verified": true, "email": "Shop@Fencepost.example"},
		"whose e-mail has a space behind it":          {"sub": "1", "email_verified": true, "email": stack.CallerAccount + " "},
		"whose subject is the coordinator's name":     {"sub": "transfer"},
		"whose subject is a handler's name":           {"sub": "handler:shop"},
		"whose subject is everybody":                  {"sub": "*"},
		"whose e-mail is written like another's kind": {"sub": "1", "email_verified": true, "email": "sub:1"},
	} {
		callers, operators := maps.Clone(claims), maps.Clone(claims)
		if _, has := claims["email"]; !has && claims["sub"] == "1" {
			callers["email"], operators["email"] = stack.CallerAccount, stack.OperatorAccount
		}
		ask(what, h.mint(t, callers), stranger, forbidden)
		ask(what+", the operator's", h.mint(t, operators), stranger, forbidden)
	}
	for what, claims := range map[string]map[string]any{
		"that says it is verified in a text":      {"sub": "1", "email_verified": "true", "email": stack.OperatorAccount},
		"whose audience is one of several texts":  {"sub": "1", "aud": []string{"x" + stack.PublicAudience, stack.PublicAudience + "x"}},
		"whose audience is the beginning of ours": {"sub": "1", "aud": stack.PublicAudience[:len(stack.PublicAudience)-1]},
	} {
		got := h.send(t, http.MethodGet, api+"/admin/v1/submitters", "", bearer(h.mint(t, claims))).code()
		if got != refused && got != forbidden {
			t.Errorf("a token %s: got %s, want 401 or 403", what, got)
		}
	}
}

// internalPaths tries, from outside and inside, what only tasks and the scheduler may.
func (h deployment) internalPaths(t *testing.T) {
	account := func(name, audience string) string {
		return must(h.Issuer.Token(h.ctx, name, audience))(t)
	}
	forged := map[string]string{
		"X-CloudTasks-QueueName": "advance", "X-CloudTasks-TaskName": "t", "X-CloudTasks-TaskRetryCount": "0", "X-CloudTasks-TaskExecutionCount": "0",
		"X-CloudScheduler": "true", "X-CloudScheduler-JobName": "sweep", "User-Agent": "Google-Cloud-Tasks", "X-Goog-Authenticated-User-Email": "accounts.google.com:" + stack.TasksAccount,
		"X-Serverless-Authorization": "Bearer x", "X-Forwarded-For": "127.0.0.1",
	}
	text := `{"submitter": "` + string(h.Submitters()[0]) + `"}`
	direct := h.URLMap.InternalURL()
	for _, function := range []string{"advance", "receipt", "confirm", "resubmit", "sweep", "publish"} {
		path := "/internal/" + function
		withForged := func(token string) map[string]string {
			if token == "" {
				return forged
			}
			return withToken(forged, token)
		}
		for what, c := range map[string]struct{ token, want string }{
			"without a token":              {"", "401 UNAUTHORIZED"},
			"the caller's token":           {account(stack.CallerAccount, stack.PublicAudience), "401 UNAUTHORIZED"},
			"the operator's token":         {account(stack.OperatorAccount, stack.PublicAudience), "401 UNAUTHORIZED"},
			"the tasks' public token":      {account(stack.TasksAccount, stack.PublicAudience), "401 UNAUTHORIZED"},
			"the caller's internal token":  {account(stack.CallerAccount, stack.InternalAudience), "403 FORBIDDEN"},
			"an operator's internal token": {account(stack.OperatorAccount, stack.InternalAudience), "403 FORBIDDEN"},
		} {
			equal(t, fmt.Sprintf("%s with %s and forged headers", path, what), h.send(t, http.MethodPost, direct+path, text, withForged(c.token)).code(), c.want)
		}
		for _, outside := range []string{path, "/api/v1/tx/.." + path, "/api/v1/tx/%2e%2e" + path, "//" + path, "/admin/v1/../.." + path, path + "/", strings.ToUpper(path)} {
			got := h.send(t, http.MethodPost, h.URLMap.PublicURL()+outside, text, withForged(account(stack.TasksAccount, stack.InternalAudience)))
			if got.status < 300 || got.status >= 500 {
				t.Errorf("%s at the load balancer: got %s, want it refused", outside, got.code())
			}
		}
	}
	for _, flaw := range flaws {
		token := must(h.Issuer.FlawedToken(stack.TasksAccount, stack.InternalAudience, flaw))(t)
		got := h.send(t, http.MethodPost, direct+"/internal/advance", text, withToken(forged, token))
		equal(t, fmt.Sprint("the tasks' token, flaw ", flaw), got.code(), "401 UNAUTHORIZED")
	}
}

func withToken(header map[string]string, token string) map[string]string {
	header = maps.Clone(header)
	header["Authorization"] = "Bearer " + token
	return header
}

// ofAnotherCaller compares the answers to an unauthorised caller about the account and the
// transaction of another with those about an account that is not registered.
func (h deployment) ofAnotherCaller(t *testing.T, api string, s txmanager.Submitter, txID string) {
	token := h.mint(t, map[string]any{"sub": "4711"})
	const nobodys = "01a1fda0-b1f9-7b07-a2c1-57c667e395bc"
	anonymous := func(text string) string {
		return strings.NewReplacer(string(s), "S", string(unregistered), "S").Replace(text)
	}
	query := func(of txmanager.Submitter) string {
		return url.Values{"submitter": {string(of)}, "requestId": {"first"}}.Encode()
	}
	for what, pair := range map[string][2]said{
		"get":        {h.send(t, "GET", api+"/api/v1/tx/"+txID, "", bearer(token)), h.send(t, "GET", api+"/api/v1/tx/"+nobodys, "", bearer(token))},
		"cancel":     {h.send(t, "POST", api+"/api/v1/tx/"+txID+"/cancel", "", bearer(token)), h.send(t, "POST", api+"/api/v1/tx/"+nobodys+"/cancel", "", bearer(token))},
		"by-request": {h.send(t, "GET", api+"/api/v1/tx/by-request?"+query(s), "", bearer(token)), h.send(t, "GET", api+"/api/v1/tx/by-request?"+query(unregistered), "", bearer(token))},
		"list": {h.send(t, "GET", api+"/api/v1/tx?submitter="+url.QueryEscape(string(s)), "", bearer(token)),
			h.send(t, "GET", api+"/api/v1/tx?submitter="+url.QueryEscape(string(unregistered)), "", bearer(token))},
		"create": {h.send(t, "POST", api+"/api/v1/tx", intentText(s, "first"), bearer(token)), h.send(t, "POST", api+"/api/v1/tx", intentText(unregistered, "first"), bearer(token))},
		"batch": {h.send(t, "POST", api+"/api/v1/tx:batch", `{"intents":[`+intentText(s, "first")+`]}`, bearer(token)),
			h.send(t, "POST", api+"/api/v1/tx:batch", `{"intents":[`+intentText(unregistered, "first")+`]}`, bearer(token))},
	} {
		theirs, none := anonymous(pair[0].same()), anonymous(pair[1].same())
		equal(t, what+": what it hears of another's, as of none", theirs, none)
		if strings.Contains(theirs, txID) || pair[0].status < 400 && what != "list" && what != "batch" {
			t.Errorf("%s: got %s, want it refused", what, theirs)
		}
	}
}

// intentText is the text of an intent.
func intentText(s txmanager.Submitter, requestID string) string {
	text, err := json.Marshal(intent(s, requestID))
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (h deployment) hostileBodies(t *testing.T, api string, s txmanager.Submitter) {
	const to = `"to": "0x00000000000000000000000000000000000cafe0"`
	in := func(requestID, payload string) string {
		return `{"submitter": "` + string(s) + `", "requestId": "` + requestID + `", "payload": {` + payload + `}}`
	}
	call := func(function, args string) string { return in("r", to+`, "function": "`+function+`", "args": `+args) }
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	zeros := list(`"0"`, 1024)
	before := h.count(t, `select count(*) from managed_tx`)
	for what, text := range map[string]string{
		"a name twice":                    `{"submitter": "` + string(s) + `", "submitter": "` + string(s) + `", "requestId": "r", "payload": {` + to + `, "value": "1"}}`,
		"a payload's name twice":          in("r", to+`, "value": "1", "value": "2"`),
		"a name in another case":          in("r", to+`, "Value": "1"`),
		"NUL":                             in(`r\u0000`, to+`, "value": "1"`),
		"NUL in a payload":                in("r", to+`, "value": "1\u0000"`),
		"half a pair of surrogates":       in(`r\ud800`, to+`, "value": "1"`),
		"no UTF-8":                        in("r\xff", to+`, "value": "1"`),
		"64 lists in each other":          in("r", to+`, "value": `+strings.Repeat("[", 64)+strings.Repeat("]", 64)),
		"100,000 lists in each other":     strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"a number of 5,000 digits":        in("r", to+`, "value": `+strings.Repeat("9", 5_000)),
		"an amount of 5,000 digits":       in("r", to+`, "value": "`+strings.Repeat("9", 5_000)+`"`),
		"a list longer than memory":       call("f(uint256[999999999999])", `[[]]`),
		"70 arrays of 1,024":              call("f("+strings.TrimSuffix(strings.Repeat("uint256[1024],", 70), ",")+")", list(zeros, 3)),
		"a signature of 60 × 900 lists":   call("f("+strings.TrimSuffix(strings.Repeat("uint8"+strings.Repeat("[]", 900)+",", 60), ",")+")", list("[]", 60)),
		"brackets without end":            call("f("+strings.Repeat("(", 5_000)+"uint8"+strings.Repeat(")", 5_000)+")", `[]`),
		"SQL as the submitter":            `{"submitter": "'; drop table managed_tx; --", "requestId": "r", "payload": {` + to + `}}`,
		"a wrong checksum of the address": in("r", `"to": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD1", "value": "1"`),
		"two values":                      in("r", to+`, "value": "1"`) + `{}`,
		"a nonce of its own":              in("r", to+`, "value": "1", "nonce": 7`),
		"an access list":                  in("r", to+`, "value": "1", "accessList": []`),
		"blobs":                           in("r", to+`, "value": "1", "type": "0x3"`),
		"an empty handler":                `{"submitter": "` + string(s) + `", "requestId": "r", "handler": "", "payload": {` + to + `, "value": "1"}}`,
		"a request that writes backwards": in(`r\u202e`, to+`, "value": "1"`),
		"a request that breaks the line":  in(`r\u2028x`, to+`, "value": "1"`),
		"a request with a C1 control":     in(`r\u009b`, to+`, "value": "1"`),
	} {
		if got := h.send(t, http.MethodPost, api+"/api/v1/tx", text, bearer(h.token(t, stack.CallerAccount))); got.status != http.StatusBadRequest || got.took > 5*time.Second {
			t.Errorf("%s: got %s in %s, want 400 within 5 s", what, got.same(), got.took)
		}
	}
	for what, path := range map[string]string{
		"an empty page size": "/api/v1/tx?submitter=" + url.QueryEscape(string(s)) + "&pageSize=",
		"an empty page":      "/api/v1/tx?submitter=" + url.QueryEscape(string(s)) + "&pageToken=",
		"an empty state":     "/api/v1/tx?submitter=" + url.QueryEscape(string(s)) + "&state=",
		"an id in braces":    "/api/v1/tx/%7B01a1fda0-b1f9-7b07-a2c1-57c667e395bc%7D",
		"an id as a URN":     "/api/v1/tx/urn:uuid:01a1fda0-b1f9-7b07-a2c1-57c667e395bc",
		"an id in one piece": "/api/v1/tx/01a1fda0b1f97b07a2c157c667e395bc",
	} {
		if got := h.send(t, http.MethodGet, api+path, "", bearer(h.token(t, stack.CallerAccount))); got.code() != "400 INVALID_FIELD" {
			t.Errorf("%s: got %s, want 400 INVALID_FIELD", what, got.same())
		}
	}
	tooLong := "POST /api/v1/tx HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + h.token(t, stack.CallerAccount) + "\r\nContent-Length: 307200\r\n\r\n{"
	if got := answersOf(t, h.Processes()[0].Addr(), tooLong); !slices.Equal(got, []int{http.StatusRequestEntityTooLarge}) { // not read, so not sent whole
		t.Errorf("300 kB: got %v, want 413", got)
	}
	h.wantCount(t, "stored of what was refused", before, `select count(*) from managed_tx`)
	const sql = `'); drop table managed_tx; --`
	quoted := h.post(t, h.token(t, stack.CallerAccount), s, sql)
	if n := h.count(t, `select count(*) from managed_tx where request_id = $1`, sql); quoted.status != http.StatusAccepted || n != 1 {
		t.Errorf("SQL as a requestId: got %v and %d rows, want it stored as the text that it is", quoted, n)
	}
}

// smuggled sends texts that a proxy and a function might take for different requests. Each
// gets one answer at most, a refusal, and nothing behind it is read as a further request.
func (h deployment) smuggled(t *testing.T, s txmanager.Submitter) {
	body := intentText(s, "smuggled")
	inner := fmt.Sprintf("POST /api/v1/tx HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", h.token(t, stack.CallerAccount), len(body), body)
	public := must(url.Parse(h.URLMap.PublicURL()))(t)
	for where, addr := range map[string]string{"a function": h.Processes()[0].Addr(), "the load balancer": public.Host} {
		for what, head := range map[string]string{
			"two lengths":                "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
			"a length that is none":      "Content-Length: 0x10\r\n\r\n",
			"a negative length":          "Content-Length: -1\r\n\r\n",
			"a length with a sign":       "Content-Length: +0\r\n\r\n",
			"an unknown encoding":        "Transfer-Encoding: cow\r\n\r\n",
			"an encoding with a control": "Transfer-Encoding: \x0bchunked\r\n\r\n",
			"two encodings":              "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
			"a chunk that is none":       "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
			"a space in a name":          "Content-Length : 0\r\n\r\n",
		} {
			if answers := answersOf(t, addr, "POST /api/v1/tx HTTP/1.1\r\nHost: x\r\n"+head+inner); len(answers) > 1 || slices.ContainsFunc(answers, func(status int) bool { return status < 400 }) {
				t.Errorf("%s with %s: got answers %v, want one refusal at most", where, what, answers)
			}
		}
	}
	h.wantCount(t, "smuggled intents", 0, `select count(*) from managed_tx where request_id = 'smuggled'`)
}

// answersOf sends the text and returns the status of each answer.
func answersOf(t *testing.T, addr, text string) (statuses []int) {
	t.Helper()
	conn := must(net.Dial("tcp", addr))(t)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(500*time.Millisecond)))
	if _, err := io.WriteString(conn, text); err != nil {
		return nil
	}
	from := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			return statuses
		}
		statuses = append(statuses, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return statuses
		}
	}
}

// inTrouble has an account in PROTECT: its caller hears so. An unauthorised caller gets the
// answer that an account which is not registered gives.
func (h deployment) inTrouble(t *testing.T, api string) {
	s := h.Submitters()[1]
	must(h.DB.Exec(h.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, s))(t)
	of := func(s txmanager.Submitter) string {
		return api + "/api/v1/tx/by-request?" + url.Values{"submitter": {string(s)}, "requestId": {"nothing"}}.Encode()
	}
	equal(t, "its caller", h.send(t, "GET", of(s), "", bearer(h.token(t, stack.CallerAccount))).status, http.StatusServiceUnavailable)
	stranger := bearer(h.mint(t, map[string]any{"sub": "4711"}))
	if got, none := h.send(t, "GET", of(s), "", stranger).same(), h.send(t, "GET", of(unregistered), "", stranger).same(); got != none || !strings.HasPrefix(got, "404") {
		t.Errorf("a stranger: got %s, and %s of an account that nobody registered; want 404 of both", got, none)
	}
}

// showsNoSecret looks for each secret of the deployment in the log and in the answers.
func (h deployment) showsNoSecret(t *testing.T, s txmanager.Submitter) {
	must(h.operator(t).SetCallers(h.ctx, string(s), []string{"email:" + stack.CallerAccount, "handler:shop"}, nil, "a test"))(t)
	in := intent(s, "asks a handler")
	in["handler"], in["payload"] = "shop", map[string]any{"how": "anyhow"}
	h.call(t, h.token(t, stack.CallerAccount), http.MethodPost, "/api/v1/tx", in).wantStatus(t, "an intent with a handler", http.StatusAccepted)
	h.until(t, "the handler was never asked", func() bool {
		return h.count(t, `select count(*) from managed_tx where request_id = 'asks a handler' and last_error is not null`) == 1
	})
	info := must(h.Info(h.ctx))(t)
	secrets := map[string]string{
		"the key of MACs": h.Setting("FENCEPOST_INTENTS_MAC_KEYS"), "the handler's secret": handlerSecret('h'), "the handler's URL": "path-that-is-a-secret",
		"the caller's token": info.Token, "its signature": info.Token[strings.LastIndexByte(info.Token, '.'):], "the operator's token": info.Operator,
	}
	secrets["the database's password"], _ = must(url.Parse(h.Setting("FENCEPOST_DATABASE_URL")))(t).User.Password()
	for i, a := range info.Submitters {
		secrets[fmt.Sprint("the key of account ", i)] = strings.TrimPrefix(a.PrivateKey, "0x")
	}
	for what, secret := range secrets {
		if len(secret) < 8 {
			t.Errorf("%s: %d bytes: this test sees nothing", what, len(secret))
			continue
		}
		if inLog, inAnswer := h.Log.Has(secret), h.answers.Has(secret); inLog || inAnswer {
			t.Errorf("%s: got it in the log %t, in an answer %t", what, inLog, inAnswer)
		}
	}
	if !h.Log.Has("requestUid") || !h.answers.Has("UNAUTHORIZED") {
		t.Error("the log or the answers were not kept: this test sees nothing")
	}
}

// handlerSecret is a secret of a handler, made of one byte.
func handlerSecret(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32)))
}
