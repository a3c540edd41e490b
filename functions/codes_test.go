package functions_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// contract lists the codes of transfers and their statuses: 400 and 429 before a transfer exists, 422
// afterwards.
var contract = map[string][]int{
	"UNAUTHORIZED": {401}, "FORBIDDEN": {403},
	"SAME_ACCOUNT": {400}, "INVALID_ACCOUNT_TYPE": {400}, "UNSUPPORTED_ACCOUNT_TYPE": {400},
	"INVALID_AMOUNT": {400}, "PRECISION_OVERFLOW": {400}, "AMOUNT_TOO_SMALL": {400}, "AMOUNT_TOO_LARGE": {400}, "OVERFLOW": {400, 422},
	"INVALID_ASSET": {400}, "ASSET_SUSPENDED": {400}, "TRANSFER_NOT_ALLOWED": {400}, "INVALID_ADDRESS": {400},
	"SOURCE_ACCOUNT_NOT_FOUND": {422}, "TARGET_ACCOUNT_NOT_FOUND": {422}, "ACCOUNT_FROZEN": {422}, "ACCOUNT_DISABLED": {422}, "INSUFFICIENT_BALANCE": {422},
	"RATE_LIMIT_EXCEEDED": {429}, "DAILY_LIMIT_EXCEEDED": {429}, "DAILY_AMOUNT_EXCEEDED": {429}, "DAILY_PAYOUT_EXCEEDED": {429},
	"ADDRESS_NOT_LISTED": {400}, "ADDRESS_NOT_YET_USABLE": {400},
	"DUPLICATE_REQUEST": {200}, "CID_CONFLICT": {409}, "SYSTEM_ERROR": {503},
}

// elsewhere lists the codes that no request of this table reaches, with the test that does or the
// reason why none can.
var elsewhere = map[string]string{
	"UNAVAILABLE":            "shared/web/server_test.go: TestSIGTERMLetsTheRequestInFlightEndAndRefusesNewOnes",
	"PAYOUT_REVERTED":        "emulator/acceptance/payouts/back_test.go: TestGivenBack",
	"PAYOUT_REPLACED":        "shared/ledger/payout/seam_test.go: TestH01PayoutSeamEMinedPlaceholderRefunds",
	"PAYOUT_NOT_PAID":        "shared/ledger/payout/doubt_test.go: TestConfirmedWithoutProofEndsByAStatement",
	"STATEMENT_STANDS":       "functions/statement_test.go: TestStatementsAboutPayouts",
	"NO_STATEMENT":           "functions/statement_test.go: TestStatementsAboutPayouts",
	"PAYOUT_FAILED":          "no row has a sub-state that this build does not know",
	"BEYOND_HORIZON":         "emulator/acceptance/transfers/ends_test.go: TestForgottenEndsByAProvedWord",
	"EVIDENCE_DIFFERS":       "emulator/acceptance/transfers/ends_test.go: TestForgottenEndsByAProvedWord",
	"ID_CONFLICT":            "functions/accounts_test.go: TestDepositsAreBookedOnce",
	"ID_TAKEN":               "functions/accounts_test.go: TestSpotMoneyAfterARestore",
	"NOT_APPLIED":            "functions/actends_test.go: TestForgottenSpotMoney",
	"ASSET_DIFFERS":          "functions/accounts_test.go: TestAssets",
	"ASSET_TERMS_FIXED":      "functions/accounts_test.go: TestAssets",
	"PAYER_IS_PAYING":        "functions/accounts_test.go: TestAssets",
	"SERVICE_LIMIT_EXCEEDED": "functions/accounts_test.go: TestDepositServiceHasALimit",
	"ACCOUNT_MOVED":          "shared/store/conservation/adjust_test.go: TestChangedAccountIsNotAdjusted",
	"OUT_OF_RANGE":           "shared/store/conservation/adjust_test.go: TestAdjustmentNeverGoesBelowZero",
	"INVALID_USER":           "no token has a user that is none: that is UNAUTHORIZED",
}

// request reaches one code. Its answer is status, code, state and reason.
type request struct {
	code string
	want string
	ask  func(deployment) answer
}

