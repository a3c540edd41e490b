package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The first failing check decides the answer, and a refused transfer is not stored.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.post(alice, map[string]any{"cid": "known"}).wants(t, 200, "post")
	for _, c := range []struct {
		name string
		body map[string]any
		want string // status, code, field
	}{
		{"user before form", map[string]any{"user_id": bob, "cid": strings.Repeat("x", 65), "to": "FUNDING", "asset": "?", "amount": "0"}, "403 FORBIDDEN user_id"},
		{"form before cid", map[string]any{"cid": "known", "more": 1}, "400 UNSUPPORTED_FIELD more"},
		{"a number", map[string]any{"amount": 1.5}, "400 INVALID_FIELD amount"},
		{"a user as text", map[string]any{"user_id": "7"}, "400 INVALID_FIELD user_id"},
		{"a long cid", map[string]any{"cid": strings.Repeat("é", 65), "to": "FUNDING"}, "400 INVALID_FIELD cid"},
		{"an empty cid", map[string]any{"cid": ""}, "400 INVALID_FIELD cid"},
		{"a cid of two lines", map[string]any{"cid": "a\nb"}, "400 INVALID_FIELD cid"},
		{"cid before type", map[string]any{"cid": "known", "to": "FUNDING", "asset": "?", "amount": "0"}, "409 CID_CONFLICT cid"},
		{"another amount", map[string]any{"cid": "known", "amount": "1.6"}, "409 CID_CONFLICT cid"},
		{"type before asset", map[string]any{"to": "MOON", "asset": "?", "amount": "0"}, "400 INVALID_ACCOUNT_TYPE <nil>"},
		{"the chain", map[string]any{"to": "CHAIN"}, "400 INVALID_ACCOUNT_TYPE <nil>"},
		{"the same", map[string]any{"to": "FUNDING", "asset": "?", "amount": "0"}, "400 SAME_ACCOUNT to"},
		{"not served", map[string]any{"to": "MARGIN", "asset": "?", "amount": "0"}, "400 UNSUPPORTED_ACCOUNT_TYPE <nil>"},
		{"asset before amount", map[string]any{"asset": "?", "amount": "0"}, "400 INVALID_ASSET asset"},
		{"suspended", map[string]any{"asset": "HELD", "amount": "0"}, "400 ASSET_SUSPENDED asset"},
		{"shut", map[string]any{"asset": "SHUT", "amount": "0"}, "400 TRANSFER_NOT_ALLOWED asset"},
		{"zero", map[string]any{"amount": "0"}, "400 INVALID_AMOUNT amount"},
		{"negative", map[string]any{"amount": "-1"}, "400 INVALID_AMOUNT amount"},
		{"no number", map[string]any{"amount": "1e3"}, "400 INVALID_AMOUNT amount"},
		{"none", map[string]any{"amount": ""}, "400 INVALID_AMOUNT amount"},
		{"precise", map[string]any{"amount": "0.0000001"}, "400 PRECISION_OVERFLOW amount"},
		{"nine decimals", map[string]any{"amount": "1.000000000"}, "400 PRECISION_OVERFLOW amount"},
		{"small", map[string]any{"amount": "0.000099"}, "400 AMOUNT_TOO_SMALL amount"},
		{"large", map[string]any{"amount": "1000000.000001"}, "400 AMOUNT_TOO_LARGE amount"},
		{"beyond a tenth of 64 bits", map[string]any{"asset": "HUGE", "amount": "18446744073.70955162"}, "400 OVERFLOW amount"},
		{"beyond 64 bits", map[string]any{"asset": "HUGE", "amount": "184467440737.09551616"}, "400 OVERFLOW amount"},
	} {
		check.Equal(t, c.name, h.post(alice, c.body).is("code", "field"), c.want)
	}
	check.Equal(t, "transfers", h.one(`select count(*) from transfers_tb`), "1")
}

