package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/check"
)

// secret is the token of every test. No output may have it.
const secret = "a-token.that-is.secret"

// output is what a program has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// deployment answers each path with a script of answers, one after the other, and the last again. It keeps the requests.
type deployment struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // method, target and body
	heard []string // the headers Authorization
}

// answer is a status and a body; a body that begins with a code is a problem.
type answer struct {
	status int
	body   string
}

func problem(status int, code, field string) answer {
	return answer{status, fmt.Sprintf(`{"type":"/errors/%[2]s","title":"t","status":%[1]d,"code":%[2]q,"field":%[3]q,"detail":"of this request"}`, status, code, field)}
}

func serve(t *testing.T, scripts map[string][]answer) *deployment {
	t.Helper()
	d := new(deployment)
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked = append(d.asked, strings.TrimSpace(q.Method+" "+q.URL.RequestURI()+" "+string(body)))
		d.heard = append(d.heard, q.Header.Get("Authorization"))
		script := scripts[q.Method+" "+q.URL.Path]
		if len(script) == 0 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		if len(script) > 1 {
			scripts[q.Method+" "+q.URL.Path] = script[1:]
		}
		write(w, script[0])
	}))
	t.Cleanup(d.Close)
	return d
}

func write(w http.ResponseWriter, a answer) {
	media := "application/json"
	switch {
	case a.status >= 300:
		media = "application/problem+json"
	case strings.HasPrefix(a.body, `{"proposalId"`):
		w.Header().Set("Location", "/admin/v1/proposals/p-1")
	case !strings.HasPrefix(a.body, "{"):
		media = "text/plain"
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// calls are the requests so far.
func (d *deployment) calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// fencepost runs a command line against the deployment. Words with spaces are separated by "|".
func (d *deployment) fencepost(t *testing.T, line string, more ...string) (code int, out, problems string) {
	t.Helper()
	return fencepost(t, append([]string{"FENCEPOST_API=" + d.URL, "FENCEPOST_TOKEN=" + secret}, more...), line, "")
}

func fencepost(t *testing.T, environ []string, line, stdin string) (code int, out, problems string) {
	t.Helper()
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	args := strings.Fields(line)
	if strings.Contains(line, "|") {
		args = strings.Split(line, "|")
	}
	var got, wrong output
	code = run(t.Context(), args, func(name string) string { return env[name] }, streams{strings.NewReader(stdin), &got, &wrong})
	if both := got.String() + wrong.String(); strings.Contains(both, secret) {
		t.Errorf("%s: printed the token:\n%s", line, both)
	}
	return code, got.String(), wrong.String()
}

const (
	confirmed = `{"txId":"tx-1","submitter":"s","requestId":"r-1","state":"CONFIRMED","subState":null,"txHash":"0xab","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","receipt":null,"confirmations":[]}`
	failed    = `{"txId":"tx-1","submitter":"s","requestId":"r-1","state":"FAILED","subState":"EXPIRED","lastError":"too late","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","receipt":null,"confirmations":[]}`
	queued    = `{"txId":"tx-1","submitter":"s","requestId":"r-1","state":"QUEUED","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","receipt":null,"confirmations":[],"waiting":{"cause":"NONCE","since":"2026-01-02T03:04:05Z","position":3}}`
)

// The exit code tells a refusal from a failure, both from a wrong command line, and all from an outcome that is not known. An
// error has the code, the field and what to do.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	const get, cancel, post = "GET /api/v1/tx/tx-1", "POST /api/v1/tx/tx-1/cancel", "POST /api/v1/tx"
	const writeOff = "POST /admin/v1/submitters/s/foreign/write-off"
	const move = "transfer create --from FUNDING --to SPOT --asset USDT --amount 1"
	for _, c := range []struct {
		name, line string
		scripts    map[string][]answer
		code       int
		out        string // a part of stdout
		problems   string // a part of stderr
	}{
		{"sent", "tx send --submitter s --to 0xa --value 1", map[string][]answer{post: {{202, `{"txId":"tx-1"}`}}}, exitOK, "tx-1", "--request-id "},
		{"refused", "tx send --submitter s --request-id r", map[string][]answer{post: {problem(409, "REQUEST_ID_CONFLICT", "requestId")},
			"GET /errors/REQUEST_ID_CONFLICT": {{200, "REQUEST_ID_CONFLICT\n\nWhat to do: Use another.\nMay the same request be sent again? No.\n"}}}, exitRefused, "",
			"refused: REQUEST_ID_CONFLICT (409), field requestId: of this request\n  What to do: Use another. Send the same again? No."},
		{"refused, without a page", "tx get tx-1", map[string][]answer{get: {problem(404, "NOT_FOUND", "")}}, exitRefused, "", "What to do: see docs/errors.md"},
		{"the chain has it already", "tx send --submitter s --request-id r", map[string][]answer{post: {problem(409, "REQUEST_RECORDED", "")}}, exitUnknown, "", "unknown: REQUEST_RECORDED (409): of this request"},
		{"a failed transfer", move, map[string][]answer{"POST /api/v1/internal_transfer": {{422, `{"status":422,"code":"INSUFFICIENT_FUNDS","req_id":"q-1","state":"FAILED"}`}}}, exitFailed, "", "failed: INSUFFICIENT_FUNDS (422)"},
		{"a timeout of 0", "tx send --submitter s --request-id r --wait --timeout 0", nil, exitUsage, "", "--timeout 0s: want"},
		{"a transfer with a timeout of 0", move + " --wait --timeout 0", nil, exitUsage, "", "--timeout 0s: want"},
		{"a payout with a timeout of 0", "transfer payout --asset ETH --amount 1 --address 0xa --wait --timeout 0s", nil, exitUsage, "", "--timeout 0s: want"},
		{"no token", "tx send --submitter s --request-id r --token-file /nowhere", nil, exitUsage, "", "no such file"},
		{"no definite answer", "tx send --submitter s --request-id r --within 50ms", map[string][]answer{post: {{502, "sorry"}}}, exitUnknown, "", "fencepost: unknown: "},
		{"no answer, then refused", "tx send --submitter s --request-id r --within 3s", map[string][]answer{post: {{502, "sorry"}, problem(409, "SUBMITTER_PROTECTED", "")}}, exitUnknown, "", "never with another"},
		{"cancelled", "tx cancel tx-1", map[string][]answer{cancel: {{200, `{"outcome":"CANCELLED"}`}}}, exitOK, "CANCELLED", ""},
		{"too late to cancel", "tx cancel tx-1", map[string][]answer{cancel: {{200, `{"outcome":"EXECUTED"}`}}}, exitFailed, "EXECUTED", "was carried out before"},
		{"not decided", "tx cancel tx-1", map[string][]answer{cancel: {{202, `{"outcome":"PENDING"}`}}}, exitUnknown, "PENDING", "run the same command again"},
		{"waited", "tx wait tx-1", map[string][]answer{get: {{200, queued}, {200, confirmed}}}, exitOK, "CONFIRMED", "QUEUED, position 3"},
		{"waited for a failure", "tx wait tx-1", map[string][]answer{get: {{200, failed}}}, exitFailed, "EXPIRED", "tx-1 is FAILED EXPIRED: too late"},
		{"waited too long", "tx wait tx-1 --timeout 300ms", map[string][]answer{get: {{200, queued}}}, exitUnknown, "", "tx-1: the wait ended: after 0s its state is QUEUED, position 3; wait again by fencepost tx wait tx-1"},
		{"sent, and the token expired", "tx send --submitter s --wait", map[string][]answer{post: {{202, `{"txId":"tx-1"}`}}, get: {{200, queued}, problem(401, "UNAUTHORIZED", "")}}, exitUnknown, "", "txId tx-1\n"},
		{"the token expired", "tx wait tx-1", map[string][]answer{get: {problem(401, "UNAUTHORIZED", "")}}, exitUnknown, "", "tx-1: the wait ended: GET /api/v1/tx/tx-1: 401 UNAUTHORIZED of this request; wait again by fencepost tx wait tx-1"},
		{"sent, and not found", "tx send --submitter s --wait", map[string][]answer{post: {{202, `{"txId":"tx-1"}`}}, get: {problem(404, "NOT_FOUND", "")}}, exitUnknown, "", "tx-1: the wait ended: "},
		{"nothing to wait for", "transfer wait q-1", map[string][]answer{"GET /api/v1/internal_transfer/q-1": {problem(404, "NOT_FOUND", "")}}, exitRefused, "", "NOT_FOUND (404)"},
		{"moved, and the token expired", move + " --wait", map[string][]answer{"POST /api/v1/internal_transfer": {{200, `{"req_id":"q-1","state":"INIT"}`}}, "GET /api/v1/internal_transfer/q-1": {problem(401, "UNAUTHORIZED", "")}},
			exitUnknown, "", "q-1: the wait ended: "},
		{"an act without an answer", "submitter suspend s --reason stolen --within 50ms", map[string][]answer{"POST /admin/v1/submitters/s/suspend": {{502, "sorry"}}}, exitUnknown, "", "read the state before you repeat"},
		{"a read without an answer", "tx get tx-1 --within 50ms", map[string][]answer{get: {{502, "sorry"}}}, exitUnknown, "", "What to do: repeat the command\n"},
		{"sent and waited", "tx send --submitter s --wait", map[string][]answer{post: {{202, `{"txId":"tx-1"}`}}, get: {{200, confirmed}}}, exitOK, "0xab", ""},
		{"a second operator", "submitter suspend s --reason stolen", map[string][]answer{"POST /admin/v1/submitters/s/suspend": {{202, `{"proposalId":"p-1","effect":"suspends s","expiresAt":"2026-01-02T03:04:05Z","createdAt":"2026-01-02T03:04:05Z"}`}}},
			exitUnknown, "", "fencepost proposal approve p-1"},
		{"a test event that was not accepted", "webhook test shop --reason why", map[string][]answer{"POST /admin/v1/webhook-endpoints/shop/test": {{200, `{"accepted":false,"by":"me","at":"2026-01-02T03:04:05Z","answer":{"status":500,"text":"no","at":"2026-01-02T03:04:05Z"}}`}}}, exitFailed, "500", "did not accept"},
		{"no such command", "tx fly", nil, exitUsage, "", "unknown command"},
		{"no command", "tx", nil, exitUsage, "", "needs a command"},
		{"no such flag", "tx get tx-1 --token x", nil, exitUsage, "", "unknown flag: --token"},
		{"no reason", "submitter suspend s", nil, exitUsage, "", `required flag(s) "reason"`},
		{"no limits", "submitter register s --caller sub:x", nil, exitUsage, "", "--policy FILE, or --unlimited"},
		{"no nonce", "protect release s --incident 1 --mode resync --reason r --request x=y", nil, exitUsage, "", "want a nonce before ="},
		{"a nonce twice", "protect release s --incident 1 --mode resync --reason r --request 17=a,017=b", nil, exitUsage, "", "nonce 17 is given twice"},
		{"a nonce in two flags", "protect release s --incident 1 --mode resync --reason r --hash 17=a --hash 17=b", nil, exitUsage, "", "nonce 17 is given twice"},
		{"a cancel without its reason", "tx|cancel|tx-1|--reason|", nil, exitUsage, "", "--reason: want why"},
		{"some remain in the queue", "submitter cancel-queue s --reason r", map[string][]answer{"POST /admin/v1/submitters/s/queue/cancel": {{200, `{"cancelled":100,"remaining":5}`}}}, exitUnknown, "100", "5 remain: run the same"},
		{"none remain in the queue", "submitter cancel-queue s --reason r", map[string][]answer{"POST /admin/v1/submitters/s/queue/cancel": {{200, `{"cancelled":5,"bound":1}`}}}, exitOK, "5", ""},
		{"some remain held", "submitter proceed s --through tx-1 --reason r", map[string][]answer{"POST /admin/v1/submitters/s/proceed": {{200, `{"proceeded":100,"remaining":5}`}}}, exitUnknown, "100", "5 remain: run the same"},
		{"some remain to be written off", "protect write-off s --through 9 --reason r", map[string][]answer{writeOff: {{200, `{"writtenOff":100,"remaining":5}`}}}, exitUnknown, "100", "5 remain: run the same"},
		{"later ones remain", "protect write-off s --through 9 --reason r", map[string][]answer{writeOff: {{200, `{"writtenOff":0,"remaining":5}`}}}, exitOK, "5", ""},
		{"one is written off", "protect write-off s --nonce 9 --reason r", map[string][]answer{writeOff: {{200, `{"writtenOff":1,"remaining":5}`}}}, exitOK, "5", ""},
		{"some remain in PROTECT", "protect release-untouched --reason r", map[string][]answer{"POST /admin/v1/database/release-untouched": {{200, `{"released":["s"],"left":[],"remaining":5,"nextPageToken":"p2"}`}}}, exitUnknown, "p2", "with --page-token p2"},
		{"a test event without an answer", "webhook test shop --reason why", map[string][]answer{"POST /admin/v1/webhook-endpoints/shop/test": {{200, `{"accepted":false,"by":"me","at":"2026-01-02T03:04:05Z","answer":{"status":null,"text":"timeout","at":"2026-01-02T03:04:05Z"}}`}}}, exitUnknown, "timeout", "may have arrived"},
		{"no list", "tx send --submitter s --function f() --args {}", nil, exitUsage, "", "want a JSON list"},
		{"two payloads", "tx send --submitter s --payload - --to 0xa", nil, exitUsage, "", "none of the others can be"},
		{"help", "tx send --help", nil, exitOK, "--request-id", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, c.scripts)
			code, out, problems := d.fencepost(t, c.line)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(problems, c.problems) {
				t.Errorf("%s: got exit %d,\n%s\n%s\nwant exit %d, %q and %q", c.line, code, out, problems, c.code, c.out, c.problems)
			}
			if c.code == exitUsage && len(d.calls()) > 0 {
				t.Errorf("%s: sent %q, want nothing", c.line, d.calls())
			}
		})
	}
}

