package functions_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// pending stores a transfer of alice's that waits for a core which does not answer.
func (h deployment) pending() (reqID string) {
	h.t.Helper()
	h.signal(syscall.SIGSTOP)
	a := h.post(alice, nil)
	a.wants(h.t, 202, "post")
	return fmt.Sprint(a.body["req_id"])
}

// impatient returns a deployment whose calls to the core time out soon.
func impatient(t *testing.T) deployment {
	t.Helper()
	return build(t, "FENCEPOST_TRANSFER_CALL_TIMEOUT=300ms")
}

// stored stores a transfer of alice's of 1 USDT from Funding that no worker drives.
func (h deployment) stored(cid string) (reqID string) {
	h.t.Helper()
	return h.storedFrom(transfer.Funding, transfer.Spot, cid)
}

func (h deployment) storedFrom(from, to transfer.AccountType, cid string) (reqID string) {
	h.t.Helper()
	amount, _ := transfer.ParseAmount("1")
	req := transfer.Request{ReqID: ulid.Make().String(), CID: cid, UserID: alice, From: from, To: to, Asset: "USDT", Amount: amount}
	check.OK(h.t)(h.table.Create(h.t.Context(), req, transfer.Terms{SafetyFactor: 10}))
	return req.ReqID
}

// An operator reads where the money is, the evidence, the time of the next attempt and what would
// help. The operator resolves a waiting transfer, and the reason is stored.
func TestWhyAndResolve(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	reqID := h.pending()
	path := "/admin/v1/transfers/" + reqID
	why := h.as("ann", "GET", path+"/why", nil)
	check.Equal(t, "answer", why.is("state", "retry_count", "failures", "user_id"), "200 TARGET_PENDING 1 1 7")
	for member, part := range map[string]string{
		"where": "withdrawn from FUNDING", "last_evidence": "deposit: trading:", "would_unblock": `{"op": "deposit"}`,
	} {
		says(t, member, fmt.Sprint(why.body[member]), part)
	}
	loaded := check.Value(h.table.Load(t.Context(), reqID))(t)
	check.Equal(t, "next_try_at", fmt.Sprint(why.body["next_try_at"]), loaded.NextAttemptAt.UTC().Format("2006-01-02T15:04:05.999999Z"))
	check.Equal(t, "history", column(why.rows("history"), "state"), "INIT SOURCE_PENDING SOURCE_DONE TARGET_PENDING")
	for _, c := range []struct {
		body any
		want string
	}{
		{map[string]any{"op": "steal", "reason": "r"}, "400 INVALID_FIELD op"},
		{map[string]any{"op": "deposit", "reason": " "}, "400 INVALID_FIELD reason"},
		{map[string]any{"op": "withdraw", "reason": "r"}, "409 NOTHING_TO_RESOLVE <nil>"},
	} {
		check.Equal(t, fmt.Sprintf("resolve by %v", c.body), h.as("ann", "POST", path+"/resolve", c.body).is("code", "field"), c.want)
	}
	check.Equal(t, "cancel", h.as("ann", "POST", path+"/cancel", map[string]any{"reason": "r"}).is("code"), "409 TOO_LATE")
	h.signal(syscall.SIGCONT)
	resolved := h.as("ann", "POST", path+"/resolve", map[string]any{"op": "deposit", "reason": "the core has lost it"})
	if got := resolved.is("state"); got != "200 ROLLED_BACK" && got != "200 COMMITTED" { // the first call can have been applied
		t.Errorf("resolve: got %s (%v), want it at its end", got, resolved.body)
	}
	why = h.as("ann", "GET", path+"/why", nil)
	said := fmt.Sprint(why.body["resolutions"])
	if !strings.Contains(said, "ann@fencepost.example") || !strings.Contains(said, "the core has lost it") || why.body["next_try_at"] != nil || why.body["would_unblock"] != nil {
		t.Errorf("afterwards: got %v, want who resolved it and why, and nothing owed", why.body)
	}
}

// An operator cancels a transfer that has not begun, once.
func TestCancel(t *testing.T) {
	t.Parallel()
	h := build(t)
	path := "/admin/v1/transfers/" + h.stored("c")
	says(t, "where", h.as("ann", "GET", path+"/why", nil).is("where"), "at FUNDING: no ledger was called")
	for range 2 {
		check.Equal(t, "cancel", h.as("ann", "POST", path+"/cancel", map[string]any{"reason": "r"}).is("state", "reason"), "200 FAILED CANCELLED")
	}
	check.Equal(t, "cancel of nothing", h.as("ann", "POST", "/admin/v1/transfers/01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel", map[string]any{"reason": "r"}).is("code"), "404 NOT_FOUND")
}

// A repeated post enqueues the step that its creator did not when it died.
func TestARepeatWakesWhatItsCreatorLeft(t *testing.T) {
	t.Parallel()
	h := build(t)
	reqID := h.stored("c")
	check.Equal(t, "answer", h.post(alice, map[string]any{"cid": "c", "amount": "1"}).is("code", "state", "req_id"), "200 DUPLICATE_REQUEST PENDING "+reqID)
	if h.cloud.task("-transfer-"+reqID+"-0") == nil {
		t.Errorf("tasks: got %q, want its step", h.cloud.about(reqID))
	}
}

