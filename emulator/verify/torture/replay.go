package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// checkDuplicates repeats every call to either ledger three times, and every transfer's task
// once, and checks that nothing changes.
func (e *episode) checkDuplicates(ctx context.Context) check {
	c := check{Name: "late-duplicates", Promise: "every call ever made to a ledger, made three times more, is answered as before and changes nothing; so is every task"}
	before := e.moneySnapshot(ctx)
	var mu sync.Mutex
	report := func(userID int64, reqID, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		c.reportUser(userID, reqID, format, args...)
	}
	for range 3 {
		e.replayCore(ctx, report)
		e.replayFunding(ctx, report)
	}
	e.replayTasks(ctx, report)
	snapshotDifferences(report, before, e.moneySnapshot(ctx))
	return c
}

func (e *episode) replayCore(ctx context.Context, report reporter) {
	core, answered := e.env.Core, make(map[string]bool)
	key := func(c ubsproxy.Call) string { return fmt.Sprint(c.Path, c.Operation.Op, c.Operation.ReqID) }
	for _, c := range core.Proxy.Calls(nil) {
		answered[key(c)] = answered[key(c)] || c.Status == http.StatusOK
	}
	client.Each(core.Proxy.Calls(nil), func(c ubsproxy.Call) {
		if e.restores.transfers[c.Operation.ReqID] && !answered[key(c)] {
			return // its caller was lost before an answer came, and no process repeats it
		}
		status, text, err := core.Proxy.Replay(ctx, c, core.Secret)
		switch {
		case err != nil:
			report(0, c.Operation.ReqID, "call %d to the core, made again: %v", c.Number, err)
		case c.Status == http.StatusOK && (status != c.Status || string(text) != string(c.Answer)):
			report(0, c.Operation.ReqID, "call %d to the core, %s: answered %s, and made again %d %s", c.Number, c.Body, c.Answer, status, text)
		}
	})
}

func (e *episode) replayFunding(ctx context.Context, report reporter) {
	all := rows.All(ctx, e.db, pgx.RowToStructByPos[transfer.Entry], `
select o.id, o.req_id, o.op_type, o.user_id, o.asset_id, o.units, coalesce(o.reason, ''), o.at
  from transfer_operations o join transfers_tb using (req_id)`)
	client.Each(all, func(f transfer.Entry) {
		want := transfer.Outcome{Verdict: transfer.Success}
		if f.Refused != "" {
			want = transfer.Outcome{Verdict: transfer.Refused, Reason: f.Refused}
		}
		call := transfer.Call{ReqID: f.ReqID, UserID: f.UserID, AssetID: f.AssetID, Units: f.Units}
		repeat, known := ledgerCalls[f.Op]
		if !known {
			report(f.UserID, f.ReqID, "Funding's journal has %q, which is no call of a transfer", f.Op)
			return
		}
		if got := repeat(e.env.Funding, ctx, call); got != want {
			report(f.UserID, f.ReqID, "%s in Funding, made again: got %+v, want %+v", f.Op, got, want)
		}
	})
}

// ledgerCalls are the calls that a transfer makes to a ledger.
var ledgerCalls = map[transfer.Op]func(transfer.Ledger, context.Context, transfer.Call) transfer.Outcome{
	transfer.Withdraw: transfer.Ledger.Withdraw, transfer.Deposit: transfer.Ledger.Deposit, transfer.Refund: transfer.Ledger.Refund,
}

func (e *episode) replayTasks(ctx context.Context, report reporter) {
	token := steps.Value(e.env.Issuer.Token(ctx, stack.TasksAccount, stack.InternalAudience))
	client.Each(rows.All(ctx, e.db, pgx.RowTo[string], `select req_id from transfers_tb`), func(reqID string) {
		url := e.env.URLMap.InternalURL() + "/internal/transfer"
		status, text, err := stack.CallWith(ctx, token, http.MethodPost, url, map[string]string{"req_id": reqID})
		if err != nil || status != http.StatusNoContent {
			report(0, reqID, "its task, delivered again: got %d %s, %v; want 204", status, text, err)
		}
	})
}

// moneySnapshot returns the stored state of all money as lines.
func (e *episode) moneySnapshot(ctx context.Context) []string {
	lines := rows.All(ctx, e.db, pgx.RowTo[string], `
select concat_ws(' ', 'funding', id, req_id, op_type, result, reason, user_id, asset_id, units) from transfer_operations
union all
select concat_ws(' ', 'row', req_id, state, error_message, retry_count, updated_at) from transfers_tb
union all
select concat_ws(' ', 'history', id, transfer_id, state) from transfer_history
union all
select concat_ws(' ', 'balance', user_id, asset_id, available, status) from balances_tb
union all
select concat_ws(' ', 'managed', tx_id, request_id, state, sub_state, nonce) from managed_tx`)
	steps.OK(money.EachLine(ctx, e.env.Core.Ledger(), 0, math.MaxUint64, func(j transfer.Entry) {
		if wire.Moves(j.Op) {
			lines = append(lines, fmt.Sprintf("trading %d %s %s %d %s", j.Seq, j.ReqID, j.Op, j.Units, j.Refused))
		}
	}))
	_, balances, err := e.env.Core.Ledger().AllBalances(ctx)
	steps.OK(err)
	for _, b := range balances {
		lines = append(lines, fmt.Sprintf("trading balance %d %d %d", b.UserID, b.AssetID, b.Units))
	}
	return lines
}

// snapshotDifferences reports the lines that one of the two snapshots has more often.
func snapshotDifferences(report reporter, before, after []string) {
	more := make(map[string]int) // in after
	for _, line := range after {
		more[line]++
	}
	for _, line := range before {
		more[line]--
	}
	for _, line := range slices.Sorted(maps.Keys(more)) {
		switch n := more[line]; {
		case n < 0:
			report(0, "", "was, and is no more: %s", line)
		case n > 0:
			report(0, "", "was not, and is: %s", line)
		}
	}
}
