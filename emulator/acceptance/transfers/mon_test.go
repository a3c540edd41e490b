package transfers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// MON-001: over a minute in TARGET_PENDING raises an alert; less does not.
func TestMON001TooLongInTargetPending(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 100, 0)
	disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Refuse, Op: transfer.Deposit, UserID: u.ID})
	a := u.post(funding, spot, "0.00004")
	b := u.post(funding, spot, "0.00005")
	u.inState(a.ReqID, "61 seconds")
	u.inState(b.ReqID, "40 seconds")
	u.sweep()
	u.paged("MON-001", a.ReqID, true)
	u.paged("MON-001", b.ReqID, false)
	disarm()
	u.AwaitState(a.ReqID, transfer.Committed)
	u.AwaitState(b.ReqID, transfer.Committed)
}

// inState lengthens the time that the transfer has been in its state.
func (u *user) inState(reqID, by string) {
	u.T.Helper()
	u.ChangeOne(u.T, `update transfers_tb set state_at = state_at - $2::text::interval where req_id = $1 and state = 30`, reqID, by)
}

func (u *user) sweep() {
	u.T.Helper()
	poll(u.T, "a sweep", func() bool { return u.RunSweep(u.Ctx) == nil })
}

// paged checks whether the CRITICAL alert was raised for the transfer.
func (u *user) paged(alert, reqID string, want bool) {
	u.T.Helper()
	texts := []string{`"severity":"CRITICAL"`, `"alert":"` + alert + `"`, reqID}
	if want {
		u.wantLogged(u.T, texts...)
	} else if found := u.Log.Lines(texts...); len(found) > 0 {
		u.T.Errorf("%s of %s: got %d lines, want none", alert, reqID, len(found))
	}
}

// MON-002: a refund that fails three times in a row raises an alert at the third time and not before.
// Each failure alone is CRITICAL in the log.
func TestMON002RefundFailsThreeTimes(t *testing.T) {
	t.Parallel()
	h := own(t, stack.Options{Processes: 1})
	h.Tasks.SetFaults(cloudtasks.Faults{Drop: 1}) // only tasks that the test delivers cause a retry
	for _, from := range sides {
		u := h.newUser(t, 100, 100)
		a, mend := u.refundFails(from)
		const limit = 3
		for n := 1; n <= limit; n++ {
			if n > 1 {
				u.Task(a.ReqID)
			}
			if x := u.Load(a.ReqID); x.State != transfer.Compensating || x.Failures != n {
				t.Fatalf("from %s: got %s after %d failures, want COMPENSATING after %d", from, x.State, x.Failures, n)
			}
			h.wantLogged(t, `"severity":"CRITICAL"`, a.ReqID, fmt.Sprintf(`"failures":%d,`, n), `"unknown":"refund: `)
			u.sweep()
			u.paged("MON-002", a.ReqID, n >= limit)
		}
		mend()
		u.Task(a.ReqID)
		u.AwaitState(a.ReqID, transfer.RolledBack)
		u.wantUnits("given back at last", 100, 100)
		before := len(h.Log.Lines(`"alert":"MON-002"`, a.ReqID))
		u.sweep()
		if after := len(h.Log.Lines(`"alert":"MON-002"`, a.ReqID)); after != before {
			t.Errorf("from %s, given back: got %d pages more, want none", from, after-before)
		}
	}
}

// refundFails begins a transfer of 40 units whose target refuses it, and whose refund fails until the
// returned function fixes it. The first attempt at the refund has failed.
func (u *user) refundFails(from transfer.AccountType) (a answer, mend func()) {
	u.T.Helper()
	if from == spot {
		u.status(funding, "DISABLED")
		mend = u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Unavailable, Op: transfer.Refund, UserID: u.ID})
		return u.post(spot, funding, "0.00004"), mend
	}
	disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Unavailable, Op: transfer.Deposit, UserID: u.ID})
	a = u.post(funding, spot, "0.00004")
	u.status(spot, "DISABLED")
	mend = u.lockFunding()
	disarm()
	u.Task(a.ReqID)
	return a, mend
}

// lockFunding locks the user's account in Funding until free is called. Meanwhile a call to it does
// not answer in time.
func (u *user) lockFunding() (free func()) {
	u.T.Helper()
	tx, err := u.DB.Begin(u.Ctx)
	if err == nil {
		_, err = tx.Exec(u.Ctx, `select from balances_tb where user_id = $1 and asset_id = $2 for update`, u.ID, usdt.ID)
	}
	check(u.T, err)
	free = func() { _ = tx.Rollback(context.WithoutCancel(u.Ctx)) } // a second call does nothing
	u.T.Cleanup(free)
	return free
}

