package acceptance

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/stack"
)

// problem holds a refusal's members that are part of the contract.
type problem struct {
	Status      int
	Code, Field string
}

// send makes one request with exactly this body and token.
func (b bench) send(t *testing.T, method, url, token, body string) (int, http.Header, []byte) {
	t.Helper()
	req := must(http.NewRequestWithContext(b.ctx, method, url, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp := must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header, must(io.ReadAll(resp.Body))(t)
}

func (b bench) wantProblem(t *testing.T, status int, header http.Header, answer []byte, want problem) {
	t.Helper()
	var got problem
	if err := json.Unmarshal(answer, &got); err != nil || header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("answer: got %d %s %s, want a problem", status, header.Get("Content-Type"), answer)
	}
	if got != want || status != want.Status {
		t.Errorf("problem: got %+v, want %+v; the answer was %s", got, want, answer)
	}
}

// Bad input gets a stable code and the field's name, and stores nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	info := must(b.Info(b.ctx))(t)
	good := string(b.Submitters()[0])
	const to = `"to": "0x00000000000000000000000000000000000cafe0"`
	intent := func(payload string) string {
		return `{"submitter": "` + good + `", "requestId": "r", "payload": {` + payload + `}}`
	}
	twoTo256 := "115792089237316195423570985008687907853269984665640564039457584007913129639936"
	for name, c := range map[string]struct {
		body string
		want problem
	}{
		"malformed JSON":        {`{"submitter": `, problem{400, "INVALID_JSON", ""}},
		"no body":               {``, problem{400, "INVALID_JSON", ""}},
		"two values":            {intent(to) + `{}`, problem{400, "INVALID_JSON", ""}},
		"unknown field":         {`{"submitter": "` + good + `", "requestId": "r", "nonce": 7, "payload": {` + to + `}}`, problem{400, "UNSUPPORTED_FIELD", "nonce"}},
		"unknown payload":       {intent(to + `, "nonce": "7"`), problem{400, "UNSUPPORTED_FIELD", "payload.nonce"}},
		"wrong type":            {`{"submitter": 5, "requestId": "r", "payload": {` + to + `}}`, problem{400, "INVALID_FIELD", "submitter"}},
		"amount as number":      {intent(to + `, "value": 1`), problem{400, "INVALID_FIELD", "payload.value"}},
		"no address":            {intent(`"to": "0x12"`), problem{400, "INVALID_FIELD", "payload.to"}},
		"value over 2^256":      {intent(to + `, "value": "` + twoTo256 + `"`), problem{400, "INVALID_FIELD", "payload.value"}},
		"negative value":        {intent(to + `, "value": "-1"`), problem{400, "INVALID_FIELD", "payload.value"}},
		"argument of a type":    {intent(to + `, "function": "f(uint8)", "args": ["256"]`), problem{400, "INVALID_FIELD", "payload.args[0]"}},
		"no requestId":          {`{"submitter": "` + good + `", "payload": {` + to + `}}`, problem{400, "INVALID_FIELD", "requestId"}},
		"long requestId":        {`{"submitter": "` + good + `", "requestId": "` + strings.Repeat("r", 129) + `", "payload": {` + to + `}}`, problem{400, "INVALID_FIELD", "requestId"}},
		"no payload":            {`{"submitter": "` + good + `", "requestId": "r"}`, problem{400, "INVALID_FIELD", "payload"}},
		"no submitter's form":   {`{"submitter": "0x12", "requestId": "r", "payload": {` + to + `}}`, problem{400, "INVALID_FIELD", "submitter"}},
		"an unknown submitter":  {`{"submitter": "0x00000000000000000000000000000000deadbeef", "requestId": "r", "payload": {` + to + `}}`, problem{404, "UNKNOWN_SUBMITTER", ""}},
		"another chain":         {`{"submitter": "` + strings.Replace(good, ":1337:", ":1:", 1) + `", "requestId": "r", "payload": {` + to + `}}`, problem{404, "UNKNOWN_SUBMITTER", ""}},
		"a body over the limit": {`{"submitter": "` + strings.Repeat("x", 300<<10) + `"}`, problem{413, "BODY_TOO_LARGE", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, answer := b.send(t, http.MethodPost, info.API+"/api/v1/tx", info.Token, c.body)
			b.wantProblem(t, status, header, answer, c.want)
		})
	}
	t.Run("unsupported method", func(t *testing.T) {
		status, header, answer := b.send(t, http.MethodDelete, info.API+"/api/v1/tx", info.Token, "")
		b.wantProblem(t, status, header, answer, problem{405, "METHOD_NOT_ALLOWED", ""})
	})
	t.Run("a changed payload under a known requestId", func(t *testing.T) {
		b.wantPost(t, "post", transfer(b.Submitters()[1], "mine"), http.StatusAccepted)
		changed := transfer(b.Submitters()[1], "mine")
		changed["payload"].(map[string]any)["value"] = "2"
		b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", changed).want("another payload", http.StatusConflict, `"REQUEST_ID_CONFLICT"`)
	})
	b.wantCount(t, "rows stored by refused requests", 0, `select count(*) from managed_tx where submitter = $1`, good)
}

// Every call needs the right token, and a caller never sees another caller's transactions.
func TestIdentity(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	info := must(b.Info(b.ctx))(t)
	_, id := b.post(t, transfer(b.Submitters()[0], "mine"))
	const stranger = "stranger@fencepost.example"
	b.Issuer.AddAccount(stranger)
	if status, _ := b.ask(t, stranger, id); status != http.StatusNotFound {
		t.Errorf("another caller's transaction: got %d, want 404", status)
	}
	b.call(t, stranger, http.MethodPost, "/api/v1/tx", transfer(b.Submitters()[0], "theirs")).want("a submitter that is not the caller's", http.StatusNotFound, `"UNKNOWN_SUBMITTER"`)
	sends := func(what, method, url, token, body string, want int) {
		t.Helper()
		status, _, _ := b.send(t, method, url, token, body)
		equal(t, what, status, want)
	}
	sends("admin by a caller", http.MethodGet, info.API+"/admin/v1/submitters", info.Token, "", http.StatusForbidden)
	sends("no token", http.MethodGet, info.API+"/api/v1/tx/"+id, "", "", http.StatusUnauthorized)
	sends("an internal path on the public port", http.MethodPost, info.API+"/internal/advance", info.Operator, "{}", http.StatusNotFound)
	for name, flaw := range map[string]issuer.Flaw{"expired": issuer.Expired, "forged": issuer.OtherKey, "unsigned": issuer.Unsigned, "another issuer": issuer.WrongIssuer} {
		token := must(b.Issuer.FlawedToken(stack.CallerAccount, stack.PublicAudience, flaw))(t)
		sends("token "+name, http.MethodGet, info.API+"/api/v1/tx/"+id, token, "", http.StatusUnauthorized)
	}
	body := `{"submitter": "` + string(b.Submitters()[0]) + `"}`
	for name, c := range map[string]struct {
		account, audience string
		want              int
	}{
		"the public audience": {stack.CallerAccount, stack.PublicAudience, http.StatusUnauthorized},
		"another account":     {stack.CallerAccount, stack.InternalAudience, http.StatusForbidden},
		"the tasks' account":  {stack.TasksAccount, stack.InternalAudience, http.StatusNoContent},
	} {
		token := must(b.Issuer.Token(b.ctx, c.account, c.audience))(t)
		sends("advance with "+name, http.MethodPost, b.URLMap.InternalURL()+"/internal/advance", token, body, c.want)
	}
}
