package functions_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// newAsset is the body that makes an asset of number 9.
var newAsset = members{"assetId": 9, "precision": 2, "minTransfer": "0.01", "maxTransfer": "1000", "reason": "listed",
	"payout": members{"payer": payer, "token": "0x" + strings.Repeat("c0", 20), "decimals": 6}}

// An operator makes an asset known to both ledgers. The database and the core refuse to change what never
// changes. Once the asset has an entry, its terms on the chain stay. While a payout is open, so does its payer.
func TestAssets(t *testing.T) {
	t.Parallel()
	h := build(t)
	const path = "/admin/v1/assets/EURX"
	check.Equal(t, "a payer that is not registered", h.as("ann", "PUT", path, newAsset).is("code", "field"), "400 INVALID_FIELD payout.payer")
	h.registerPayer()
	for _, c := range []struct {
		differs members
		field   string
	}{
		{members{"assetId": 0}, "assetId"}, {members{"precision": nil}, "precision"}, {members{"precision": 9}, "precision"},
		{members{"minTransfer": nil}, "minTransfer"}, {members{"minTransfer": "0.001"}, "minTransfer"}, {members{"maxTransfer": "0.001"}, "maxTransfer"},
		{members{"maxTransfer": "1e3"}, "maxTransfer"}, {members{"minTransfer": "2000"}, "maxTransfer"}, {members{"dailyTransfer": "0.0"}, "dailyTransfer"},
		{members{"status": "OFF"}, "status"}, {members{"reason": nil}, "reason"},
		{members{"payout": members{"payer": payer}}, "payout.decimals"}, {members{"payout": members{"payer": payer, "decimals": 1}}, "payout.decimals"},
		{members{"payout": members{"payer": payer, "decimals": 6, "token": "0x12"}}, "payout.token"},
		{members{"payout": members{"payer": "eip155:5:" + strings.TrimPrefix(payer, "eip155:1337:"), "decimals": 6}}, "payout.payer"},
	} {
		check.Equal(t, fmt.Sprint(c.differs), h.as("ann", "PUT", path, with(newAsset, c.differs)).is("code", "field"), "400 INVALID_FIELD "+c.field)
	}
	for range 2 {
		a := h.as("ann", "PUT", path, newAsset)
		check.Equal(t, fmt.Sprintf("put (%v)", a.body), a.is("asset", "assetId", "precision", "minTransfer", "status", "internalTransfers"), "200 EURX 9 2 0.01 ACTIVE true")
	}
	check.Equal(t, "records of it", h.one(`select string_agg("by" || reason || (before is null), ' ') from asset_change where asset_id = 9`), "email:ann@fencepost.examplelistedtrue")
	if o := h.trading.AddAsset(t.Context(), "again", 9, 3, time.Now()); o.Reason != transfer.InvalidAsset {
		t.Errorf("the core, with another precision: got %+v, want INVALID_ASSET, since it knows the asset", o)
	}
	check.Equal(t, "another precision", h.as("ann", "PUT", path, with(newAsset, members{"precision": 3})).is("code"), "409 ASSET_DIFFERS")
	check.Equal(t, "another number", h.as("ann", "PUT", path, with(newAsset, members{"assetId": 10})).is("code"), "409 ASSET_DIFFERS")
	check.Equal(t, "another's number", h.as("ann", "PUT", "/admin/v1/assets/OTHER", newAsset).is("code"), "409 ASSET_DIFFERS")
	h.must(h.trading.AddAsset(t.Context(), "eleven", 11, 4, time.Now()))
	check.Equal(t, "a precision that the core has otherwise", h.as("ann", "PUT", "/admin/v1/assets/ELEVEN", with(newAsset, members{"assetId": 11})).is("code", "field"), "400 INVALID_FIELD precision")
	check.Equal(t, "of which nothing is stored", h.one(`select count(*) from assets_tb where asset_id = 11`), "0")

	token := members{"payout": members{"payer": payer, "token": "0x" + strings.Repeat("c1", 20), "decimals": 6}}
	check.Equal(t, "another token, without entries", h.as("ann", "PUT", path, with(newAsset, token)).is("status"), "200 ACTIVE")
	h.as("ann", "PUT", path, newAsset).wants(t, 200, "back")
	h.as("ann", "POST", "/admin/v1/accounts/7/EURX/deposits", members{"id": "first", "amount": "1.5", "reason": "r"}).wants(t, 200, "deposit")
	check.Equal(t, "another token, with an entry", h.as("ann", "PUT", path, with(newAsset, token)).is("code", "field"), "409 ASSET_TERMS_FIXED payout")
	check.Equal(t, "no chain, with an entry", h.as("ann", "PUT", path, with(newAsset, members{"payout": nil})).is("code"), "409 ASSET_TERMS_FIXED")
	check.Equal(t, "another limit, with an entry", h.as("ann", "PUT", path, with(newAsset, members{"maxTransfer": "5"})).is("maxTransfer"), "200 5")

	h.pay(alice, nil).wants(t, 202, "a payout of USDT")
	usdt := members{"assetId": 1, "precision": 6, "minTransfer": "0.0001", "maxTransfer": "1000000", "reason": "r", "payout": members{"payer": shopAccount, "decimals": 18}}
	h.Register(t, shopAccount, 1)
	h.run(`update submitter set callers = '{transfer}' where submitter = $1`, shopAccount)
	check.Equal(t, "another payer, while one pays", h.as("ann", "PUT", "/admin/v1/assets/USDT", usdt).is("code"), "409 PAYER_IS_PAYING")
	h.unguarded(`update submitter set status = 'RETIRED' where submitter = '` + payer + `'`)
	check.Equal(t, "suspended, with a payer that retired", h.as("ann", "PUT", path, with(newAsset, members{"maxTransfer": "5", "status": "SUSPENDED"})).is("status"), "200 SUSPENDED")
	names := check.Value(collect(h.clientOf(h.callerToken("ann")).ListAssets(t.Context(), 2), func(a client.Asset) string { return a.Asset }))(t)
	check.Equal(t, "assets", names, "USDT HELD SHUT HUGE EURX")
}

