package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// The exit code tells a refusal from a failure, both from a wrong command line, and all from an outcome that is not known. An
// error has the code, the field and what to do.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	const get, cancel, post = "GET /api/v1/tx/tx-1", "POST /api/v1/tx/tx-1/cancel", "POST /api/v1/tx"
	const writeOff = "POST /admin/v1/submitters/s/foreign/write-off"
	const deposits, book = "POST /admin/v1/accounts/7/ETH/deposits", "account deposit 7 ETH --id wire-1 --amount 1 --reason r"
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
		{"a deposit without an answer", book + " --within 50ms", map[string][]answer{deposits: {{502, "sorry"}}}, exitUnknown, "", "--request-id, --cid or --id, never with another"},
		{"a deposit that the sweep repeats", book, map[string][]answer{deposits: {{202, `{"actId":9,"state":"PENDING","at":"2026-01-02T03:04:05Z"}`}}}, exitUnknown, "PENDING", "run the same command again"},
		{"a booked deposit", book, map[string][]answer{deposits: {{200, `{"actId":9,"state":"DONE","at":"2026-01-02T03:04:05Z"}`}}}, exitOK, "DONE", ""},
		{"a refused deposit", book, map[string][]answer{deposits: {{422, `{"status":422,"code":"ACCOUNT_FROZEN","actId":9,"state":"REFUSED"}`}}}, exitFailed, "", "failed: ACCOUNT_FROZEN (422)"},
		{"a refused deposit, after a lost answer", book + " --within 3s", map[string][]answer{deposits: {{502, "sorry"}, {422, `{"status":422,"code":"ACCOUNT_FROZEN","actId":9,"state":"REFUSED"}`}}}, exitFailed, "", "failed: ACCOUNT_FROZEN (422)"},
		{"a status that one ledger has", "account set-status 7 ETH FROZEN --reason r", map[string][]answer{"POST /admin/v1/accounts/7/ETH/status": {{202, `{"userId":7,"asset":"ETH","wanted":"FROZEN","agreed":false}`}}},
			exitUnknown, "FROZEN", "fencepost account get 7 ETH"},
		{"no user", "account get seven ETH", nil, exitUsage, "", `USER "seven": want a whole number`},
		{"no user of a list", "account list --user -1", nil, exitUsage, "", `--user "-1": want a whole number`},
		{"an empty argument", "account|get|1|", nil, exitUsage, "", "an argument is empty: want fencepost account get USER ASSET"},
		{"an empty txId", "tx|get|", nil, exitUsage, "", "an argument is empty: want fencepost tx get [TXID]"},
		{"a limit below 0", "halt list --limit -1", nil, exitUsage, "", "--limit -1: want"},
		{"a list that is refused", "submitter list", map[string][]answer{"GET /admin/v1/submitters": {problem(403, "FORBIDDEN", "")}}, exitRefused, "", "FORBIDDEN"},
		{"no halt", "halt resume 0 --reason r", nil, exitUsage, "", `HALT "0": want a whole number`},
		{"no address", "payout-address remove x", nil, exitUsage, "", `ADDRESS_ID "x": want a whole number`},
		{"no policy", "submitter set-policy s --policy - --reason r", nil, exitUsage, "", "-: it is empty"},
		{"no policy of a new account", "submitter register s --caller sub:x --policy -", nil, exitUsage, "", "-: it is empty"},
		{"no terms", "asset put ETH --terms - --reason r", nil, exitUsage, "", "-: it is empty"},
		{"a check that finds something", "halt check", map[string][]answer{"POST /admin/v1/conservation/check": {{200, `{"result":"violated","wrong":2,"fresh":1,"found":[],"halted":[{"scope":"all"}]}`}}}, exitFailed, "violated", "2 findings, 1 of them new"},
		{"a check that finds nothing", "halt check", map[string][]answer{"POST /admin/v1/conservation/check": {{200, `{"result":"ok","found":[],"halted":[]}`}}}, exitOK, "ok", ""},
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
			if c.code == exitRefused && out != "" {
				t.Errorf("%s: got %q, want no result", c.line, out)
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
	var problems output
	code := run(t.Context(), strings.Fields("tx send --submitter s --request-id r"), variables(d.environ()...), streams{strings.NewReader(""), broken{}, &problems})
	if code != exitUnknown || !strings.Contains(problems.String(), "never with another") {
		t.Errorf("got exit %d, %s; want exit %d and to repeat it under the same key", code, problems.String(), exitUnknown)
	}
}

// TestMain is the program itself where the variable has a command line: a test of its process.
func TestMain(m *testing.M) {
	if line := os.Getenv("FENCEPOST_TEST_LINE"); line != "" {
		os.Args = append([]string{"fencepost"}, strings.Fields(line)...)
		main()
	}
	os.Exit(m.Run())
}

// A reader that has gone, such as head, ends a command that reads without a message. An act still tells its outcome.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{"POST /api/v1/tx": {{202, `{"txId":"tx-1"}`}}, "GET /api/v1/tx/tx-1": {{200, confirmed}}})
	for line, want := range map[string]string{"tx get tx-1": "", "tx send --submitter s --request-id r": "never with another"} {
		r, w, err := os.Pipe()
		check.OK(t)(err)
		check.OK(t)(r.Close())
		var problems strings.Builder
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = d.environ("FENCEPOST_TEST_LINE=" + line)
		c.Stdout, c.Stderr = w, &problems
		_ = c.Run()
		check.OK(t)(w.Close())
		if got := problems.String(); c.ProcessState.ExitCode() != exitUnknown || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %s, %q; want exit %d and %q", line, c.ProcessState, got, exitUnknown, want)
		}
	}
}