// broken is an output that can no longer be written to, such as a full disk.
type broken struct{}

// Write implements [io.Writer].
func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// If the result of an accepted act cannot be printed, the outcome is not known: it is no failure.
func TestOutputThatFails(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{"POST /api/v1/tx": {{202, `{"txId":"tx-1"}`}}})
	env := map[string]string{"FENCEPOST_API": d.URL, "FENCEPOST_TOKEN": secret}
	var problems output
	code := run(t.Context(), strings.Fields("tx send --submitter s --request-id r"), func(name string) string { return env[name] }, streams{strings.NewReader(""), broken{}, &problems})
	if code != exitUnknown || !strings.Contains(problems.String(), "never with another") {
		t.Errorf("got exit %d, %s; want exit %d and to repeat it under the same key", code, problems.String(), exitUnknown)
	}
}

// The request id of tx send is printed before the call, and is the one that is sent. So is the cid of a transfer.
func TestKeyIsPrintedBeforeTheCall(t *testing.T) {
	t.Parallel()
	for line, member := range map[string]string{
		"tx send --json --submitter s --to 0xa":                                         "requestId",
		"transfer create --json --from FUNDING --to SPOT --asset USDT --amount 1":       "cid",
		"transfer payout --json --asset ETH --amount 0.1 --address 0xa --request-id no": "",
	} {
		var problems output
		printed, sent := "", map[string]any{}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			printed = problems.String()
			_ = json.NewDecoder(q.Body).Decode(&sent)
			write(w, answer{200, `{"txId":"tx-1","req_id":"q-1","state":"COMMITTED"}`})
		}))
		env := map[string]string{"FENCEPOST_API": s.URL, "FENCEPOST_TOKEN": secret}
		code := run(t.Context(), strings.Fields(line), func(name string) string { return env[name] }, streams{strings.NewReader(""), io.Discard, &problems})
		s.Close()
		if member == "" {
			check.Equal(t, line+": exit", code, exitUsage)
			continue
		}
		key, _ := sent[member].(string)
		if code != exitOK || len(key) < 20 || !strings.Contains(printed, fmt.Sprintf("%q:%q", member, key)) {
			t.Errorf("%s: got exit %d, sent %v, and printed %q before; want its key printed", line, code, sent, printed)
		}
	}
}