// requests reach every code, each with separate accounts.
var requests = slices.Concat(refusedRequests, failedRequests, limitedRequests, edgeRequests, operatorRequests)

// posts returns a post by alice.
func posts(differs members) func(deployment) answer {
	return func(h deployment) answer { return h.post(alice, differs) }
}

type members = map[string]any

var refusedRequests = []request{
	{"UNAUTHORIZED", "401 UNAUTHORIZED <nil> <nil>", func(h deployment) answer {
		return call(h.t, h.t.Context(), "", "POST", h.url+"/api/v1/internal_transfer", order(nil))
	}},
	{"FORBIDDEN", "403 FORBIDDEN <nil> <nil>", posts(members{"user_id": bob})},
	{"SAME_ACCOUNT", "400 SAME_ACCOUNT <nil> <nil>", posts(members{"to": "FUNDING"})},
	{"INVALID_ACCOUNT_TYPE", "400 INVALID_ACCOUNT_TYPE <nil> <nil>", posts(members{"to": "MOON"})},
	{"UNSUPPORTED_ACCOUNT_TYPE", "400 UNSUPPORTED_ACCOUNT_TYPE <nil> <nil>", posts(members{"to": "FUTURE"})},
	{"INVALID_AMOUNT", "400 INVALID_AMOUNT <nil> <nil>", posts(members{"amount": "0"})},
	{"PRECISION_OVERFLOW", "400 PRECISION_OVERFLOW <nil> <nil>", posts(members{"amount": "1.0000000"})},
	{"AMOUNT_TOO_SMALL", "400 AMOUNT_TOO_SMALL <nil> <nil>", posts(members{"amount": "0.000099"})},
	{"AMOUNT_TOO_LARGE", "400 AMOUNT_TOO_LARGE <nil> <nil>", posts(members{"amount": "1000000.000001"})},
	{"OVERFLOW", "400 OVERFLOW <nil> <nil>", posts(members{"asset": "HUGE", "amount": "18446744073.70955162"})},
	{"INVALID_ASSET", "400 INVALID_ASSET <nil> <nil>", posts(members{"asset": "NONE"})},
	{"ASSET_SUSPENDED", "400 ASSET_SUSPENDED <nil> <nil>", posts(members{"asset": "HELD"})},
	{"TRANSFER_NOT_ALLOWED", "400 TRANSFER_NOT_ALLOWED <nil> <nil>", posts(members{"asset": "SHUT"})},
	{"INVALID_ADDRESS", "400 INVALID_ADDRESS <nil> <nil>", func(h deployment) answer { return h.pay(alice, members{"address": "0x12"}) }},
	{"DUPLICATE_REQUEST", "200 DUPLICATE_REQUEST COMMITTED <nil>", func(h deployment) answer {
		h.post(alice, members{"cid": "twice"})
		return h.post(alice, members{"cid": "twice"})
	}},
	{"CID_CONFLICT", "409 CID_CONFLICT <nil> <nil>", func(h deployment) answer {
		h.post(alice, members{"cid": "reused"})
		return h.post(alice, members{"cid": "reused", "amount": "2"})
	}},
	{"SYSTEM_ERROR", "503 SYSTEM_ERROR <nil> <nil>", func(h deployment) answer {
		h.run(`insert into transfer_halt (scope, user_id, asset_id, evidence) values ('user_asset', 20, 1, '{}')`)
		return h.post(20, nil)
	}},
}

