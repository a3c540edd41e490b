package transfers

import (
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// end is the end of every episode.
func (u *user) end() {
	u.T.Helper()
	u.End(u.picture, u.replay)
}

// picture returns everything stored about the user's money, one row a line.
func (u *user) picture() (lines []string) {
	u.T.Helper()
	for _, side := range sides {
		units, exists := u.held(side)
		lines = append(lines, fmt.Sprintf("%d in %s, an account: %t", units, side, exists))
	}
	for _, e := range u.journal() {
		lines = append(lines, fmt.Sprintf("trading %d %s %s %d %s", e.Seq, e.ReqID, e.Op, e.Units, e.Refused))
	}
	return append(lines, u.Picture()...)
}

// journal returns the core's journal entries about the user.
func (u *user) journal() (own []transfer.Entry) {
	u.T.Helper()
	for after := uint64(0); ; {
		lines, _, err := u.Core.Ledger().Journal(u.Ctx, after, 5000)
		check(u.T, err)
		if len(lines) == 0 {
			return own
		}
		for _, line := range lines {
			after = line.Seq
			if line.UserID == u.ID && wire.Moves(line.Op) {
				own = append(own, line.Entry)
			}
		}
	}
}

// calls returns all calls to the core about the user.
func (u *user) calls(op transfer.Op) []ubsproxy.Call {
	return u.Core.Proxy.Calls(func(c ubsproxy.Call) bool {
		return c.Operation.UserID != nil && *c.Operation.UserID == u.ID && (op == "" || c.Operation.Op == op)
	})
}

// replay repeats every call to the core unchanged, every call to Funding through its adapter, and
// every task. Each gets its earlier answer.
func (u *user) replay() {
	u.T.Helper()
	for _, c := range u.calls("") {
		status, text, err := u.Core.Proxy.Replay(u.Ctx, c, u.Core.Secret)
		check(u.T, err)
		if c.Status == http.StatusOK && (status != c.Status || string(text) != string(c.Answer)) {
			u.T.Errorf("call %d, %s, again: got %d %s, want %d %s", c.Number, c.Body, status, text, c.Status, c.Answer)
		}
	}
	u.replayFunding()
	for _, reqID := range u.All() {
		equal(u.T, fmt.Sprintf("task of %s, again", reqID), u.Task(reqID), http.StatusNoContent)
	}
}

func (u *user) replayFunding() {
	u.T.Helper()
	type asked struct {
		ReqID  string
		Op     transfer.Op
		Reason transfer.Reason
	}
	all := must(pgx.CollectRows(must(u.DB.Query(u.Ctx, `
select o.req_id, o.op_type, coalesce(o.reason, '') from transfer_operations o join transfers_tb using (req_id) where o.user_id = $1`, u.ID))(u.T), pgx.RowToStructByPos[asked]))(u.T)
	for _, a := range all {
		want := transfer.Outcome{Verdict: transfer.Success}
		if a.Reason != "" {
			want = transfer.Outcome{Verdict: transfer.Refused, Reason: a.Reason}
		}
		equal(u.T, fmt.Sprintf("%s of %s in Funding, again", a.Op, a.ReqID), ask(u, u.Funding, a.Op, u.Load(a.ReqID).Call()), want)
	}
}

// ask has a ledger do op.
func ask(u *user, l transfer.Ledger, op transfer.Op, c transfer.Call) transfer.Outcome {
	switch op {
	case transfer.Withdraw:
		return l.Withdraw(u.Ctx, c)
	case transfer.Deposit:
		return l.Deposit(u.Ctx, c)
	case transfer.Refund:
		return l.Refund(u.Ctx, c)
	}
	u.T.Fatalf("no ledger does %q", op)
	return transfer.Outcome{}
}