// With --json the API's own JSON is printed: a document, or a line for each row. Numbers keep their digits.
func TestJSONIsTheAPIsOwn(t *testing.T) {
	t.Parallel()
	const row1, row2, row3 = `{"submitter":"a","nextNonce":9223372036854775807,"new":1}`, `{"submitter":"b","nextNonce":2}`, `{"submitter":"c","nextNonce":3}`
	d := serve(t, map[string][]answer{
		"GET /api/v1/tx/tx-1":       {{200, confirmed}},
		"GET /admin/v1/submitters":  {{200, "{\"submitters\": [" + row1 + ",\n " + row2 + `], "nextPageToken": "2"}`}, {200, `{"submitters":[` + row3 + `]}`}},
		"GET /api/v1/events":        {{200, `{"events":[{"cursor":"7","event":{"type":"TxAccepted","timestamp":"2026-01-02T03:04:05Z","sequence":1,"data":{}}}],"nextPageToken":"7"}`}, {200, `{"events":[],"nextPageToken":"7"}`}},
		"GET /api/v1/tx/by-request": {problem(400, "INVALID_FIELD", "submitter")},
	})
	code, out, _ := d.fencepost(t, "tx get tx-1 --json")
	check.Equal(t, "exit", code, exitOK)
	check.Equal(t, "a document", out, confirmed+"\n")
	_, out, problems := d.fencepost(t, "submitter list --json")
	check.Equal(t, "rows", out, row1+"\n"+row2+"\n"+row3+"\n")
	check.Equal(t, "notes", problems, "")
	_, out, _ = d.fencepost(t, "events tail --json")
	check.Equal(t, "an event", out, `{"cursor":"7","event":{"type":"TxAccepted","timestamp":"2026-01-02T03:04:05Z","sequence":1,"data":{}}}`+"\n")
	_, _, problems = d.fencepost(t, "tx get --json --submitter s --request-id r")
	var f struct {
		Outcome, Code, Field string
		Problem              struct{ Detail string }
	}
	check.OK(t)(json.Unmarshal([]byte(problems), &f))
	check.Equal(t, "an error", f.Outcome+" "+f.Code+" "+f.Field+" "+f.Problem.Detail, "refused INVALID_FIELD submitter of this request")
}