// failedRequests are of users from 30 on.
var failedRequests = []request{
	{"SOURCE_ACCOUNT_NOT_FOUND", "422 SOURCE_ACCOUNT_NOT_FOUND FAILED <nil>", func(h deployment) answer { return h.post(30, nil) }},
	{"TARGET_ACCOUNT_NOT_FOUND", "422 TARGET_ACCOUNT_NOT_FOUND ROLLED_BACK <nil>", func(h deployment) answer {
		h.must(h.trading.OutsideDeposit(h.t.Context(), transfer.Call{ReqID: "funds-of-31", UserID: 31, AssetID: 1, Units: 5_000_000, CreatedAt: time.Now()}))
		return h.post(31, members{"from": "SPOT", "to": "FUNDING"})
	}},
	{"ACCOUNT_FROZEN", "422 ACCOUNT_FROZEN FAILED <nil>", func(h deployment) answer { return h.barred(32, "FROZEN") }},
	{"ACCOUNT_DISABLED", "422 ACCOUNT_DISABLED FAILED <nil>", func(h deployment) answer { return h.barred(33, "DISABLED") }},
	{"INSUFFICIENT_BALANCE", "422 INSUFFICIENT_BALANCE FAILED <nil>", posts(members{"amount": "5000"})},
	{"OVERFLOW", "422 OVERFLOW ROLLED_BACK <nil>", func(h deployment) answer {
		h.rich(34, 1, 5_000_000)
		h.must(h.trading.OutsideDeposit(h.t.Context(), transfer.Call{ReqID: "funds-of-34", UserID: 34, AssetID: 1, Units: math.MaxUint64, CreatedAt: time.Now()}))
		return h.post(34, nil)
	}},
}

// barred returns the answer to a post by a user whose account has the status.
func (h deployment) barred(user int64, status string) answer {
	h.t.Helper()
	h.rich(user, 1, 5_000_000)
	h.run(`update balances_tb set status = $1 where user_id = $2`, status, user)
	return h.post(user, nil)
}

var limitedRequests = []request{
	{"RATE_LIMIT_EXCEEDED", "429 RATE_LIMIT_EXCEEDED <nil> <nil>", func(h deployment) answer { return h.second(40, "FENCEPOST_TRANSFER_LIMITS_PER_SECOND=1") }},
	{"DAILY_LIMIT_EXCEEDED", "429 DAILY_LIMIT_EXCEEDED <nil> <nil>", func(h deployment) answer { return h.second(41, "FENCEPOST_TRANSFER_LIMITS_PER_DAY=1") }},
	{"DAILY_AMOUNT_EXCEEDED", "429 DAILY_AMOUNT_EXCEEDED <nil> <nil>", func(h deployment) answer {
		h.run(`update assets_tb set daily_transfer_amount = 2 where asset_id = 1`)
		defer h.run(`update assets_tb set daily_transfer_amount = null where asset_id = 1`)
		return h.second(42)
	}},
	{"DAILY_PAYOUT_EXCEEDED", "429 DAILY_PAYOUT_EXCEEDED <nil> <nil>", func(h deployment) answer {
		h.run(`update assets_tb set daily_payout_amount = 1 where asset_id = 1`)
		defer h.run(`update assets_tb set daily_payout_amount = null where asset_id = 1`)
		return h.pay(43, nil)
	}},
	{"ADDRESS_NOT_LISTED", "400 ADDRESS_NOT_LISTED <nil> <nil>", func(h deployment) answer { return h.listedOnly().pay(44, nil) }},
	{"ADDRESS_NOT_YET_USABLE", "400 ADDRESS_NOT_YET_USABLE <nil> <nil>", func(h deployment) answer {
		h.add(45, nil)
		return h.listedOnly().pay(45, nil)
	}},
	{"ADDRESSES_BLOCKED", "403 ADDRESSES_BLOCKED <nil> <nil>", func(h deployment) answer {
		h.as("ann", "POST", "/admin/v1/users/46/payout_addresses/block", members{"reason": "r"})
		return h.add(46, nil)
	}},
	{"TOO_MANY_ADDRESSES", "429 TOO_MANY_ADDRESSES <nil> <nil>", func(h deployment) answer {
		h.run(`insert into payout_address (user_id, chain_id, address) select 47, 1, '0x' || lpad(n::text, 40, '0') from generate_series(1, 100) as n`)
		return h.add(47, nil)
	}},
}

// second returns the answer to the second of two posts by a user, under the settings.
func (h deployment) second(user int64, settings ...string) answer {
	h.t.Helper()
	h.url = h.serve(append(h.transferSettings(), settings...)...)
	h.rich(user, 1, 5_000_000)
	h.post(user, nil).wants(h.t, 200, "the first of two")
	h.shift(user, "1 hour") // so that both posts count in one second, even on a slow machine
	return h.post(user, nil)
}

// text posts a body that is no JSON object.
func text(method, body string) func(deployment) answer {
	return func(h deployment) answer { return h.asUser(alice, method, "/api/v1/internal_transfer", body) }
}