// A deposit or withdrawal is booked once for each id, in the ledger that it names, and its refusal is
// as permanent. After an answer that was lost a repeat, or the sweep, finds out and books nothing twice.
func TestDepositsAreBookedOnce(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	const deposits, withdrawals = "/admin/v1/accounts/9/USDT/deposits", "/admin/v1/accounts/9/USDT/withdrawals"
	wire := members{"id": "wire-1", "amount": "12.50", "reason": "the bank's list"}
	for field, differs := range map[string]members{
		"id": {"id": "a b"}, "amount": {"amount": "0"}, "reason": {"reason": " "}, "account": {"account": "CHAIN"},
	} {
		check.Equal(t, field, h.as("ann", "POST", deposits, with(wire, differs)).is("code", "field"), "400 INVALID_FIELD "+field)
	}
	check.Equal(t, "too precise", h.as("ann", "POST", deposits, with(wire, members{"amount": "0.0000001"})).is("code", "field"), "400 INVALID_FIELD amount")
	check.Equal(t, "a number", h.as("ann", "POST", deposits, with(wire, members{"amount": 12.5})).is("code", "field"), "400 INVALID_FIELD amount")
	check.Equal(t, "no such asset", h.as("ann", "POST", "/admin/v1/accounts/9/NONE/deposits", wire).is("code"), "404 NOT_FOUND")
	for range 2 {
		a := h.as("ann", "POST", deposits, wire)
		check.Equal(t, fmt.Sprintf("deposit (%v)", a.body), a.is("state", "kind", "account", "amount", "funding", "by"), "200 DONE DEPOSIT FUNDING 12.5 APPLIED email:ann@fencepost.example")
	}
	check.Equal(t, "another amount", h.as("ann", "POST", deposits, with(wire, members{"amount": "13"})).is("code", "field"), "409 ID_CONFLICT id")
	check.Equal(t, "a withdrawal of that id", h.as("ann", "POST", withdrawals, with(wire, members{"amount": "2.5"})).is("state"), "200 DONE")
	for range 2 {
		a := h.as("ann", "POST", withdrawals, members{"id": "wire-2", "amount": "10.000001", "reason": "r"})
		check.Equal(t, fmt.Sprintf("too much (%v)", a.body), a.is("code", "state"), "422 INSUFFICIENT_BALANCE REFUSED")
	}

	h.unguarded(`create function break() returns trigger language plpgsql as 'begin raise exception ''broken''; end'`)
	h.unguarded(`create trigger break before update of funding on account_act for each row execute function break()`)
	unstored := h.as("ann", "POST", deposits, members{"id": "wire-3", "amount": "1", "reason": "r"})
	check.Equal(t, fmt.Sprintf("an answer that cannot be stored (%v)", unstored.body), unstored.is("state", "id"), "202 PENDING wire-3")
	h.unguarded(`drop trigger break on account_act`)
	check.Equal(t, "and again", h.as("ann", "POST", deposits, members{"id": "wire-3", "amount": "1", "reason": "r"}).is("state", "id"), "200 DONE wire-3")
	check.Equal(t, "which is taken back", h.as("ann", "POST", withdrawals, members{"id": "wire-3", "amount": "1", "reason": "r"}).is("state"), "200 DONE")

	h.signal(syscall.SIGSTOP)
	spot := members{"id": "spot-1", "amount": "3", "account": "SPOT", "reason": "r"}
	a := h.as("ann", "POST", deposits, spot)
	check.Equal(t, "the core is silent", a.is("state"), "202 PENDING")
	check.Equal(t, "shown", h.as("ann", "GET", "/admin/v1/accounts/9/USDT", nil).is("funding.available", "spot"), "200 10 map[state:UNKNOWN]")
	h.signal(syscall.SIGCONT)
	id := h.one(`select act_id from account_act where open`)
	h.run(`update account_act set next_at = clock_timestamp() where open`)
	h.as("tasks", "POST", "/internal/sweep", members{}) // fails, since no chain answers
	task := h.cloud.about(`"act":` + id)
	if len(task) != 1 {
		t.Fatalf("tasks: got %q, want one", task)
	}
	for range 2 { // delivered twice
		h.as("tasks", "POST", "/internal/transfer", string(h.cloud.task(task[0]).GetHttpRequest().GetBody())).wants(t, 204, "the task")
	}
	check.Equal(t, "repeated", h.as("ann", "POST", deposits, spot).is("state", "trading"), "200 DONE APPLIED")
	check.Equal(t, "in the core", h.spotUnits(9), 3_000_000)
	check.Equal(t, "open", h.one(`select count(*) from account_act where open`), "0")
	own := h.asUser(9, "GET", "/api/v1/accounts?asset=USDT", nil)
	check.Equal(t, "to the user", own.is("accounts"),
		"200 [map[asset:USDT assetId:1 funding:map[available:10 state:OPEN status:ACTIVE] spot:map[available:3 state:OPEN status:ACTIVE] userId:9]]")
	listed := h.clientOf(h.callerToken("ann")).ListAccounts(t.Context(), 9, client.AccountQuery{PageSize: 3})
	all := check.Value(collect(listed, func(a client.Account) string { return a.Asset + ":" + a.Funding.State }))(t)
	check.Equal(t, "to an operator, a line for each asset", all, "USDT:OPEN HELD:NONE SHUT:NONE HUGE:NONE")
	check.Equal(t, "conserved", h.as("ann", "POST", "/admin/v1/conservation/check", members{"full": true}).is("result"), "200 ok")
}