// A table has the whole digits of numbers, "-" for nothing, and no character that changes a terminal. --limit ends it.
func TestTables(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{"GET /admin/v1/submitters": {{200, `{"submitters":[{"submitter":"a","name":"\u001b[31mred\u202e","nextNonce":9223372036854775807,"maxInFlight":100000},{"submitter":"b"},{"submitter":"c"}]}`}}})
	code, out, problems := d.fencepost(t, "submitter list --limit 2")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitOK || len(lines) != 3 || !strings.Contains(problems, "--limit 0") {
		t.Fatalf("got exit %d, %q, %q; want titles, two rows and a note", code, out, problems)
	}
	check.Same(t, "a row", strings.Fields(lines[1]), []string{"a", "[31mred", "-", "-", "9223372036854775807", "0", "0", "100000"})
}

// No output has a character that changes what a terminal shows. In JSON it is escaped, which keeps the value.
func TestHiddenCharacters(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{
		"GET /admin/v1/submitters/s":            {{200, "{\"submitter\":\"\u007f\u009b31m\u202e\U000e0041\u2028é\"}"}},
		"GET /admin/v1/submitters/s/policy/use": {{200, "{\"scopes\":[{\"scope\":\"\u009b\u202eto\",\"inDay\":\"1\"}]}"}},
		"GET /admin/v1/submitters/none":         {{404, "{\"code\":\"NOT_FOUND\",\"status\":404,\"detail\":\"\u009b31m\u202e\"}"}},
	})
	_, out, _ := d.fencepost(t, "submitter get s --json")
	check.Equal(t, "a document", out, `{"submitter":"\u007f\u009b31m\u202e\udb40\udc41\u2028é"}`+"\n")
	_, table, problems := d.fencepost(t, "submitter policy-use s")
	_, _, wrong := d.fencepost(t, "submitter get none --json")
	if !strings.Contains(table, "to") || !strings.Contains(wrong, `\u009b31m\u202e`) {
		t.Errorf("got %q, %q and %q; want the scope and the detail", table, problems, wrong)
	}
	if at := strings.IndexFunc(strings.ReplaceAll(table+wrong, "\n", ""), isHidden); at >= 0 {
		t.Errorf("got %q and %q; want no hidden character", table, wrong)
	}
}