// The sweep makes a task for each transfer that is overdue or has lost its worker, named by the
// minute. It alerts about late transfers and unusually active users. It needs no trading core.
func TestSweep(t *testing.T) {
	t.Parallel()
	h := build(t)
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{Accounts: devchain.DevAccounts(1)}))(t)
	t.Cleanup(func() { _ = chain.Close() })
	h.url = h.serve("FENCEPOST_RPC_URLS="+chain.URL(), fmt.Sprintf("FENCEPOST_CHAIN_ID=%d", chain.ChainID()), "FENCEPOST_TRANSFER_UNUSUAL_PER_MINUTE=3")
	late, refund, lost, fresh := h.stored("a"), h.stored("bb"), h.stored("ccc"), h.stored("dddd")
	h.run(`select move_transfer($1, '{0,10,20,30}', null)`, late)
	h.run(`select move_transfer($1, '{0,10,20,30}', null)`, refund)
	h.run(`select move_transfer($1, '{30,-20}', 'ACCOUNT_DISABLED')`, refund)
	h.run(`update transfers_tb set state_at = clock_timestamp() - interval '61 s', next_attempt_at = clock_timestamp() + interval '1 h' where req_id = $1`, late)
	h.run(`update transfers_tb set retry_count = 3, failures = 3, next_attempt_at = clock_timestamp() - interval '61 s' where req_id = $1`, refund)
	h.run(`update transfers_tb set updated_at = clock_timestamp() - interval '61 s' where req_id = $1`, lost)
	swept := h.as("tasks", "POST", "/internal/sweep", map[string]any{})
	check.Equal(t, fmt.Sprintf("answer (%v)", swept.body), swept.is("transfers", "enqueued"), "200 2 2")
	for reqID, tasks := range map[string]int{late: 0, refund: 1, lost: 1, fresh: 0} {
		names := h.cloud.about(reqID)
		if len(names) != tasks || tasks > 0 && !strings.Contains(names[0], "-s-") {
			t.Errorf("tasks of %s: got %q, want %d, by the minute", reqID, names, tasks)
		}
	}
	for alert, want := range map[string]string{"MON-001": "CRITICAL " + late, "MON-002": "CRITICAL " + refund, "MON-004": "WARNING <nil>"} {
		line := h.log.find("alert", alert)
		check.Equal(t, fmt.Sprintf("%s (%v)", alert, line), fmt.Sprintf("%v %v", line["severity"], line["reqId"]), want)
	}
	check.Equal(t, "the last sweep", h.one(`select length(sweep) > 20 from last_sweep`), "true")
}

// A sweep shows each gauge that it could read. The query that failed is counted, and the log names it.
func TestSweepShowsWhatItCouldRead(t *testing.T) {
	recorded := metricSeries()
	h := build(t, endpointSettings(startReceiver(t, hookSecret), hookSecret)...)
	h.run(`insert into event_endpoint (endpoint, paused_at, paused_by, pause_reason) values ('shop', clock_timestamp() - interval '1 hour', 'ann', 'r')`)
	h.as("tasks", "POST", "/internal/sweep", map[string]any{})
	check.Equal(t, "lines of gauges that were not read", len(h.log.since(0, "message", "gauges not read")), 0)
	whole := recorded.takeGauges(t)
	const late = `fencepost_transfer_stuck_seconds{state=TARGET_PENDING}`
	if _, shown := whole[late]; !shown || len(whole) < 20 {
		t.Fatalf("all gauges: got %v, want those of late transfers among them", whole)
	}
	const paused = `fencepost_event_endpoint_paused_seconds{endpoint=`
	if shop, down := whole[paused+"shop}"], whole[paused+"down}"]; shop < 3600 || shop > 3900 || down != 0 {
		t.Errorf("seconds since the pause: got %v of the endpoint that was paused an hour ago and %v of another, want 3600 and 0", shop, down)
	}
	for _, c := range []struct{ broken, query, absent string }{
		{"transfer_acknowledgement", "late_transfers", "fencepost_transfer_stuck_seconds"},
		{"transfer_halt", "backlog", "fencepost_transfer_halts"},
	} {
		before := h.one(`select sweep from last_sweep`)
		h.unguarded(`alter table ` + c.broken + ` rename to elsewhere`)
		recorded.take()
		if swept := h.as("tasks", "POST", "/internal/sweep", map[string]any{}); swept.status == 200 {
			t.Errorf("without %s: got 200, want the failure", c.broken)
		}
		got := recorded.takeGauges(t)
		for series := range whole {
			_, shown := got[series]
			if part := strings.HasPrefix(series, c.absent); part && shown || !part && !shown && c.query == "late_transfers" {
				t.Errorf("without %s, %s: got it shown %t", c.broken, series, shown)
			}
		}
		if len(got) == 0 || h.one(`select sweep from last_sweep`) == before {
			t.Errorf("without %s: got %d gauges, want the others, as those of the last sweep", c.broken, len(got))
		}
		check.Equal(t, "failures counted", recorded.take()["fencepost_gauge_failures_total{query="+c.query+"}"], 1)
		if line := h.log.find("query", c.query); line["severity"] != "WARNING" || line["error"] == nil {
			t.Errorf("without %s: got the line %v, want a warning that names the error", c.broken, line)
		}
		h.unguarded(`alter table elsewhere rename to ` + c.broken)
	}
}