// MON-003: the next check finds a stolen unit. It logs CRITICAL, and new transfers of all users are
// refused until an operator resumes with a reason. Begun transfers continue, and a retry of an
// accepted post is answered.
func TestMON003ConservationBroken(t *testing.T) {
	t.Parallel()
	h := own(t, stack.Options{Processes: 1})
	victim, bystander, waiting := h.newUser(t, 100, 100), h.newUser(t, 100, 100), h.newUser(t, 100, 100)
	done := bystander.post(funding, spot, "0.00004", "cid", "done")
	disarm := h.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Refuse, Op: transfer.Deposit})
	pending := waiting.post(funding, spot, "0.00001")
	h.healthy(t)
	h.steal(t, victim, "-0.000001")
	check(t, h.RunConservation(t.Context()))
	if found := h.wantLogged(t, `"severity":"CRITICAL"`, `"message":"conservation violated"`, fmt.Sprintf(`"userId":%d`, victim.ID), `"expected":"100"`, `"got":"99"`); len(found) != 1 {
		t.Errorf("alerts of the stolen unit: got %d, want one", len(found))
	}
	for _, u := range []*user{victim, bystander} {
		u.refusedBefore("halted", body(funding, spot, "0.00001"), http.StatusServiceUnavailable, "SYSTEM_ERROR")
	}
	bystander.Want("a retry", bystander.post(funding, spot, "0.00004", "cid", "done"), http.StatusOK, "COMMITTED", "DUPLICATE_REQUEST")
	disarm()
	waiting.AwaitState(pending.ReqID, transfer.Committed)
	bystander.Want("what had begun", bystander.Get(done.ReqID), http.StatusOK, "COMMITTED", "")

	h.steal(t, victim, "0.000001") // the unit is back, but only an operator can resume
	h.healthy(t)
	victim.refusedBefore("still halted", body(funding, spot, "0.00001"), http.StatusServiceUnavailable, "SYSTEM_ERROR")
	h.resume(t)
	victim.Want("resumed", victim.post(funding, spot, "0.00001"), http.StatusOK, "COMMITTED", "")
	check(t, h.RunConservation(t.Context()))
}

// steal changes a balance without a journal line.
func (h *deployment) steal(t *testing.T, from *user, by string) {
	t.Helper()
	h.ChangeOne(t, `update balances_tb set available = available + $2::text::numeric where user_id = $1`, from.ID, by)
}

// healthy requires that a full check finds nothing.
func (h *deployment) healthy(t *testing.T) {
	t.Helper()
	got := must(must(h.Client(stack.OperatorAccount))(t).CheckConservation(t.Context(), true))(t)
	if got.Result != "ok" || got.Wrong != 0 {
		t.Errorf("a full check: got %+v, want ok", got)
	}
}

// operator calls an admin function.
func (h *deployment) operator(t *testing.T, method, path string, body any) (status int, text []byte) {
	t.Helper()
	status, text, err := h.Call(t.Context(), stack.OperatorAccount, method, path, body)
	check(t, err)
	return status, text
}

// resume ends the one open halt, which needs an operator and a reason.
func (h *deployment) resume(t *testing.T) {
	t.Helper()
	shown := must(must(h.Client(stack.OperatorAccount))(t).Conservation(t.Context()))(t)
	if len(shown.Halts) != 1 || shown.Halts[0].Scope != "all" {
		t.Fatalf("halts: got %+v, want one of all", shown)
	}
	path := fmt.Sprintf("/admin/v1/halts/%d/resume", shown.Halts[0].ID)
	if status, text := h.operator(t, http.MethodPost, path, map[string]string{"reason": " "}); status != http.StatusBadRequest {
		t.Errorf("resume without a reason: got %d %s, want 400", status, text)
	}
	reason := map[string]string{"reason": "a test took it and brought it back"}
	if status, _, err := h.Call(t.Context(), stack.CallerAccount, http.MethodPost, path, reason); err != nil || status != http.StatusForbidden {
		t.Errorf("resume by somebody else: got %d, %v; want 403", status, err)
	}
	if status, text := h.operator(t, http.MethodPost, path, reason); status != http.StatusNoContent {
		t.Errorf("resume: got %d %s, want 204", status, text)
	}
}

// MON-004: more than sixty transfers of one user within a minute are reported once a sweep; sixty are
// not.
func TestMON004UnusualFrequency(t *testing.T) {
	t.Parallel()
	h := setup(t)
	busy, usual := h.newUser(t, 1000, 0), h.newUser(t, 1000, 0)
	for range 6 {
		for _, u := range []*user{busy, usual} {
			got := endings(u.together(10, body(funding, spot, "0.000001")))
			if slices.ContainsFunc(got, func(s string) bool { return s != "COMMITTED" }) {
				t.Fatalf("transfers: got %v, want all COMMITTED", got)
			}
		}
	}
	busy.committed(funding, spot, "0.000001")
	busy.sweep()
	for _, u := range []*user{busy, usual} { // the report about the first would include the other
		want := u == busy
		texts := []string{`"severity":"WARNING"`, `"alert":"MON-004"`, fmt.Sprintf(`"userId":%d,`, u.ID)}
		if want {
			h.wantLogged(t, texts...)
		} else if found := h.Log.Lines(texts...); len(found) > 0 {
			t.Errorf("warnings of user %d: got %v, want none", u.ID, strings.Join(found, ""))
		}
	}
}
