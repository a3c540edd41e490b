package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// checkDuplicates repeats every call to either ledger three times, and every transfer's task
// once, and checks that nothing changes.
func (e *episode) checkDuplicates(ctx context.Context) ([]check, error) {
	c := check{Name: lateDuplicates, Promise: "every call ever made to a ledger, made three times more, is answered as before and changes nothing; so is every task"}
	before, err := e.moneySnapshot(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	report := func(userID int64, reqID, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		c.Violations = append(c.Violations, violation(c.Name, userID, reqID, format, args...))
	}
	for range 3 {
		e.replayCore(ctx, report)
		if err := e.replayFunding(ctx, report); err != nil {
			return nil, err
		}
	}
	if err := e.replayTasks(ctx, report); err != nil {
		return nil, err
	}
	after, err := e.moneySnapshot(ctx)
	if err != nil {
		return nil, err
	}
	c.Violations = append(c.Violations, snapshotDifferences(before, after)...)
	return []check{c}, nil
}

type reporter func(userID int64, reqID, format string, args ...any)

func (e *episode) replayCore(ctx context.Context, report reporter) {
	core, answered := e.env.Core, make(map[string]bool)
	for _, c := range core.Proxy.Calls(nil) {
		answered[c.Path+c.Operation.ReqID] = answered[c.Path+c.Operation.ReqID] || c.Status == http.StatusOK
	}
	client.Each(core.Proxy.Calls(nil), func(c ubsproxy.Call) {
		if e.restores.transfers[c.Operation.ReqID] && !answered[c.Path+c.Operation.ReqID] {
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

// funded is one answer in Funding's journal.
type funded struct {
	ReqID   string
	Op      transfer.Op
	Refused transfer.Reason
	UserID  int64
	AssetID int32
	Units   uint64
}

func (e *episode) replayFunding(ctx context.Context, report reporter) error {
	rows, _ := e.db.Query(ctx, `
select o.req_id, o.op_type, coalesce(o.reason, ''), o.user_id, o.asset_id, o.units::bigint
  from transfer_operations o join transfers_tb using (req_id)`) // the collector has the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[funded])
	if err != nil {
		return fmt.Errorf("read Funding's journal: %w", err)
	}
	client.Each(all, func(f funded) {
		want := transfer.Outcome{Verdict: transfer.Success}
		if f.Refused != "" {
			want = transfer.Outcome{Verdict: transfer.Refused, Reason: f.Refused}
		}
		call := transfer.Call{ReqID: f.ReqID, UserID: f.UserID, AssetID: f.AssetID, Units: f.Units}
		if got := askLedger(ctx, e.env.Funding, f.Op, call); got != want {
			report(f.UserID, f.ReqID, "%s in Funding, made again: got %+v, want %+v", f.Op, got, want)
		}
	})
	return nil
}

func askLedger(ctx context.Context, l transfer.Ledger, op transfer.Op, c transfer.Call) transfer.Outcome {
	switch op {
	case transfer.Withdraw:
		return l.Withdraw(ctx, c)
	case transfer.Deposit:
		return l.Deposit(ctx, c)
	case transfer.Refund:
		return l.Refund(ctx, c)
	}
	return transfer.Outcome{Err: fmt.Errorf("no ledger does %q", op)}
}

func (e *episode) replayTasks(ctx context.Context, report reporter) error {
	rows, _ := e.db.Query(ctx, `select req_id from transfers_tb`) // the collector has the error
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	token, err := e.env.Issuer.Token(ctx, stack.TasksAccount, stack.InternalAudience)
	if err != nil {
		return err
	}
	client.Each(all, func(reqID string) {
		url := e.env.URLMap.InternalURL() + "/internal/transfer"
		status, text, err := stack.CallWith(ctx, token, http.MethodPost, url, map[string]string{"req_id": reqID})
		if err != nil || status != http.StatusNoContent {
			report(0, reqID, "its task, delivered again: got %d %s, %v; want 204", status, text, err)
		}
	})
	return nil
}

// moneySnapshot returns the stored state of all money as sorted lines.
func (e *episode) moneySnapshot(ctx context.Context) (lines []string, err error) {
	rows, _ := e.db.Query(ctx, `
select concat_ws(' ', 'funding', id, req_id, op_type, result, reason, user_id, asset_id, units) from transfer_operations
union all
select concat_ws(' ', 'row', req_id, state, error_message, retry_count, updated_at) from transfers_tb
union all
select concat_ws(' ', 'history', id, transfer_id, state) from transfer_history
union all
select concat_ws(' ', 'balance', user_id, asset_id, available, status) from balances_tb
union all
select concat_ws(' ', 'managed', tx_id, request_id, state, sub_state, nonce) from managed_tx`) // the collector has the error
	if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	err = money.EachLine(ctx, e.env.Core.Ledger(), 0, math.MaxUint64, func(j transfer.Entry) {
		if wire.Moves(j.Op) {
			lines = append(lines, fmt.Sprintf("trading %d %s %s %d %s", j.Seq, j.ReqID, j.Op, j.Units, j.Refused))
		}
	})
	if err != nil {
		return nil, err
	}
	_, balances, err := e.env.Core.Ledger().AllBalances(ctx)
	for _, b := range balances {
		lines = append(lines, fmt.Sprintf("trading balance %d %d %d", b.UserID, b.AssetID, b.Units))
	}
	slices.Sort(lines)
	return lines, err
}

// snapshotDifferences lists the lines that are in only one of the two sorted snapshots.
func snapshotDifferences(before, after []string) (found []checkers.Violation) {
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0] < after[0]:
			found = append(found, violation(lateDuplicates, 0, "", "was, and is no more: %s", before[0]))
			before = before[1:]
		case len(before) == 0 || before[0] > after[0]:
			found = append(found, violation(lateDuplicates, 0, "", "was not, and is: %s", after[0]))
			after = after[1:]
		default:
			before, after = before[1:], after[1:]
		}
	}
	return found
}