// Deposits of the service count against the asset's daily limit, even if they come at the same time.
// The service may do nothing else.
func TestDepositServiceHasALimit(t *testing.T) {
	t.Parallel()
	h := build(t, append(ruleFor("adjustments"), "FENCEPOST_AUTH_DEPOSIT_SERVICE=email:bank@fencepost.example")...)
	deposit := func(user int, id, amount string) answer {
		return h.as("bank", "POST", fmt.Sprintf("/admin/v1/accounts/%d/USDT/deposits", user), members{"id": id, "amount": amount, "reason": "the chain"})
	}
	check.Equal(t, "without a limit", deposit(9, "a", "1").is("code", "left"), "429 SERVICE_LIMIT_EXCEEDED 0")
	h.run(`update assets_tb set daily_service_deposits = 100 where asset_id = 1`)
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for i := range 8 {
		all.Go(func() {
			a := deposit(9, fmt.Sprint("many-", i), "30")
			mu.Lock()
			defer mu.Unlock()
			got[a.is("code", "left")]++
		})
	}
	all.Wait()
	check.Equal(t, "eight of 30 at once", fmt.Sprint(got), "map[200 <nil> <nil>:3 429 SERVICE_LIMIT_EXCEEDED 10:5]")
	check.Equal(t, "stored", h.one(`select string_agg(distinct "by" || of_service, ' ') from account_act`), "email:bank@fencepost.exampletrue")
	check.Equal(t, "booked", h.one(`select available from balances_tb where user_id = 9`), "90.00000000")
	check.Equal(t, "the rest", deposit(9, "rest", "10").is("state"), "200 DONE")
	check.Equal(t, "again, which counts once", deposit(9, "rest", "10").is("state"), "200 DONE")
	h.run(`update service_deposits set day = day - 1`)
	check.Equal(t, "the next day", deposit(9, "next", "100").is("state"), "200 DONE")
	for _, path := range []string{"GET /admin/v1/accounts?user=9", "POST /admin/v1/accounts/9/USDT/withdrawals", "POST /admin/v1/accounts/9/USDT/status", "PUT /admin/v1/assets/USDT", "GET /admin/v1/submitters"} {
		method, path, _ := strings.Cut(path, " ")
		check.Equal(t, path, h.as("bank", method, path, nil).is("code"), "403 FORBIDDEN")
	}
	act := h.as("bank", "POST", "/admin/v1/accounts/9/USDT/deposits", members{"id": "rest", "amount": "10", "reason": "r"})
	check.Equal(t, "its own act", act.is("by", "reason"), "200 email:bank@fencepost.example the chain")
	h.decide("POST", "/admin/v1/accounts/9/USDT/deposits", members{"id": "case", "amount": "1", "reason": "a secret case"}).wants(t, 200, "an operator's deposit")
	check.Equal(t, "an operator's act, to the service", deposit(9, "case", "1").is("state", "by", "reason", "approvedBy"), "200 DONE an operator an operator <nil>")
	check.Equal(t, "a line, by the service", h.as("bank", "POST", "/admin/v1/accounts/9/USDT/deposits",
		members{"id": "line", "amount": "1", "account": "SPOT", "line": 1, "reason": "r"}).is("code", "field"), "400 INVALID_FIELD line")
	check.Equal(t, "an operator's deposit is proposed", h.as("ann", "POST", "/admin/v1/accounts/9/USDT/deposits", members{"id": "big", "amount": "500", "reason": "r"}).is("status", "act"), "202 PROPOSED money")
}