// The sweep opens PROTECT on every submitter of a restored database, also where none of them has work.
func TestSweepProtectsARestoredDatabaseWithoutWork(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	incident := func() string {
		t.Helper()
		if status := h.as("tasks", "POST", "/internal/sweep", map[string]any{}).status; status != 200 && status != 503 { // its chain does not answer
			t.Errorf("sweep: got %d, want 200 or 503", status)
		}
		return h.as("ann", "GET", ofShop, nil).is("protect.incident")
	}
	check.Equal(t, "the accepted database", incident(), "200 <nil>")
	check.OK(t)(migrations.Distrust(t.Context(), h.URL, "restored from a backup"))
	check.Equal(t, "restored", incident(), "200 1")
	check.Equal(t, "the next sweep", incident(), "200 1")
	check.OK(t)(h.Store.AcceptDatabase(t.Context(), "ann", "reconciled"))
	check.Equal(t, "accepted", incident(), "200 1")
}

// A missing unit is found, halts new transfers, and is shown. Stored transfers are still answered, and
// an operator resumes.
func TestConservation(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.post(alice, map[string]any{"cid": "before"}).wants(t, 200, "post")
	check.Equal(t, "before any check", h.as("ann", "GET", "/admin/v1/conservation", nil).is("last_check", "halts"), "200 <nil> []")
	check.Equal(t, "healthy", h.as("tasks", "POST", "/internal/conservation", map[string]any{}).is("result", "wrong"), "200 ok 0")
	for body, want := range map[string]string{`{}`: "200 ok false", `{"full": false}`: "200 ok false", `{"full": true}`: "200 ok true", `{"all": true}`: "400 <nil> <nil>"} {
		check.Equal(t, fmt.Sprintf("the scheduler's %s", body), h.as("tasks", "POST", "/internal/conservation", body).is("result", "full"), want)
	}
	h.run(`update balances_tb set available = available - 0.000001 where user_id = $1`, bob)
	for _, want := range []string{"200 violated 1 1", "200 standing 1 0"} {
		a := h.as("ann", "POST", "/admin/v1/conservation/check", map[string]any{"full": true})
		check.Equal(t, fmt.Sprintf("a stolen unit (%v)", a.body), a.is("result", "wrong", "fresh"), want)
	}
	shown := h.as("ann", "GET", "/admin/v1/conservation", nil)
	check.Equal(t, "shown", shown.is("last_check.result", "last_check.found.0.kind", "last_check.found.1", "open_halts", "halts.1"),
		"200 standing BALANCE_DIFFERS <nil> 1 <nil>")
	check.Equal(t, "halted", h.post(alice, nil).is("code", "req_id"), "503 SYSTEM_ERROR <nil>")
	check.Equal(t, "what is stored", h.post(alice, map[string]any{"cid": "before"}).is("code"), "200 DUPLICATE_REQUEST")
	path := fmt.Sprintf("/admin/v1/halts/%v/resume", shown.member("halts.0.id"))
	for _, c := range []struct{ reason, want string }{{"", "400 INVALID_FIELD"}, {"looked", "204 <nil>"}, {"looked", "409 TOO_LATE"}} {
		check.Equal(t, fmt.Sprintf("resume for %q", c.reason), h.as("ann", "POST", path, map[string]any{"reason": c.reason}).is("code"), c.want)
	}
	h.post(alice, nil).wants(t, 200, "resumed")
}

// Without a trading core there are no transfers, and everything else works.
func TestWithoutATradingCore(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.url = h.serve()
	for _, path := range []string{
		"POST /api/v1/internal_transfer", "POST /api/v1/payout", "POST /internal/transfer", "POST /internal/conservation", "GET /admin/v1/conservation",
	} {
		method, path, _ := strings.Cut(path, " ")
		check.Equal(t, path, h.as("ann", method, path, map[string]any{}).is("code"), "404 NOT_FOUND")
	}
	h.as("ann", "GET", "/admin/v1/submitters", nil).wants(t, 200, "submitters")
	for _, target := range []string{"transfer", "conservation"} {
		says(t, "a process for "+target+" alone", h.startError(functions.Extensions{}, "FUNCTION_TARGET="+target), "FENCEPOST_TRADING_URL", "FENCEPOST_AUTH_USERS_AUDIENCE")
	}
	got := h.startError(functions.Extensions{}, "FENCEPOST_TRADING_URL="+h.core.url)
	if strings.Contains(got, "FENCEPOST_TRADING_URL") || !strings.Contains(got, "FENCEPOST_TRADING_SECRET") {
		t.Errorf("a core without its secret: got %q, want an error that names what is missing", got)
	}
}
