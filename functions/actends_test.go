package functions_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// With approvals one operator freezes an account at once, also while the trading core does not answer. Funding is frozen
// then, and the core once it answers. A core that has DISABLED keeps it, unless two operators have decided.
func TestOneOperatorFreezesWithoutTheCore(t *testing.T) {
	t.Parallel()
	h := build(t, append(ruleFor("adjustments"), "FENCEPOST_TRANSFER_CALL_TIMEOUT=500ms")...)
	path := func(user int) string { return fmt.Sprintf("/admin/v1/accounts/%d/USDT", user) }
	set := func(user int, status string) answer {
		return h.ann("POST", path(user)+"/status", members{"status": status, "reason": "case 12"})
	}
	shown := func(a answer) string {
		return a.is("funding.status", "spot.status", "wanted", "agreed", "acts.0.state", "acts.0.refusal")
	}
	const disabled = 9 // in the core, since before a restore of the database
	spot := func(user int64) transfer.Call {
		return transfer.Call{ReqID: fmt.Sprint("spot-", user), UserID: user, AssetID: 1, Units: 5_000_000, CreatedAt: time.Now()}
	}
	for _, user := range []int64{alice, bob, disabled} {
		h.must(h.trading.OutsideDeposit(t.Context(), spot(user)))
	}
	h.must(h.funding.OutsideDeposit(t.Context(), spot(disabled)))
	for _, user := range []int64{bob, disabled} {
		c := spot(user)
		c.ReqID += "-disabled"
		h.must(h.trading.SetStatus(t.Context(), c, "DISABLED"))
	}
	h.signal(syscall.SIGSTOP)
	check.Equal(t, "a freeze", shown(set(alice, "FROZEN")), "202 FROZEN <nil> FROZEN false PENDING <nil>")
	check.Equal(t, "of an account that the core has DISABLED", set(disabled, "FROZEN").is("wanted"), "202 FROZEN")
	check.Equal(t, "its end", set(alice, "ACTIVE").is("status"), "202 PROPOSED")
	h.decide("POST", path(bob)+"/status", members{"status": "ACTIVE", "reason": "case 13"}).wants(t, 200, "two operators activate")
	check.Equal(t, "and one freezes that", set(bob, "FROZEN").is("wanted"), "202 FROZEN")
	check.Equal(t, "frozen in Funding", h.post(alice, nil).is("code"), "422 ACCOUNT_FROZEN")
	h.signal(syscall.SIGCONT)
	h.settleActs()
	for user, want := range map[int]string{
		alice: "200 FROZEN FROZEN FROZEN true DONE <nil>", bob: "200 FROZEN FROZEN FROZEN true DONE <nil>", disabled: "200 FROZEN DISABLED FROZEN false REFUSED KEPT_DISABLED",
	} {
		check.Equal(t, fmt.Sprintf("user %d, once the core answers", user), shown(h.ann("GET", path(user), nil)), want)
	}
	h.decide("POST", path(disabled)+"/status", members{"status": "FROZEN", "reason": "case 14"}).wants(t, 200, "two operators")
	check.Equal(t, "in the core then", check.Value(h.trading.AccountStatus(t.Context(), disabled, 1))(t), "FROZEN")
}

// A new asset waits for the trading core for less time than the server allows the transaction, and says what happened.
func TestNewAssetWithoutTheCore(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	h.signal(syscall.SIGSTOP)
	defer h.signal(syscall.SIGCONT)
	began := time.Now()
	a := h.as("ann", "PUT", "/admin/v1/assets/EURX", newAsset)
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("answer after %s, want it within the 10 s after which the server ends a transaction", took)
	}
	check.Equal(t, "answer", a.is("code", "detail"), "503 SYSTEM_ERROR the trading core gave no answer; nothing was changed here; send the same call again")
}

