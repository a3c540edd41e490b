package transfers

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// FND-001: the same money is not spent twice, however many transfers and outside withdrawals run
// concurrently.
func TestFND001DoubleSpend(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 100, 100)
		left := make(chan transfer.Outcome, 1)
		go func() { left <- u.Outside(u.Ctx, from, transfer.OutsideWithdrawal, u.ID, usdt.ID, 100) }()
		won := 0
		for _, a := range u.together(12, body(from, other(from), "0.0001")) {
			switch {
			case a.State == "COMMITTED":
				won++
			case a.State != "FAILED" || a.Code != "INSUFFICIENT_BALANCE":
				t.Errorf("one of twelve from %s: got %+v, want it COMMITTED or short", from, a)
			}
		}
		if out := <-left; out.Verdict == transfer.Success {
			won++
		}
		equal(t, fmt.Sprintf("who spent all of %s", from), won, 1)
	}
}

// FND-002: withdrawn money does not vanish. It is refunded, or its deposit is retried until it
// arrives, and meanwhile an operator can see where it is.
func TestFND002VanishingFunds(t *testing.T) {
	t.Parallel()
	for _, end := range []transfer.State{transfer.Committed, transfer.RolledBack} {
		u := setup(t).newUser(t, 100, 100)
		disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Unavailable, Op: transfer.Deposit, UserID: u.ID})
		a := u.post(funding, spot, "0.00004")
		u.stays(a.ReqID, transfer.TargetPending, 4)
		u.wantUnits("in flight", 60, 100)
		_, why := u.operator(t, http.MethodGet, "/admin/v1/transfers/"+a.ReqID+"/why", nil)
		says(t, "why", string(why), `"state":"TARGET_PENDING"`, "flight", "next_try_at", "would_unblock")
		if end == transfer.RolledBack {
			u.status(spot, "DISABLED")
		}
		disarm()
		u.AwaitState(a.ReqID, end)
		equal(t, fmt.Sprintf("%s: credits", end), u.did(a.ReqID)[transfer.Deposit]+u.did(a.ReqID)[transfer.Refund], 1)
	}
}

// FND-003: no money from nothing. A refusal whose answer was lost stays a refusal once the money is
// there, and so does a call that arrives after its transfer has ended. A withdrawal that the source
// did not confirm is not paid.
func TestFND003MoneyFromNothing(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 7, 39)
	disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.LoseAnswer, Op: transfer.Withdraw, UserID: u.ID})
	a := u.post(spot, funding, "0.00004")
	u.stays(a.ReqID, transfer.SourcePending, 1)
	u.deposit(spot, 1000)
	disarm()
	u.AwaitState(a.ReqID, transfer.Failed)
	u.wantStates("refused, and the answer lost", a.ReqID, refused...)
	u.wantUnits("refused, and the answer lost", 7, 1039)

	u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Late, UserID: u.ID, Times: 1})
	u.status(funding, "DISABLED")
	b := u.post(spot, funding, "0.0001") // its first withdrawal is still open
	u.AwaitState(b.ReqID, transfer.RolledBack)
	equal(t, "late calls", u.Core.Proxy.Deliver(u.Ctx, u.ID), 1)
	u.wantUnits("a withdrawal that came after the refund", 7, 1039)
}

// FND-005: the source has taken the money, but this is not recorded: the worker died, or its answer
// was lost. The money is taken once and arrives once.
func TestFND005SourceDoneButNotRecorded(t *testing.T) {
	t.Parallel()
	recovered(t, transfer.Withdraw, transfer.Committed, crashCase{"transfer.withdraw.called", transfer.SourcePending, true})
	u := setup(t).newUser(t, 0, 100)
	u.deposit(funding, 1)
	disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.LoseAnswer, Op: transfer.Withdraw, UserID: u.ID})
	a := u.post(spot, funding, "0.00004")
	u.Want("the answer was lost", a, http.StatusAccepted, "PENDING", "")
	u.wantUnits("the answer was lost", 1, 60)
	disarm()
	u.AwaitState(a.ReqID, transfer.Committed)
	u.wantUnits("at the end", 41, 60)
}

// FND-006: no commit is partial. A connection to Postgres dies before, after or in the middle of a
// COMMIT, at each write of a transfer, and the transfer stays correct. The database refuses COMMITTED
// except from TARGET_PENDING, and every change from COMMITTED.
func TestFND006PartialCommit(t *testing.T) {
	t.Parallel()
	h := own(t, stack.Options{WireProxy: true, SweepEvery: time.Second, Processes: 1})
	for _, fragment := range []string{"insert into transfers_tb", "case when late", "as m (req_id", "funding_apply"} {
		for _, kind := range []pgproxy.Kind{pgproxy.CutBeforeCommit, pgproxy.CutAfterCommit, pgproxy.CutMidReply} {
			for _, from := range sides {
				u := h.newUser(t, 100, 100)
				hits := h.Proxy.Counts().Hits[kind]
				h.Proxy.Arm(pgproxy.Fault{Kind: kind, Match: pgproxy.Containing(fragment)})
				a := u.postUntilAnswered(body(from, other(from), "0.00004", "cid", "once"))
				u.AwaitState(a.ReqID, transfer.Committed)
				equal(t, fmt.Sprintf("%s at %s: hits", kind, fragment), h.Proxy.Counts().Hits[kind]-hits, 1)
				u.wantStates(kind.String()+" at "+fragment, u.Only(), happy...)
			}
		}
	}
	u := h.newUser(t, 100, 0)
	for _, to := range []transfer.State{transfer.SourceDone, transfer.TargetPending, transfer.Committed, transfer.Compensating, transfer.RolledBack} {
		u.illegal(u.accepted(funding, 1), to, "transitions_only")
	}
	a := u.committed(funding, spot, "0.00004")
	for _, to := range transfer.States()[:4] {
		u.illegal(a.ReqID, to, "final_never_changes")
	}
	u.illegal(a.ReqID, transfer.Compensating, "final_never_changes")
}

// illegal requires that the database refuses the state by the expected constraint, as a refusal for
// another reason would prove nothing.
func (u *user) illegal(reqID string, to transfer.State, constraint string) {
	u.T.Helper()
	var reason *string
	if to < 0 {
		reason = new(string(transfer.AccountDisabled))
	}
	_, err := u.DB.Exec(u.Ctx, `update transfers_tb set state = $2, error_message = $3 where req_id = $1`, reqID, to, reason)
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.ConstraintName != constraint {
		u.T.Errorf("%s set to %s by hand: got %v, want it refused by %s", reqID, to, err, constraint)
	}
}

// postUntilAnswered repeats a post, as a caller does that gets no answer. The post must have a cid.
func (u *user) postUntilAnswered(body any) (a answer) {
	u.T.Helper()
	poll(u.T, "an answer to a post", func() bool {
		var err error
		a, err = u.try(body)
		return err == nil && a.Status < 500
	})
	return a
}