// A status is set in both ledgers, and the answer shows each. What a silent core has not answered is
// repeated in order, and an account gets the status once it exists.
func TestStatusInBothLedgers(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	path := fmt.Sprintf("/admin/v1/accounts/%d/USDT", alice)
	set := func(status string) answer {
		return h.as("ann", "POST", path+"/status", members{"status": status, "reason": "case 12"})
	}
	state := func(a answer) string { return a.is("funding.status", "spot.status", "wanted", "agreed") }
	check.Equal(t, "another status", set("GONE").is("code", "field"), "400 INVALID_FIELD status")
	check.Equal(t, "no Spot account", state(set("FROZEN")), "202 FROZEN <nil> FROZEN false")
	h.must(h.trading.OutsideDeposit(t.Context(), transfer.Call{ReqID: "o", UserID: alice, AssetID: 1, Units: 5_000_000, CreatedAt: time.Now()}))
	h.settleActs()
	check.Equal(t, "once it exists", state(h.as("ann", "GET", path, nil)), "200 FROZEN FROZEN FROZEN true")
	check.Equal(t, "frozen in Funding", h.post(alice, nil).is("code"), "422 ACCOUNT_FROZEN")
	check.Equal(t, "frozen in Spot", h.post(alice, members{"from": "SPOT", "to": "FUNDING"}).is("code"), "422 ACCOUNT_FROZEN")
	check.Equal(t, "active", state(set("ACTIVE")), "200 ACTIVE ACTIVE ACTIVE true")
	h.signal(syscall.SIGSTOP)
	check.Equal(t, "the core is silent", state(set("DISABLED")), "202 DISABLED <nil> DISABLED false")
	check.Equal(t, "and once more", state(set("FROZEN")), "202 FROZEN <nil> FROZEN false")
	h.signal(syscall.SIGCONT)
	h.settleActs()
	shown := h.as("ann", "GET", path, nil)
	check.Equal(t, "after the sweep", state(shown), "200 FROZEN FROZEN FROZEN true")
	check.Equal(t, "open", h.one(`select count(*) from account_act where open`), "0")
	check.Equal(t, "on record", shown.is("acts.0.status", "acts.0.by", "acts.0.reason"), "200 FROZEN email:ann@fencepost.example case 12")
}