// What a command sends: a whole number keeps its digits in --args, a payload goes as it is, an operator's act uses the
// operator's token and has its reason.
func TestRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.json")
	check.OK(t)(os.WriteFile(file, []byte(`{"maxValue": "5"}`), 0o600))
	const shown = `{"submitter":"s","createdAt":"2026-01-02T03:04:05Z"}`
	for _, c := range []struct{ line, path, want, token string }{
		{`tx|send|--submitter|s|--request-id|r|--to|0xa|--function|f(uint256)|--args|[123456789012345678901234567890]|--valid-until|2027-01-31T12:00:00Z`, "POST /api/v1/tx",
			`{"submitter":"s","requestId":"r","payload":{"to":"0xa","function":"f(uint256)","args":[123456789012345678901234567890]},"validUntil":"2027-01-31T12:00:00Z"}`, secret},
		{"tx send --submitter s --request-id r --handler shop --payload -", "POST /api/v1/tx", `{"submitter":"s","requestId":"r","handler":"shop","payload":{"order":4711}}`, secret},
		{"tx cancel tx-1 --reason theirs", "POST /admin/v1/tx/tx-1/cancel", `{"reason":"theirs"}`, "operators"},
		{"tx decide tx-1 placeholder --reason r", "POST /admin/v1/tx/tx-1/decide", `{"action":"placeholder","reason":"r"}`, "operators"},
		{"submitter register s --caller sub:x --policy " + file, "POST /admin/v1/submitters", `{"submitter":"s","callers":["sub:x"],"policy":{"maxValue":"5"}}`, "operators"},
		{"submitter register s --caller sub:x --unlimited", "POST /admin/v1/submitters", `{"submitter":"s","callers":["sub:x"],"policy":"unlimited"}`, "operators"},
		{"submitter change s --window 7 --reason r", "PATCH /admin/v1/submitters/s", `{"maxInFlight":7,"reason":"r"}`, "operators"},
		{"submitter set-callers s --caller sub:y --succeeds sub:y=sub:x --reason r", "PUT /admin/v1/submitters/s/callers", `{"callers":["sub:y"],"succeeds":{"sub:y":"sub:x"},"reason":"r"}`, "operators"},
		{"submitter set-policy s --policy " + file + " --reason r", "PUT /admin/v1/submitters/s/policy", `{"maxValue":"5","reason":"r"}`, "operators"},
		{"protect release s --incident 3 --mode resync --count 18 --request 17=order-1,16=none --hash 17=0xab --others matching --reason r --dry-run", "POST /admin/v1/submitters/s/release",
			`{"incident":3,"mode":"resync","reason":"r","count":18,"requests":{"16":"none","17":"order-1"},"hashes":{"17":"0xab"},"others":"matching"}`, "operators"},
		{"protect write-off s --through 9 --reason r", "POST /admin/v1/submitters/s/foreign/write-off", `{"through":9,"reason":"r"}`, "operators"},
		{"webhook redeliver shop --after 7 --reason r", "POST /admin/v1/webhook-endpoints/shop/redeliver", `{"after":"7","submitter":null,"reason":"r"}`, "operators"},
		{"transfer payout --asset ETH --amount 0.1 --address 0xa --cid c", "POST /api/v1/payout", `{"asset":"ETH","amount":"0.1","address":"0xa","cid":"c"}`, "users"},
		{"transfer resolve q-1 --op refund --reason r", "POST /admin/v1/transfers/q-1/resolve", `{"op":"refund","reason":"r"}`, "operators"},
		{"proposal approve p-1 --reason r", "POST /admin/v1/proposals/p-1/approve", `{"reason":"r"}`, "operators"},
	} {
		d := serve(t, map[string][]answer{c.path: {{200, shown}}})
		environ := []string{"FENCEPOST_API=" + d.URL + "/", "FENCEPOST_TOKEN=" + secret, "FENCEPOST_OPERATOR_TOKEN=operators", "FENCEPOST_USER_TOKEN=users"}
		_, out, problems := fencepost(t, environ, c.line, `{"order":4711}`)
		got := strings.Join(d.calls(), "\n")
		if target, body, _ := strings.Cut(got, " {"); !strings.HasPrefix(target, c.path) || "{"+body != c.want || d.heard[0] != "Bearer "+c.token {
			t.Errorf("%s: sent %s by %q, want %s %s by %s; printed\n%s%s", c.line, got, d.heard, c.path, c.want, c.token, out, problems)
		}
		if strings.Contains(got, "?dryRun=true") != strings.Contains(c.line, "--dry-run") {
			t.Errorf("%s: sent %s", c.line, got)
		}
	}
}