// A request without a valid token is refused for that, even if it has other faults.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	h := build(t)
	old := jwt.MapClaims{"sub": "7", "iat": time.Now().Add(-2 * time.Hour).Unix(), "exp": time.Now().Add(-time.Hour).Unix()}
	for name, token := range map[string]string{
		"none":               "",
		"expired":            h.issuer.token(t, "users", old),
		"of others":          h.issuer.token(t, "public", jwt.MapClaims{"sub": "7"}),
		"forged":             startIssuer(t).token(t, "users", jwt.MapClaims{"sub": "7", "iss": h.issuer.url}),
		"a name":             h.issuer.token(t, "users", jwt.MapClaims{"sub": "ann"}),
		"zero":               h.issuer.token(t, "users", jwt.MapClaims{"sub": "0"}),
		"negative":           h.issuer.token(t, "users", jwt.MapClaims{"sub": "-7"}),
		"another form":       h.issuer.token(t, "users", jwt.MapClaims{"sub": "07"}),
		"beyond 64 bits":     h.issuer.token(t, "users", jwt.MapClaims{"sub": "9223372036854775808"}),
		"no token of theirs": "x.y.z",
	} {
		for _, path := range []string{"POST /api/v1/internal_transfer", "POST /api/v1/payout", "GET /api/v1/internal_transfer/x"} {
			method, path, _ := strings.Cut(path, " ")
			a := call(t, t.Context(), token, method, h.url+path, map[string]any{"user_id": 8, "amount": 1})
			check.Equal(t, name+", "+path, a.is("code"), "401 UNAUTHORIZED")
			if a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s, %s: got no WWW-Authenticate, want how to authenticate", name, path)
			}
		}
	}
	coordinator := h.issuer.token(t, "public", jwt.MapClaims{"sub": "transfer"})
	asThem := map[string]any{"submitter": payer, "requestId": "r", "payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0"}}
	check.Equal(t, "a caller of the coordinator's name", call(t, t.Context(), coordinator, "POST", h.url+"/api/v1/tx", asThem).is("code"), "404 UNKNOWN_SUBMITTER")
	mixed := map[string]any{"submitter": payer, "callers": []string{"transfer", "sub:shop"}}
	check.Equal(t, "a payer for others too", h.as("ann", "POST", "/admin/v1/submitters", mixed).is("code", "field"), "400 INVALID_FIELD callers")
}

// A successful transfer is answered as COMMITTED. The same cid again gets the same answer, whatever
// the asset's state, and only its owner can see it.
func TestCommitted(t *testing.T) {
	t.Parallel()
	h := build(t)
	first := h.post(alice, map[string]any{"cid": "c", "user_id": alice})
	check.Equal(t, fmt.Sprintf("answer (%v)", first.body), first.is("from", "to", "state", "code"), "200 FUNDING SPOT COMMITTED <nil>")
	reqID := fmt.Sprint(first.body["req_id"])
	h.run(`update assets_tb set status = 'SUSPENDED' where asset_id = 1`)
	h.run(`insert into transfer_halt (scope, evidence) values ('all', '{}')`)
	again := h.post(alice, map[string]any{"cid": "c", "amount": "1.50"})
	check.Equal(t, "the same again", again.is("code", "req_id", "transfer_id", "state"), fmt.Sprintf("200 DUPLICATE_REQUEST %s %v COMMITTED", reqID, first.body["transfer_id"]))
	seen := h.shown(alice, reqID)
	check.Equal(t, "to its owner", seen.is("req_id", "transfer_id", "from", "to", "asset", "amount", "state"),
		fmt.Sprintf("200 %s %v FUNDING SPOT USDT 1.5 COMMITTED", reqID, first.body["transfer_id"]))
	for _, at := range []string{"created_at", "updated_at"} {
		check.OK(t)(time.Parse(time.RFC3339Nano, fmt.Sprint(seen.body[at])))
	}
	for user, id := range map[int64]string{bob: reqID, alice: strings.ToLower(reqID), alice + 2: "%00"} {
		check.Equal(t, fmt.Sprintf("%s to user %d", id, user), h.shown(user, id).is("code"), "404 NOT_FOUND")
	}
	if names := h.cloud.about(reqID); len(names) != 0 {
		t.Errorf("tasks of what is final: got %q, want none", names)
	}
}

// A transfer that fails after it was stored is answered with its reason, req_id and state. The same
// cid again gets the same answer.
func TestFailed(t *testing.T) {
	t.Parallel()
	h := build(t)
	short := h.post(alice, map[string]any{"cid": "short", "amount": "1000.000001"})
	if got, want := short.is("code", "state"), "422 INSUFFICIENT_BALANCE FAILED"; got != want || len(fmt.Sprint(short.body["req_id"])) != 26 {
		t.Errorf("too much: got %s (%v), want %s and a req_id", got, short.body, want)
	}
	again := h.post(alice, map[string]any{"cid": "short", "amount": "1000.000001"})
	check.Equal(t, "the same again", again.is("code", "state", "reason", "req_id"), fmt.Sprintf("200 DUPLICATE_REQUEST FAILED INSUFFICIENT_BALANCE %v", short.body["req_id"]))
	h.must(h.trading.OutsideDeposit(t.Context(), transfer.Call{ReqID: "o", UserID: 9, AssetID: 1, Units: 5_000_000, CreatedAt: time.Now()}))
	back := h.post(9, map[string]any{"from": "SPOT", "to": "FUNDING"})
	check.Equal(t, fmt.Sprintf("to no account (%v)", back.body), back.is("code", "state"), "422 TARGET_ACCOUNT_NOT_FOUND ROLLED_BACK")
}