// settleActs repeats the open acts on accounts as the sweep's tasks do, the newest first.
func (h deployment) settleActs() {
	h.t.Helper()
	for id := range strings.FieldsSeq(h.one(`select coalesce(string_agg(act_id::text, ' ' order by act_id desc), '') from account_act where open`)) {
		h.as("tasks", "POST", "/internal/transfer", `{"act":`+id+`,"swept":true}`).wants(h.t, 204, "act %s", id)
	}
}

// unguarded runs statements that the triggers refuse.
func (h deployment) unguarded(statements string) {
	h.t.Helper()
	check.OK(h.t)(h.DB.Exec(h.t.Context(), "set session_replication_role = replica; "+statements+"; reset session_replication_role"))
}

// After a restore the numbers of acts come again. The core, which was not restored, knows the acts that had them.
func TestStatusAfterARestore(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	h.must(h.trading.OutsideDeposit(t.Context(), transfer.Call{ReqID: "o", UserID: alice, AssetID: 1, Units: 5_000_000, CreatedAt: time.Now()}))
	path := fmt.Sprintf("/admin/v1/accounts/%d/USDT/status", alice)
	h.as("ann", "POST", path, members{"status": "FROZEN", "reason": "case 12"}).wants(t, 200, "a freeze")
	h.unguarded(`delete from account_act; alter sequence account_act_act_id_seq restart`)
	h.as("ann", "POST", path, members{"status": "ACTIVE", "reason": "case 13"}).wants(t, 200, "another act of the same number")
}

// Two operators decide about what makes or frees money. One is enough to freeze an account or suspend an
// asset.
func TestTwoOperatorsForAccounts(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t, ruleFor("adjustments")...)
	check.Equal(t, "asset", h.decide("PUT", "/admin/v1/assets/EURX", newAsset).is("outcome.status"), "200 200")
	check.Equal(t, "asset, invalid", h.ann("PUT", "/admin/v1/assets/EURX", with(newAsset, members{"precision": 3})).is("code"), "409 ASSET_DIFFERS")
	check.Equal(t, "asset, suspended by one", h.ann("PUT", "/admin/v1/assets/EURX", with(newAsset, members{"status": "SUSPENDED"})).is("status"), "200 SUSPENDED")
	check.Equal(t, "asset, active again", h.ann("PUT", "/admin/v1/assets/EURX", newAsset).is("status"), "202 PROPOSED")
	wire := members{"id": "wire-1", "amount": "12.5", "reason": "r"}
	check.Equal(t, "deposit", h.decide("POST", "/admin/v1/accounts/9/EURX/deposits", wire).is("outcome.status"), "200 200")
	check.Equal(t, "deposit, again", h.ann("POST", "/admin/v1/accounts/9/EURX/deposits", wire).is("state", "approvedBy"), "200 DONE email:ben@fencepost.example")
	check.Equal(t, "withdrawal", h.decide("POST", "/admin/v1/accounts/9/EURX/withdrawals", with(wire, members{"amount": "2"})).is("outcome.status"), "200 200")
	check.Equal(t, "balance", h.one(`select available from balances_tb where user_id = 9`), "10.50000000")
	status := func(s string) members { return members{"status": s, "reason": "r"} }
	const path = "/admin/v1/accounts/9/EURX/status"
	check.Equal(t, "disabled by one", h.ann("POST", path, status("DISABLED")).is("wanted"), "202 DISABLED")
	check.Equal(t, "frozen allows more", h.ann("POST", path, status("FROZEN")).is("status"), "202 PROPOSED")
	stale, _ := h.propose("POST", path, status("ACTIVE"))
	h.ann("POST", path, status("DISABLED")).wants(t, 202, "disabled again")
	check.Equal(t, "changed since", h.ben("POST", stale+"/approve", agreed).is("code"), "409 PROPOSAL_STALE")
	h.decide("POST", path, status("ACTIVE")).wants(t, 200, "active")
	check.Equal(t, "active", h.one(`select status from balances_tb where user_id = 9`), "ACTIVE")
	spot := transfer.Call{ReqID: "spot", UserID: 8, AssetID: 9, Units: 1, CreatedAt: time.Now()}
	h.must(h.trading.OutsideDeposit(t.Context(), spot))
	spot.ReqID = "disabled-before-the-restore"
	h.must(h.trading.SetStatus(t.Context(), spot, "DISABLED"))
	check.Equal(t, "frozen allows more than Spot has", h.ann("POST", "/admin/v1/accounts/8/EURX/status", status("FROZEN")).is("status"), "202 PROPOSED")
	check.Equal(t, "in Spot", check.Value(h.trading.AccountStatus(t.Context(), 8, 9))(t), "DISABLED")
	check.Equal(t, "of both", h.one(`select "by" || approved_by from account_act where kind = 'STATUS' order by act_id desc limit 1`), "sub:ann-at-workemail:ben@fencepost.example")
}