// A misspelt member of a policy is refused: as a limit it would limit nothing.
func TestMisspeltPolicyIsRefused(t *testing.T) {
	t.Parallel()
	d := serve(t, nil)
	code, _, problems := fencepost(t, []string{"FENCEPOST_API=" + d.URL, "FENCEPOST_TOKEN=" + secret}, "submitter set-policy s --policy - --reason r", `{"maxvalues": "5"}`)
	if code != exitUsage || !strings.Contains(problems, "maxvalues") || len(d.calls()) > 0 {
		t.Errorf("got exit %d, %s, and %q sent; want it refused", code, problems, d.calls())
	}
}

// A token comes from the environment, a file or gcloud. A token is sent over TLS, or to this machine.
func TestSignIn(t *testing.T) {
	folder := t.TempDir()
	file, bin := filepath.Join(folder, "token"), filepath.Join(folder, "bin")
	check.OK(t)(os.WriteFile(file, []byte("of-a-file\n"), 0o600))
	check.OK(t)(os.Mkdir(bin, 0o755))
	check.OK(t)(os.WriteFile(filepath.Join(bin, "gcloud"), []byte("#!/bin/sh\nprintf '%s.' gcloud \"$@\" | tr ' :/' '___'\necho end\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	d := serve(t, map[string][]answer{"GET /api/v1/tx/tx-1": {{200, confirmed}}})
	const gcloud = "gcloud.auth.print-identity-token.--audiences=https___a."
	for _, c := range []struct {
		line    string
		environ []string
		want    string // the token; "": none is sent
		problem string
	}{
		{"tx get tx-1", []string{"FENCEPOST_TOKEN=mine"}, "mine", ""},
		{"tx get tx-1", []string{"FENCEPOST_TOKEN_FILE=" + file}, "of-a-file", ""},
		{"tx get tx-1 --token-file " + file, []string{"FENCEPOST_TOKEN=mine"}, "of-a-file", ""},
		{"tx get tx-1", []string{"FENCEPOST_AUDIENCE=https://a"}, gcloud + "end", ""},
		{"tx get tx-1 --audience https://a", []string{"FENCEPOST_TOKEN=mine", "FENCEPOST_IMPERSONATE=ann"}, gcloud + "--impersonate-service-account=ann.--include-email.end", ""},
		{"tx get tx-1", nil, "", "no sign-in: set FENCEPOST_TOKEN"},
		{"tx get tx-1", []string{"FENCEPOST_TOKEN=two words"}, "", "FENCEPOST_TOKEN has no token"},
		{"tx get tx-1 --api http://api.example", []string{"FENCEPOST_TOKEN=mine"}, "", "want https"},
		{"tx get tx-1 --token-file " + file + "x", nil, "", "no such file"},
	} {
		d.asked, d.heard = nil, nil
		_, _, problems := fencepost(t, append(c.environ, "FENCEPOST_API="+d.URL), c.line, "")
		got := strings.TrimPrefix(strings.Join(d.heard, " "), "Bearer ")
		if got != c.want || !strings.Contains(problems, c.problem) {
			t.Errorf("%s with %v: sent %q, %s; want %q, %q", c.line, c.environ, got, problems, c.want, c.problem)
		}
	}
	_, _, problems := fencepost(t, []string{"FENCEPOST_API=" + d.URL, "FENCEPOST_TOKEN_FILE=" + secret}, "tx get tx-1", "") // which looks for the secret in what is printed
	check.Equal(t, "the token in place of its file", strings.Contains(problems, "want a path in FENCEPOST_TOKEN_FILE"), true)
	t.Setenv("PATH", folder)
	_, _, problems = fencepost(t, []string{"FENCEPOST_API=" + d.URL, "FENCEPOST_AUDIENCE=a"}, "tx get tx-1", "")
	if !strings.Contains(problems, "gcloud is not installed") {
		t.Errorf("without gcloud: got %s", problems)
	}
}

// A token of gcloud is used until a minute before its end.
func TestExpiry(t *testing.T) {
	t.Parallel()
	check.Equal(t, "a JWT", expiry("e30.eyJleHAiOjE4MDAwMDAwMDB9.x"), time.Unix(1800000000, 0))
	check.Equal(t, "no JWT", expiry("x"), time.Time{})
}

// leaves are the commands that do something, by their path.
func leaves(c *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, sub := range c.Commands() {
		if sub.HasSubCommands() {
			for path, leaf := range leaves(sub) {
				all[path] = leaf
			}
			continue
		}
		all[strings.TrimPrefix(sub.CommandPath(), "fencepost ")] = sub
	}
	return all
}

// Each act of an operator wants a reason, and no command takes a token on its line, where other people of the machine
// could read it.
func TestActsWantAReason(t *testing.T) {
	t.Parallel()
	without := strings.Fields(`doctor man version events_tail proposal_get proposal_list protect_foreign protect_incidents protect_list protect_lost protect_show
		submitter_changes submitter_get submitter_lane submitter_list submitter_policy-use submitter_queue submitter_register
		transfer_create transfer_find transfer_get transfer_list transfer_payout transfer_wait transfer_why
		tx_cancel tx_find tx_get tx_history tx_inspect tx_list tx_send tx_versions tx_wait tx_why webhook_list webhook_listen`)
	a := &app{answers: new(recorder)}
	var got []string
	for path, c := range leaves(a.root()) {
		if f := c.Flags().Lookup("reason"); f == nil || f.Annotations[cobra.BashCompOneRequiredFlag] == nil {
			got = append(got, strings.ReplaceAll(path, " ", "_"))
		}
		for _, name := range []string{"token", "secret", "password"} {
			if c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil {
				t.Errorf("%s: got a flag --%s", path, name)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(without)
	check.Same(t, "commands without a required reason", got, without)
}

// The completions of the three shells are scripts, and complete commands and values. Each command has a man page.
func TestCompletionsAndManPages(t *testing.T) {
	t.Parallel()
	for shell, part := range map[string]string{"bash": "__start_fencepost", "zsh": "#compdef fencepost", "fish": "complete -c fencepost"} {
		code, out, problems := fencepost(t, nil, "completion "+shell, "")
		if code != exitOK || !strings.Contains(out, part) {
			t.Errorf("%s: got exit %d, %.100s %s; want %q", shell, code, out, problems, part)
		}
		if path, err := exec.LookPath(shell); err == nil {
			c := exec.CommandContext(t.Context(), path, "-n")
			c.Stdin = strings.NewReader(out)
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v\n%s", shell, err, text)
			}
		}
	}
	for line, want := range map[string]string{
		"__complete|tx|": "send\t", "__complete|tx|list|--state|": "CONFIRMED", "__complete|tx|decide|id|": "rebroadcast", "__complete|protect|release|s|--mode|": "resync",
	} {
		if _, out, _ := fencepost(t, nil, line, ""); !strings.Contains(out, want) {
			t.Errorf("%s: got %q, want %q", line, out, want)
		}
	}
	folder := t.TempDir()
	code, _, problems := fencepost(t, nil, "man|--dir|"+folder, "")
	if code != exitOK {
		t.Fatalf("man: got exit %d, %s", code, problems)
	}
	a := &app{answers: new(recorder)}
	for path := range leaves(a.root()) {
		page := filepath.Join(folder, "fencepost-"+strings.ReplaceAll(path, " ", "-")+".1")
		if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte(".TH")) || !bytes.Contains(text, []byte("SYNOPSIS")) {
			t.Errorf("%s: got %v, %.80s; want a man page", page, err, text)
		}
	}
}

// The program compiles no code of a chain.
func TestCompilesNoChainCode(t *testing.T) {
	t.Parallel()
	out := check.Value(exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output())(t)
	if !bytes.Contains(out, []byte("spf13/cobra")) || bytes.Contains(out, []byte("go-ethereum")) {
		t.Errorf("go list -deps: got %s, want cobra and no go-ethereum", out)
	}
}
