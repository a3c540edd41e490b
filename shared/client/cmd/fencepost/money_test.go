package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// With --json an act whose answer has no body prints one document too.
func TestJSONOfAnswersWithoutBody(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{
		"POST /admin/v1/halts/3/resume": {{204, ""}}, "POST /admin/v1/database/accept": {{204, ""}}, "POST /admin/v1/transfers/q-1/acknowledge": {{204, ""}},
	})
	for line, want := range map[string]string{
		"halt resume 3 --reason r":            `{"halt":3,"state":"ended"}`,
		"protect accept-database --reason r":  `{"accounts":"each stays in PROTECT until it is released","database":"accepted"}`,
		"transfer acknowledge q-1 --reason r": `{"alerts":"silenced while the state stays the same","req_id":"q-1"}`,
	} {
		code, out, problems := d.fencepost(t, line+" --json")
		if code != exitOK || out != want+"\n" {
			t.Errorf("%s: got exit %d, %s %s; want %s", line, code, out, problems, want)
		}
	}
}

// The lists of money have whole amounts, why a balance is not known, and the address that was removed.
func TestMoneyTables(t *testing.T) {
	t.Parallel()
	const address = `{"address_id":5,"chain_id":1,"address":"0xa","added_at":"2026-01-02T03:04:05Z","usable_from":"2026-01-03T03:04:05Z"}`
	d := serve(t, map[string][]answer{
		"GET /admin/v1/accounts": {{200, `{"accounts":[{"userId":7,"asset":"USDT","assetId":1,"funding":{"state":"OPEN","available":"12345678901234567890.5","status":"ACTIVE"},"spot":{"state":"UNKNOWN"}}]}`}},
		"GET /admin/v1/assets":   {{200, `{"assets":[{"asset":"USDT","assetId":1,"precision":6,"minTransfer":"0.01","maxTransfer":"1000","status":"ACTIVE","internalTransfers":true}]}`}},
		"GET /admin/v1/conservation": {{200, `{"last_check":{"at":"2026-01-02T03:04:05Z","result":"standing","standing":1,"found":[]},"open_halts":150,
			"halts":[{"id":3,"scope":"user_asset","user_id":7,"asset_id":1,"since":"2026-01-02T03:04:05Z","evidence":{"got":"2"}}]}`}},
		"GET /admin/v1/users/7/payout_addresses": {{200, `{"required":true,"addresses":[` + address + `],"nextPageToken":"p"}`}, {200, `{"required":true,"addresses":[` + address + `],"block":{"at":"2026-01-02T03:04:05Z","by":"me","reason":"stolen"}}`}},
		"GET /api/v1/payout_address":             {{200, `{"required":false,"addresses":[]}`}},
	})
	for line, want := range map[string]string{
		"account list --user 7": "USER ASSET FUNDING SPOT FUNDING_STATUS SPOT_STATUS 7 USDT 12345678901234567890.5 UNKNOWN ACTIVE -",
		"asset list":            "ASSET ID STATUS PRECISION MIN MAX DAILY INTERNAL PAYER TOKEN USDT 1 ACTIVE 6 0.01 1000 - true - -",
		"halt list":             `150 halts are open; these are the newest HALT SCOPE USER ASSET_ID SINCE EVIDENCE 3 user_asset 7 1 2026-01-02T03:04:05Z {"got":"2"}`,
		"halt list --json":      `{"note":"150 halts are open; these are the newest"} {"id":3,"scope":"user_asset","user_id":7,"asset_id":1,"since":"2026-01-02T03:04:05Z","evidence":{"got":"2"}}`,
		"payout-address show 7": "only to these true blocked since 2026-01-02T03:04:05Z by me why stolen ADDRESS_ID CHAIN ADDRESS ADDED USABLE_FROM REMOVED BY REASON " +
			"5 1 0xa 2026-01-02T03:04:05Z 2026-01-03T03:04:05Z - - - 5 1 0xa 2026-01-02T03:04:05Z 2026-01-03T03:04:05Z - - -",
		"payout-address list": "payouts go to other addresses too: transfer.payoutAddresses.required is false ADDRESS_ID CHAIN ADDRESS ADDED USABLE_FROM REMOVED BY REASON",
	} {
		code, out, problems := d.fencepost(t, line)
		if got := strings.Join(strings.Fields(problems+out), " "); code != exitOK || got != want {
			t.Errorf("%s: got exit %d, %s; want %s", line, code, got, want)
		}
	}
}

// A command that prints some of a user's addresses names the one that prints all.
func TestManyAddressesOfAUser(t *testing.T) {
	t.Parallel()
	const path = "/admin/v1/users/7/payout_addresses"
	page := func(n int, next string) answer {
		return answer{200, `{"required":true,"addresses":[` + strings.Repeat(`,{"address_id":5}`, n)[1:] + `],"nextPageToken":"` + next + `"}`}
	}
	d := serve(t, map[string][]answer{"GET " + path: {page(101, "")}, "POST " + path + "/block": {page(100, "p")}, "POST " + path + "/unblock": {page(101, "")}})
	for line, want := range map[string]string{
		"payout-address show 7":                      "100 there are more rows than 100: give --limit 0 for all",
		"payout-address show 7 --limit 0":            "101 ",
		"payout-address show 7 --limit 3 --json":     `3 {"note":"there are more rows than 3: give --limit 0 for all"}`,
		"payout-address show 7 --limit 0 --json":     "101 ",
		"payout-address block 7 --reason r":          "100 the user has more addresses than these: fencepost payout-address show 7 --limit 0 prints all",
		"payout-address unblock 7 --reason r":        "101 ",
		"payout-address unblock 7 --reason r --json": "101 ",
	} {
		code, out, problems := d.fencepost(t, line)
		rows := strings.Count(out, `"address_id":5,`) + strings.Count(out, "\n5  ")
		if got := fmt.Sprint(rows, " ", strings.TrimSpace(problems)); code != exitOK || got != want {
			t.Errorf("%s: got exit %d, %s; want %s", line, code, got, want)
		}
	}
}

// One attempt of a check has the time of --within, and with --full ten minutes.
func TestTimeOfACheck(t *testing.T) {
	t.Parallel()
	d := serve(t, map[string][]answer{"POST /admin/v1/conservation/check": {{200, `{"result":"ok"}`}}})
	for line, want := range map[string]time.Duration{
		"halt check": time.Minute, "halt check --full": 10 * time.Minute, "halt check --full --within 90s": 90 * time.Second, "halt check --within 2m": 2 * time.Minute,
	} {
		a := &app{streams: streams{strings.NewReader(""), io.Discard, io.Discard}, env: variables(d.environ()...), answers: new(recorder)}
		root := a.root()
		root.SetArgs(strings.Fields(line))
		check.OK(t)(root.ExecuteContext(t.Context()))
		if a.within != want || a.attempt != want {
			t.Errorf("%s: got %s, %s for an attempt; want %s", line, a.within, a.attempt, want)
		}
	}
	if code, _, problems := d.fencepost(t, "halt check --full --within 1ns"); code != exitUnknown || !strings.Contains(problems, "deadline") {
		t.Errorf("without time: got exit %d, %s; want that the outcome is not known", code, problems)
	}
}