// If the target does not answer, the transfer stays open with a step task for the next attempt; that
// task ends it.
func TestPendingLeavesAStep(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	h.signal(syscall.SIGSTOP)
	a := h.post(alice, map[string]any{"cid": "c"})
	check.Equal(t, "answer", a.is("state", "code"), "202 PENDING <nil>")
	reqID := fmt.Sprint(a.body["req_id"])
	t1, err := h.table.Load(t.Context(), reqID)
	if err != nil || t1.State != transfer.TargetPending || t1.RetryCount != 1 {
		t.Fatalf("got %+v, %v; want it in TARGET_PENDING after one attempt", t1, err)
	}
	task := h.cloud.task("-transfer-" + reqID + "-1")
	if task == nil {
		t.Fatalf("tasks: got %q, want transfer-%s-1", h.cloud.about(reqID), reqID)
	}
	if got := task.ScheduleTime.AsTime(); !got.Equal(*t1.NextAttemptAt) || !strings.Contains(task.Name, "/queues/fencepost-transfer-0/tasks/") {
		t.Errorf("task %s is due at %v: want it in the queue of transfers, at %v", task.Name, got, t1.NextAttemptAt)
	}
	h.step(reqID) // without an answer
	if h.cloud.task("-transfer-"+reqID+"-2") == nil {
		t.Errorf("tasks: got %q, want the next one", h.cloud.about(reqID))
	}
	h.signal(syscall.SIGCONT)
	for range 2 { // delivered twice
		h.step(reqID)
	}
	check.Equal(t, "at the end", h.post(alice, map[string]any{"cid": "c"}).is("code", "state"), "200 DUPLICATE_REQUEST COMMITTED")
	check.Equal(t, "tasks", len(h.cloud.about(reqID)), 2)
	h.step("01ARZ3NDEKTSV4RRFFQ69G5FAV") // there is none
}

func (h deployment) signal(s syscall.Signal) {
	h.t.Helper()
	check.OK(h.t)(h.core.process.Signal(s))
}

// lockAccount locks the user's account in Funding until the returned function is called, or the test ends.
func (h deployment) lockAccount(user int64) (free func()) {
	h.t.Helper()
	locked := check.Value(h.DB.Begin(h.t.Context()))(h.t)
	h.t.Cleanup(func() { _ = locked.Rollback(context.WithoutCancel(h.t.Context())) })
	check.OK(h.t)(locked.Exec(h.t.Context(), `select from balances_tb where user_id = $1 for update`, user))
	return func() { check.OK(h.t)(locked.Rollback(h.t.Context())) }
}

// waitsForLock is a query that tells whether a statement of the functions waits for a lock.
const waitsForLock = `select exists (select from pg_stat_activity where datname = current_database() and application_name = 'fencepost' and wait_event_type = 'Lock')`

// Cloud Tasks retries a task if the database did not answer, or if no next task could be made.
func TestAStepThatIsOwedComesAgain(t *testing.T) {
	t.Parallel()
	h := build(t, "FENCEPOST_TRANSFER_CALL_TIMEOUT=300ms", "FENCEPOST_TASKS_ENDPOINT=127.0.0.1:1")
	h.signal(syscall.SIGSTOP)
	a := h.post(alice, nil)
	check.Equal(t, "without a task service, whose work the sweep finds", a.is("state"), "202 PENDING")
	step := members{"req_id": a.body["req_id"]}
	check.Equal(t, "no next task", h.as("tasks", "POST", "/internal/transfer", step).is("code"), "500 STEP_FAILED")
	h.run(`alter table transfers_tb rename to gone`)
	check.Equal(t, "no database", h.as("tasks", "POST", "/internal/transfer", step).is("code"), "500 STEP_FAILED")
	h.as("tasks", "POST", "/internal/transfer", with(step, members{"swept": true})).wants(t, 204, "no database, by a sweep's task")
	lost := h.post(alice, nil)
	check.Equal(t, "no database", lost.is("code"), "503 SYSTEM_ERROR")
	if len(fmt.Sprint(lost.body["req_id"])) != 26 || lost.header.Get("Retry-After") == "" {
		t.Errorf("no database: got %v, want the req_id to ask for", lost.body)
	}
	says(t, "no database", lost.is("detail"), "Without a cid, do not post it again: ask for req_id first")
}

// A stored transfer ends even if its caller disconnects.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	h := build(t)
	free := h.lockAccount(alice)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		r, _ := http.NewRequestWithContext(ctx, "POST", h.url+"/api/v1/internal_transfer",
			strings.NewReader(`{"from": "FUNDING", "to": "SPOT", "asset": "USDT", "amount": "1", "cid": "c"}`))
		r.Header.Set("Authorization", "Bearer "+h.userToken(alice))
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
			t.Errorf("got status %d before the account was free", resp.StatusCode)
		}
	}()
	await(t, "the withdrawal waits for the account", func() bool { return h.one(waitsForLock) == "true" })
	leave()
	<-left
	await(t, "the server has noticed", h.left.Load)
	free()
	await(t, "the transfer is COMMITTED", func() bool {
		return h.one(`select state from transfers_tb where cid = 'c'`) == fmt.Sprint(int(transfer.Committed))
	})
	check.Equal(t, "attempts that were given up", h.one(`select retry_count from transfers_tb where cid = 'c'`), "0")
}
