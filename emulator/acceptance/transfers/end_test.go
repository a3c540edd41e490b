package transfers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// end is the end of every episode. All the user's transfers end, and the checkers find nothing. Then
// every call to either ledger and every task is repeated three times, late, and changes nothing.
func (u *user) end() {
	u.t.Helper()
	poll(u.t, fmt.Sprintf("every transfer of user %d has ended", u.id), func() bool {
		var open int
		err := u.DB.QueryRow(u.ctx, `select count(*) from transfers_tb where user_id = $1 and open`, u.id).Scan(&open)
		return err == nil && open == 0
	})
	u.check()
	before := u.picture()
	for range 3 {
		u.replay()
	}
	if diff := cmp.Diff(before, u.picture()); diff != "" {
		u.t.Errorf("user %d, after everything came three times more (-before +after):\n%s", u.id, diff)
	}
}

// check checks everything that happened to the user's money against every promise.
func (u *user) check() {
	u.t.Helper()
	found, err := money.Check(u.ctx, money.Run{
		Database: u.Database, Core: u.Core.Ledger(), Users: []int64{u.id}, Settled: true,
	})
	if err != nil {
		u.t.Fatal(err)
	}
	if len(found) > 0 {
		u.t.Error(money.Report(found))
	}
}

// picture returns everything stored about the user's money, one row a line.
func (u *user) picture() (lines []string) {
	u.t.Helper()
	for _, side := range sides {
		units, exists := u.held(side)
		lines = append(lines, fmt.Sprintf("%d in %s, an account: %t", units, side, exists))
	}
	rows, err := u.DB.Query(u.ctx, `
select concat_ws(' ', 'funding', id, req_id, op_type, result, reason, units) from transfer_operations where user_id = $1
union all
select concat_ws(' ', 'row', req_id, state, error_message, retry_count, updated_at) from transfers_tb where user_id = $1
union all
select concat_ws(' ', 'history', h.id, h.state) from transfer_history h join transfers_tb using (transfer_id) where user_id = $1
 order by 1`, u.id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			u.t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		u.t.Fatal(err)
	}
	for _, e := range u.journal() {
		lines = append(lines, fmt.Sprintf("trading %d %s %s %d %s", e.Seq, e.ReqID, e.Op, e.Units, e.Refused))
	}
	return lines
}

// journal returns the core's journal entries about the user.
func (u *user) journal() (own []transfer.Entry) {
	u.t.Helper()
	for after := uint64(0); ; {
		lines, _, err := u.Core.Ledger().Journal(u.ctx, after, 5000)
		if err != nil {
			u.t.Fatal(err)
		}
		if len(lines) == 0 {
			return own
		}
		for _, line := range lines {
			after = line.Seq
			if line.UserID == u.id && wire.Moves(line.Op) {
				own = append(own, line.Entry)
			}
		}
	}
}

// calls returns all calls to the core about the user.
func (u *user) calls(op transfer.Op) []ubsproxy.Call {
	return u.Core.Proxy.Calls(func(c ubsproxy.Call) bool {
		return c.Operation.UserID != nil && *c.Operation.UserID == u.id && (op == "" || c.Operation.Op == op)
	})
}

// replay repeats every call to the core unchanged, every call to Funding through its adapter, and
// every task. Each gets its earlier answer.
func (u *user) replay() {
	u.t.Helper()
	for _, c := range u.calls("") {
		status, text, err := u.Core.Proxy.Replay(u.ctx, c, u.Core.Secret)
		if err != nil {
			u.t.Fatal(err)
		}
		if c.Status == http.StatusOK && (status != c.Status || string(text) != string(c.Answer)) {
			u.t.Errorf("call %d, %s, again: got %d %s, want %d %s", c.Number, c.Body, status, text, c.Status, c.Answer)
		}
	}
	u.replayFunding()
	for _, reqID := range u.transfers() {
		if status := u.task(reqID); status != http.StatusNoContent {
			u.t.Errorf("task of %s, again: got %d, want 204", reqID, status)
		}
	}
}

func (u *user) replayFunding() {
	u.t.Helper()
	rows, err := u.DB.Query(u.ctx, `
select o.req_id, o.op_type, coalesce(o.reason, '') from transfer_operations o join transfers_tb using (req_id) where o.user_id = $1`, u.id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	type asked struct {
		reqID  string
		op     transfer.Op
		reason transfer.Reason
	}
	var all []asked
	for rows.Next() {
		var a asked
		if err := rows.Scan(&a.reqID, &a.op, &a.reason); err != nil {
			u.t.Fatal(err)
		}
		all = append(all, a)
	}
	for _, a := range all {
		want := transfer.Outcome{Verdict: transfer.Success}
		if a.reason != "" {
			want = transfer.Outcome{Verdict: transfer.Refused, Reason: a.reason}
		}
		if got := ask(u, u.Funding, a.op, u.load(a.reqID).Call()); got != want {
			u.t.Errorf("%s of %s in Funding, again: got %+v, want %+v", a.op, a.reqID, got, want)
		}
	}
}

// ask has a ledger do op.
func ask(u *user, l transfer.Ledger, op transfer.Op, c transfer.Call) transfer.Outcome {
	switch op {
	case transfer.Withdraw:
		return l.Withdraw(u.ctx, c)
	case transfer.Deposit:
		return l.Deposit(u.ctx, c)
	case transfer.Refund:
		return l.Refund(u.ctx, c)
	}
	u.t.Fatalf("no ledger does %q", op)
	return transfer.Outcome{}
}

// task delivers the step task of a transfer once more, and returns its status.
func (u *user) task(reqID string) (status int) {
	u.t.Helper()
	return u.taskAt(strings.TrimPrefix(u.URLMap.InternalURL(), "http://"), reqID)
}

// taskAt delivers it to one process; 0: it gave no answer.
func (u *user) taskAt(addr, reqID string) (status int) {
	u.t.Helper()
	token, err := u.Issuer.Token(u.ctx, stack.TasksAccount, stack.InternalAudience)
	if err != nil {
		u.t.Fatal(err)
	}
	status, _, err = stack.CallWith(u.ctx, token, http.MethodPost, "http://"+addr+"/internal/transfer", map[string]string{"req_id": reqID})
	if err != nil {
		return 0
	}
	return status
}