var edgeRequests = []request{
	{"INVALID_JSON", "400 INVALID_JSON <nil> <nil>", text("POST", `{"from": `)},
	{"INVALID_FIELD", "400 INVALID_FIELD <nil> <nil>", posts(members{"amount": 1})},
	{"UNSUPPORTED_FIELD", "400 UNSUPPORTED_FIELD <nil> <nil>", posts(members{"fee": "1"})},
	{"NOT_FOUND", "404 NOT_FOUND <nil> <nil>", func(h deployment) answer { return h.shown(bob, h.stored("not-bobs")) }},
	{"METHOD_NOT_ALLOWED", "405 METHOD_NOT_ALLOWED <nil> <nil>", text("PUT", `{}`)},
	{"BODY_TOO_LARGE", "413 BODY_TOO_LARGE <nil> <nil>", text("POST", `{"asset": "`+strings.Repeat("x", 1<<22)+`"}`)},
}

var operatorRequests = []request{
	{"CANCELLED", "200 <nil> FAILED CANCELLED", func(h deployment) answer {
		reqID := h.stored("cancelled")
		h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/cancel", members{"reason": "r"})
		return h.shown(alice, reqID)
	}},
	{"EXPIRED", "200 <nil> FAILED EXPIRED", func(h deployment) answer {
		reqID := h.stored("expired")
		h.shift(alice, "-16 minutes")
		h.step(reqID)
		return h.shown(alice, reqID)
	}},
	{"RESOLVED", "200 <nil> FAILED RESOLVED", resolvedWithdrawal},
	{"TOO_LATE", "409 TOO_LATE <nil> <nil>", func(h deployment) answer { return h.ordered("cancel", members{"reason": "r"}) }},
	{"NOT_FORGOTTEN", "409 NOT_FORGOTTEN <nil> <nil>", func(h deployment) answer {
		reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
		return h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/resolve", members{"op": "deposit", "reason": "r", "outcome": "applied"})
	}},
	{"NOTHING_TO_RESOLVE", "409 NOTHING_TO_RESOLVE <nil> <nil>", func(h deployment) answer { return h.ordered("resolve", members{"op": "deposit", "reason": "r"}) }},
	{"PAYOUT_CANCELLED", "200 <nil> ROLLED_BACK PAYOUT_CANCELLED", func(h deployment) answer {
		reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
		h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/resolve", members{"op": "deposit", "reason": "r"})
		return h.shown(alice, reqID)
	}},
	{"PAYOUT_REJECTED", "200 <nil> ROLLED_BACK PAYOUT_REJECTED", func(h deployment) answer { return h.paymentFailed("REJECTED") }},
	{"PAYOUT_DISPLACED", "200 <nil> ROLLED_BACK PAYOUT_DISPLACED", func(h deployment) answer { return h.paymentFailed("DISPLACED") }},
}

// shown returns the transfer as its user sees it.
func (h deployment) shown(user int64, reqID string) answer {
	h.t.Helper()
	return h.asUser(user, "GET", "/api/v1/internal_transfer/"+reqID, nil)
}

// step delivers the task of the transfer's next step.
func (h deployment) step(reqID string) {
	h.t.Helper()
	h.as("tasks", "POST", "/internal/transfer", members{"req_id": reqID}).wants(h.t, 204, "step of %s", reqID)
}

// ordered returns the answer to an operator's call about a COMMITTED transfer.
func (h deployment) ordered(order string, body any) answer {
	h.t.Helper()
	reqID := fmt.Sprint(h.post(alice, nil).body["req_id"])
	return h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/"+order, body)
}

// paymentFailed returns a payout whose managed transaction has failed with this sub-state.
func (h deployment) paymentFailed(sub string) answer {
	h.t.Helper()
	reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
	h.run(`update managed_tx set state = 'FAILED', sub_state = $2 where request_id = $1`, reqID, sub)
	h.step(reqID)
	return h.shown(alice, reqID)
}

