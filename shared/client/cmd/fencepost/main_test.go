package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// environ has the deployment, the token, and more.
func (d *deployment) environ(more ...string) []string {
	return append([]string{"FENCEPOST_API=" + d.URL, "FENCEPOST_TOKEN=" + secret}, more...)
}

// variables returns the values of entries such as NAME=value.
func variables(environ ...string) func(name string) string {
	values := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

// fencepost runs a command line against the deployment. Words with spaces are separated by "|".
func (d *deployment) fencepost(t *testing.T, line string, more ...string) (code int, out, problems string) {
	t.Helper()
	return fencepost(t, d.environ(more...), line, "")
}

func fencepost(t *testing.T, environ []string, line, stdin string) (code int, out, problems string) {
	t.Helper()
	args := strings.Fields(line)
	if strings.Contains(line, "|") {
		args = strings.Split(line, "|")
	}
	var got, wrong output
	code = run(t.Context(), args, variables(environ...), streams{strings.NewReader(stdin), &got, &wrong})
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
		code := run(t.Context(), strings.Fields(line), variables("FENCEPOST_API="+s.URL, "FENCEPOST_TOKEN="+secret), streams{strings.NewReader(""), io.Discard, &problems})
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

// The use of a policy has the callers and tokens of all pages, with --json in one document.
func TestPolicyUseHasAllPages(t *testing.T) {
	t.Parallel()
	pages := []answer{{200, `{"valueInDay":"9","scopes":[{"scope":"sub:a","inDay":"1"}],"nextPageToken":"2"}`}, {200, `{"valueInDay":"9","scopes":[{"scope":"0xb","inDay":"8"}],"nextPageToken":null}`}}
	for line, want := range map[string]string{
		"submitter policy-use s": "intents in 60 s 0 value in 24 h, wei 9 sub:a 1 in 24 h, 0 intents in 60 s 0xb 8 in 24 h, 0 intents in 60 s",
		"submitter policy-use s --json": `{"at":"0001-01-01T00:00:00Z","intentsInMinute":0,"valueInDay":"9","feesInDay":"",` +
			`"scopes":[{"scope":"sub:a","intentsInMinute":0,"inDay":"1"},{"scope":"0xb","intentsInMinute":0,"inDay":"8"}],"nextPageToken":""}`,
	} {
		d := serve(t, map[string][]answer{"GET /admin/v1/submitters/s/policy/use": pages})
		code, out, problems := d.fencepost(t, line)
		if got := strings.Join(strings.Fields(out), " "); code != exitOK || got != want || !strings.Contains(d.calls()[1], "pageToken=2") {
			t.Errorf("%s: got exit %d, %s %s after %q; want %s", line, code, got, problems, d.calls(), want)
		}
	}
}

// What a command sends: a whole number keeps its digits in --args, a payload goes as it is, an operator's act uses the
// operator's token and has its reason.
func TestRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.json")
	check.OK(t)(os.WriteFile(file, []byte(`{"maxValue": "5"}`), 0o600))
	terms := filepath.Join(t.TempDir(), "terms.json")
	check.OK(t)(os.WriteFile(terms, []byte(`{"assetId": 7, "precision": 6, "minTransfer": "0.01", "maxTransfer": "1000", "payout": {"payer": "s", "decimals": 6}}`), 0o600))
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
		{"account list --user 7 --asset USDT", "GET /admin/v1/accounts", "", "operators"},
		{"account list", "GET /api/v1/accounts", "", "users"},
		{"account get 7 USDT", "GET /admin/v1/accounts/7/USDT", "", "operators"},
		{"account deposit 7 USDT --id wire-77 --amount 12.5 --account SPOT --reason r", "POST /admin/v1/accounts/7/USDT/deposits", `{"id":"wire-77","amount":"12.5","account":"SPOT","reason":"r"}`, "operators"},
		{"account withdraw 7 USDT --id wire-78 --amount 1 --reason r", "POST /admin/v1/accounts/7/USDT/withdrawals", `{"id":"wire-78","amount":"1","reason":"r"}`, "operators"},
		{"account set-status 7 USDT FROZEN --reason r", "POST /admin/v1/accounts/7/USDT/status", `{"reason":"r","status":"FROZEN"}`, "operators"},
		{"asset put USDT --terms " + terms + " --reason r", "PUT /admin/v1/assets/USDT", `{"assetId":7,"precision":6,"minTransfer":"0.01","maxTransfer":"1000","payout":{"payer":"s","decimals":6},"reason":"r"}`, "operators"},
		{"halt check --full", "POST /admin/v1/conservation/check", `{"full":true}`, "operators"},
		{"halt resume 3 --earlier --reason r", "POST /admin/v1/halts/3/resume", `{"earlier":true,"reason":"r"}`, "operators"},
		{"payout-address list", "GET /api/v1/payout_address", "", "users"},
		{"payout-address add --asset ETH --address 0xa", "POST /api/v1/payout_address", `{"asset":"ETH","address":"0xa"}`, "users"},
		{"payout-address remove 5", "DELETE /api/v1/payout_address/5", "", "users"},
		{"payout-address show 7", "GET /admin/v1/users/7/payout_addresses", "", "operators"},
		{"payout-address drop 7 5 --reason r", "POST /admin/v1/users/7/payout_addresses/5/remove", `{"reason":"r"}`, "operators"},
		{"payout-address block 7 --reason r", "POST /admin/v1/users/7/payout_addresses/block", `{"reason":"r"}`, "operators"},
		{"payout-address unblock 7 --reason r", "POST /admin/v1/users/7/payout_addresses/unblock", `{"reason":"r"}`, "operators"},
		{"proposal approve p-1 --reason r", "POST /admin/v1/proposals/p-1/approve", `{"reason":"r"}`, "operators"},
	} {
		d := serve(t, map[string][]answer{c.path: {{200, shown}}})
		environ := d.environ("FENCEPOST_API="+d.URL+"/", "FENCEPOST_OPERATOR_TOKEN=operators", "FENCEPOST_USER_TOKEN=users")
		_, out, problems := fencepost(t, environ, c.line, `{"order":4711}`)
		got := strings.Join(d.calls(), "\n")
		target, body, sent := strings.Cut(got, " {")
		if sent {
			body = "{" + body
		}
		if !strings.HasPrefix(target, c.path) || body != c.want || d.heard[0] != "Bearer "+c.token {
			t.Errorf("%s: sent %s by %q, want %s %s by %s; printed\n%s%s", c.line, got, d.heard, c.path, c.want, c.token, out, problems)
		}
		check.Equal(t, c.line+": a dry run is sent", strings.Contains(got, "?dryRun=true"), strings.Contains(c.line, "--dry-run"))
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
			maps.Copy(all, leaves(sub))
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
	without := strings.Fields(`account_get account_list asset_list doctor events_tail halt_check halt_list man
		payout-address_add payout-address_list payout-address_remove payout-address_show proposal_get proposal_list protect_foreign protect_incidents protect_list protect_lost protect_show
		submitter_changes submitter_get submitter_lane submitter_list submitter_policy-use submitter_queue submitter_register
		transfer_create transfer_find transfer_get transfer_list transfer_payout transfer_wait transfer_why
		tx_cancel tx_find tx_get tx_history tx_inspect tx_list tx_send tx_versions tx_wait tx_why version webhook_list webhook_listen`)
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
		"__complete|tx|": "send\t", "__complete|tx|list|--state|": "CONFIRMED", "__complete|tx|decide|id|": "rebroadcast", "__complete|account|set-status|7|ETH|": "FROZEN", "__complete|protect|release|s|--mode|": "resync",
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