// After a restore a Spot deposit or withdrawal that is ordered again, under its own id, is another call for the core. A
// line of the core's journal ends it, and moves nothing.
func TestSpotMoneyAfterARestore(t *testing.T) {
	t.Parallel()
	h := build(t, ruleFor("adjustments")...)
	const path = "/admin/v1/accounts/9/USDT/deposits"
	wire := members{"id": "wire-1", "amount": "3", "account": "SPOT", "reason": "r"}
	deposited := func(body members) string {
		h.t.Helper()
		return h.decide("POST", path, body).is("outcome.body.state", "outcome.body.trading")
	}
	forget := func() { h.unguarded(`delete from account_act_ending; delete from account_act`) }
	check.Equal(t, "before", deposited(wire), "200 DONE APPLIED")
	forget()
	check.Equal(t, "again", deposited(wire), "200 PENDING <nil>")
	lines, _, err := h.trading.Journal(t.Context(), 0, 1000)
	check.OK(t)(err)
	line := 0
	for _, one := range lines {
		if one.ReqID == "wire-1" {
			line = int(one.Seq)
		}
	}
	for _, c := range []struct {
		what    string
		differs members
		want    string
	}{
		{"another line", members{"line": line - 1}, "409 EVIDENCE_DIFFERS <nil>"},
		{"a line that does not exist", members{"line": 1000}, "409 EVIDENCE_DIFFERS <nil>"},
		{"in Funding", members{"line": line, "account": "FUNDING"}, "400 INVALID_FIELD account"},
	} {
		check.Equal(t, c.what, h.ann("POST", path, with(wire, c.differs)).is("code", "field"), c.want)
	}
	const withdrawals = "/admin/v1/accounts/9/USDT/withdrawals"
	check.Equal(t, "a withdrawal by the line of a deposit", h.ann("POST", withdrawals, with(wire, members{"line": line})).is("code"), "409 EVIDENCE_DIFFERS")
	tooMuch := h.trading.OutsideWithdrawal(t.Context(), transfer.Call{ReqID: "much", UserID: 9, AssetID: 1, Units: 9_000_000, CreatedAt: time.Now()})
	check.Equal(t, "a withdrawal that the core refused", tooMuch.Reason, transfer.InsufficientBalance)
	refused := members{"id": "much", "amount": "9", "account": "SPOT", "line": line + 1, "reason": "r"}
	check.Equal(t, "by its line", h.decide("POST", withdrawals, refused).is("code", "state"), "422 INSUFFICIENT_BALANCE REFUSED")
	proved := with(wire, members{"line": line})
	check.Equal(t, "by its line", deposited(proved), "200 DONE APPLIED")
	check.Equal(t, "once more", h.ann("POST", path, proved).is("state"), "200 DONE")
	check.Equal(t, "on record", h.one(`select string_agg(e.line || ' ' || e.by || ' ' || e.approved_by, ', ' order by e.line) from account_act_ending e`),
		fmt.Sprintf("%d sub:ann-at-work email:ben@fencepost.example, %d sub:ann-at-work email:ben@fencepost.example", line, line+1))
	forget()
	check.Equal(t, "by its line, where no call was made", deposited(proved), "200 DONE APPLIED")
	forget()
	more := with(wire, members{"amount": "4"})
	byLine := with(more, members{"line": line})
	check.Equal(t, "another amount than the core has", h.ann("POST", path, byLine).is("code"), "409 EVIDENCE_DIFFERS")
	check.Equal(t, "which stores nothing", h.one(`select count(*)::text from account_act`), "0")
	check.Equal(t, "of an order that is stored", deposited(more), "200 PENDING <nil>")
	check.Equal(t, "and its line", h.decide("POST", path, byLine).is("code", "state"), "422 ID_TAKEN REFUSED")
	check.Equal(t, "which ends it", h.one(`select trading || open from account_act`), "ID_TAKENfalse")
	check.Equal(t, "in the core", h.spotUnits(9), 3_000_000)
}