// resolvedWithdrawal returns a transfer whose withdrawal never arrived and which an operator has
// refused for ever.
func resolvedWithdrawal(h deployment) answer {
	h.t.Helper()
	h.rich(50, 1, 5_000_000)
	h.url = h.serve(append(h.transferSettings(), "FENCEPOST_TRANSFER_CALL_TIMEOUT=300ms")...)
	free := h.lockAccount(50)
	reqID := fmt.Sprint(h.post(50, nil).body["req_id"])
	await(h.t, "the withdrawal no longer waits for the account", func() bool { return h.one(waitsForLock) == "false" })
	free()
	h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/resolve", members{"op": "withdraw", "reason": "r"})
	return h.shown(50, reqID)
}

// A request reaches every code of the contract, with its status. It also reaches every code that the
// program declares, except those that give a reason.
func TestEveryCodeIsReached(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	reached := map[string]bool{}
	for _, r := range requests {
		a := r.ask(h)
		if got := a.is("code", "state", "reason"); got != r.want {
			t.Errorf("%s: got %s (%v), want %s", r.code, got, a.body["detail"], r.want)
			continue
		}
		code := fmt.Sprint(a.body["code"])
		if code == r.code && contract[code] != nil && !slices.Contains(contract[code], a.status) {
			t.Errorf("%s: got status %d, want one of %v", code, a.status, contract[code])
		}
		if later := a.status == 429 || a.status == 503; later != (a.header.Get("Retry-After") != "") {
			t.Errorf("%s: got Retry-After %q with %d", code, a.header.Get("Retry-After"), a.status)
		}
		if exists := a.status == 422 || a.status == 200; exists != (len(fmt.Sprint(a.body["req_id"])) == 26) {
			t.Errorf("%s: got req_id %v with %d", code, a.body["req_id"], a.status)
		}
		if code != r.code && a.body["reason"] != r.code {
			t.Errorf("%s: its request is answered %s", r.code, r.want)
		}
		reached[r.code] = true
		reached[r.code+" "+strconv.Itoa(a.status)] = true
	}
	for code, statuses := range contract {
		for _, status := range statuses {
			if !reached[code+" "+strconv.Itoa(status)] {
				t.Errorf("%s with %d: no request reaches it", code, status)
			}
		}
	}
	declared := declaredCodes(t, "transfers/problem.go", "../shared/web/problem.go", "../shared/transfer/*.go", "../shared/ledger/payout/*.go")
	if len(declared) < 35 || declared["SAME_ACCOUNT"] == "" || declared["PAYOUT_REVERTED"] == "" || declared["UNAUTHORIZED"] == "" || declared["NOTHING_TO_RESOLVE"] == "" {
		t.Fatalf("declared: got %d codes, %v; want all of them", len(declared), declared)
	}
	for code, where := range declared {
		switch why := elsewhere[code]; {
		case why == "" && !reached[code]:
			t.Errorf("%s, declared at %s: no request reaches it", code, where)
		case why != "" && reached[code]:
			t.Errorf("%s: a request reaches it, and it is listed as if none did: %s", code, why)
		}
	}
	for code, why := range elsewhere {
		testExists(t, code, why)
	}
}

// testExists checks a reference to a test of another package, "file: name".
func testExists(t *testing.T, code, reference string) {
	t.Helper()
	file, name, ok := strings.Cut(reference, ": Test")
	if !ok {
		return
	}
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil || !strings.Contains(string(text), "\nfunc Test"+name+"(t ") {
		t.Errorf("%s: no test Test%s in %s, %v", code, name, file, err)
	}
}

// codeDeclared matches a constant of type Reason, and a Code with its name.
var codeDeclared = regexp.MustCompile(`\b(?:Reason\s*=\s*|Code\{\s*(?:Name:\s*)?)"([^"]*)"`)

// declaredCodes returns the codes and reasons that the files of the patterns declare, and where each is declared.
func declaredCodes(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	declared := map[string]string{}
	for _, pattern := range patterns {
		files := check.Value(filepath.Glob(pattern))(t)
		if len(files) == 0 {
			t.Fatalf("%s: got no files, want some", pattern)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, found := range codeDeclared.FindAllStringSubmatch(string(check.Value(os.ReadFile(name))(t)), -1) {
				if !regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`).MatchString(found[1]) {
					t.Errorf("%s: %q is no code", name, found[1])
				}
				declared[found[1]] = name
			}
		}
	}
	return declared
}