// Two operators end a Spot deposit or withdrawal that the core has forgotten. The evidence is the line of the core's
// journal that has it, or that no line has it. Both are on record, and no money moves.
func TestForgottenSpotMoney(t *testing.T) {
	t.Parallel()
	h := buildOn(t, startCore(t, "UBSCORE_HORIZON=1s", "UBSCORE_SNAPSHOT_EVERY=4"), ruleFor("adjustments")...)
	path := map[transfer.ActKind]string{transfer.ActDeposit: "/admin/v1/accounts/9/USDT/deposits", transfer.ActWithdrawal: "/admin/v1/accounts/9/USDT/withdrawals"}
	body := func(id string) members {
		return members{"id": id, "amount": "3", "account": "SPOT", "reason": "case " + id}
	}
	stored := func(kind transfer.ActKind, id string) transfer.Act { // and no ledger was called
		return check.Value(h.table.OrderMoney(t.Context(), transfer.MoneyOrder{Kind: kind, RequestID: id, Ledger: transfer.Spot, UserID: 9, AssetID: 1, Units: 3_000_000, By: "ann", Reason: "r"}))(t)
	}
	never, lost, out := stored(transfer.ActDeposit, "never"), stored(transfer.ActDeposit, "lost"), stored(transfer.ActWithdrawal, "never")
	callOf := func(a transfer.Act) transfer.Call {
		return transfer.Call{ReqID: a.RequestID, UserID: 9, AssetID: 1, Units: a.Units, CreatedAt: a.At}
	}
	h.must(h.trading.OutsideDeposit(t.Context(), callOf(lost))) // its answer is lost
	notApplied := members{"outcome": "not_applied"}
	ends := func(kind transfer.ActKind, id string, differs members) answer {
		return h.ann("POST", path[kind], with(body(id), differs))
	}
	check.Equal(t, "before the core was asked", ends(transfer.ActDeposit, "never", notApplied).is("code"), "409 NOT_FORGOTTEN")
	for n, forgot := 0, false; !forgot; n++ {
		probe, filler := callOf(out), callOf(out)
		probe.ReqID, filler.ReqID, filler.CreatedAt = fmt.Sprint("probe-", n), fmt.Sprint("filler-", n), time.Now()
		probe.UserID, filler.UserID = 10, 10
		h.must(h.trading.OutsideDeposit(t.Context(), filler))
		forgot = errors.Is(h.trading.Objection(h.trading.OutsideDeposit(t.Context(), probe)), transfer.ErrForgotten)
	}
	h.settleActs()
	check.Equal(t, "waiting", h.one(`select count(*) filter (where unknown like '%"BEYOND_HORIZON"%') || ' of ' || count(*) from account_act where open`), "3 of 3")
	for _, c := range []struct {
		what    string
		id      string
		differs members
		want    string
	}{
		{"another outcome", "never", members{"outcome": "applied"}, "400 INVALID_FIELD outcome"},
		{"an outcome and a line", "never", members{"outcome": "not_applied", "line": 7}, "400 INVALID_FIELD line"},
		{"lines that nobody has read", "never", members{"outcome": "not_applied", "after": 7}, "400 UNSUPPORTED_FIELD after"},
		{"in Funding", "never", members{"outcome": "not_applied", "account": "FUNDING"}, "400 INVALID_FIELD account"},
		{"an id that was not ordered", "other", notApplied, "409 NOT_FORGOTTEN <nil>"},
		{"another amount", "never", members{"outcome": "not_applied", "amount": "4"}, "409 ID_CONFLICT id"},
		{"one that the journal has", "lost", notApplied, "409 EVIDENCE_DIFFERS <nil>"},
	} {
		check.Equal(t, c.what, ends(transfer.ActDeposit, c.id, c.differs).is("code", "field"), c.want)
	}
	line := 0
	detail := fmt.Sprint(ends(transfer.ActDeposit, "lost", notApplied).body["detail"])
	if _, err := fmt.Sscanf(detail, "line %d of the core's journal has this id", &line); err != nil {
		t.Fatalf("the journal has it: got %q, want its line", detail)
	}
	before := h.one(`select count(*)::text from account_act_ending`)
	decide := func(kind transfer.ActKind, id string, differs members) answer {
		h.t.Helper()
		return h.decide("POST", path[kind], with(body(id), differs))
	}
	check.Equal(t, "a deposit that never came", decide(transfer.ActDeposit, "never", notApplied).is("code", "state"), "422 NOT_APPLIED REFUSED")
	audit := h.ben("GET", "/admin/v1/audit?act=account-act-end", nil)
	check.Equal(t, "on record", audit.is("acts.0.by", "acts.0.approvedBy", "acts.0.reason", "acts.0.subject"),
		"200 sub:ann-at-work email:ben@fencepost.example case never map[id:9 kind:user]")
	check.Equal(t, "once more", ends(transfer.ActDeposit, "never", notApplied).is("code", "state"), "422 NOT_APPLIED REFUSED")
	h.run(`update account_act set journal_read = 1 where kind = 'WITHDRAWAL' and request_id = 'never'`) // as a call that ran out of time
	check.Equal(t, "a withdrawal of the same id", decide(transfer.ActWithdrawal, "never", notApplied).is("code", "state"), "422 NOT_APPLIED REFUSED")
	decide(transfer.ActDeposit, "lost", members{"line": line}).wants(t, 200, "a deposit whose answer was lost")
	check.Equal(t, "their ends", before+h.one(`select string_agg(trading || open || e.by || e.approved_by || (e.line is not null) || coalesce(e.read_after, -1) || (coalesce(e.read_upto, 0) > 3), ' ' order by act_id) from account_act join account_act_ending e using (act_id)`),
		"0NOT_APPLIEDfalsesub:ann-at-workemail:ben@fencepost.examplefalse0true APPLIEDfalsesub:ann-at-workemail:ben@fencepost.exampletrue-1false NOT_APPLIEDfalsesub:ann-at-workemail:ben@fencepost.examplefalse1true")
	check.Equal(t, "one more try of the first act", h.trading.OutsideDeposit(t.Context(), callOf(never)).Verdict, transfer.Unknown)
	check.Equal(t, "in the core, with those whose answer was lost", h.spotUnits(9), 3_000_000)
}
