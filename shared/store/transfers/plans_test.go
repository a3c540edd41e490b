package transfers_test

import (
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

var update = flag.Bool("update", false, "write the plans of the hot statements to testdata/plans")

// wholeTable matches a scan of all rows of a growing table, sequential or by an index without a
// condition.
var wholeTable = regexp.MustCompile(`Seq Scan on (transfers_tb|transfer_history|transfer_resolution|account_act|balances_tb)[ \n].*`)

// unkeyed matches an index scan of a growing table without a key.
var unkeyed = regexp.MustCompile(`Scan (Backward )?using \w+ on (transfers_tb|transfer_history|balances_tb)\b[^\n]*\n *(->|Filter|SubPlan|InitPlan)[^\n]*`)

// With 50,000 finished transfers each hot statement finds its rows by an index, with its generic plan,
// and also with plans that were made for empty tables. The plans are stored in testdata/plans; -update
// rewrites them.
func TestPlansOfHotStatements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := check.Value(b.Bundle.Pool().Acquire(t.Context()))(t)
	defer conn.Release()
	for _, finished := range []int{0, 50_000} {
		if finished > 0 {
			grow(t, b, finished)
		}
		for name, statement := range transfers.HotStatements {
			plan := storetest.Explain(t, conn, name, statement)
			if line := wholeTable.FindString(plan); line != "" {
				t.Errorf("%s beside %d: got %q, want an index:\n%s", name, finished, strings.TrimSpace(line), plan)
			}
			if join := regexp.MustCompile(`(Hash|Merge) .*Join`).FindString(plan); join != "" && strings.Contains(statement, "unnest(") {
				t.Errorf("%s beside %d: got a %s, want an index entry for each record:\n%s", name, finished, join, plan)
			}
			if scan := unkeyed.FindString(plan); scan != "" && strings.Contains(statement, "unnest(") {
				t.Errorf("%s beside %d: got %q, want an index entry for each record:\n%s", name, finished, scan, plan)
			}
			if want := regexp.MustCompile(`using one_transfer_per_cid on transfers_tb[^\n]*\n\s*Index Cond: \(\(user_id = (\$\d|i\.user_id)\) AND \(\(cid\)::text >= (\$\d|i\.cid)\)`); name == "findCreated" && !want.MatchString(plan) {
				t.Errorf("%s beside %d: got another index than the key's:\n%s", name, finished, plan)
			}
			if finished > 0 {
				storetest.ShowPlan(t, conn, name, plan, *update)
			}
		}
		conn.Conn().DeallocateAll(t.Context())
	}
	crowd(t, b, 20_000)
	const user = 7
	failed, committed, pending, soon := int16(transfer.Failed), int16(transfer.Committed), int16(transfer.TargetPending), time.Now().Add(time.Hour)
	of := func(user int64, state any, cut int) []any {
		return []any{pgx.NamedArgs{"after": "", "newest": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "created_before": soon, "own": true, "state": state, "user": user, "asset": "", "size": 51, "cut": cut}}
	}
	for name, args := range map[string][]any{
		"inList": of(user, nil, 51), "allWanted": of(0, nil, 51), "openWanted": of(0, nil, 51), "failedWanted": of(0, failed, 51), "userWanted": of(user, nil, 51), "endedWanted": of(user, committed, 51),
		"olderWanted": of(0, nil, 51), "usersOpenWanted": of(user, pending, 1000),
		"allLast": of(0, nil, 1000), "openLast": of(0, pending, 1000), "failedLast": of(0, failed, 1000), "userLast": of(user, nil, 1000), "endedLast": of(user, committed, 1000), "olderLast": of(0, nil, 1000), "usersOpenLast": of(user, pending, 1000), "dueActs": {50}, "countHalts": {}, "openHalts": {50},
	} {
		got := storetest.Blocks(t, conn, transfers.HotStatements[name], args...)
		if t.Logf("%s: %d blocks", name, got); got > mostBlocks {
			t.Errorf("%s beside 50,000: read %d blocks, want %d at most", name, got, mostBlocks)
		}
	}
}

// crowd adds open transfers and open deposits of other users, which are due. The lists of one user, and the statuses that
// are due, must not read them. It also adds halts that have ended.
func crowd(t *testing.T, b bench, n int) {
	t.Helper()
	b.RunUnguarded(t, "transfers_tb", `
		insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state)
		select '02' || lpad(n::text, 24, '0'), 100 + n, 1, 1, 6, 1, 1, 30 from generate_series(1, $1::integer) as n`, n)
	b.Run(t, `
		insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, next_at)
		select 'DEPOSIT', 'due-' || n, 'FUNDING', 100 + n, 1, 1, 'ann', 'r', clock_timestamp() - interval '1 min' from generate_series(1, $1::integer) as n`, n)
	b.Run(t, `insert into transfer_halt (scope, evidence, resumed_at, resumed_by, resume_reason) select 'all', '{}', clock_timestamp(), 'ann', 'r' from generate_series(1, $1::integer)`, n)
	check.OK(t)(b.DB.Exec(t.Context(), `vacuum analyze transfers_tb, account_act, transfer_halt`))
}

// mostBlocks is the number of blocks that a page of 50 may read. It reads its rows one by one, and finds where a window of
// 1,000 ends in the order of an index.
const mostBlocks = 700

// grow adds finished transfers, half of them of one user.
func grow(t *testing.T, b bench, n int) {
	t.Helper()
	b.RunUnguarded(t, "transfers_tb", `
		insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type, state, created_at)
		select '01' || lpad(n::text, 24, '0'), 'old-' || n, case when n % 2 = 0 then 7 else 100 + n end, 1, 1, 6, 1, 1, 40,
		       clock_timestamp() - interval '90 days' + n * interval '1 min'
		  from generate_series(1, $1::integer) as n`, n)
	b.Run(t, `insert into transfer_history (transfer_id, from_state, state, retry_count) select transfer_id, 30, 40, 0 from transfers_tb`)
	b.Run(t, `insert into balances_tb (user_id, asset_id, precision, available) select 100 + n, 1, 6, 1 from generate_series(1, $1::integer) as n`, n)
	b.Run(t, `
		insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, funding)
		select 'DEPOSIT', 'wire-' || n, 'FUNDING', 100 + n, 1, 1, 'ann', 'r', 'APPLIED' from generate_series(1, $1::integer) as n`, n)
	check.OK(t)(b.DB.Exec(t.Context(), `vacuum analyze transfers_tb, transfer_history, balances_tb, account_act`))
}

// A transfer's lifecycle reads as few rows if its user has 25,000 finished transfers as if it is the
// user's first.
func TestCostIsFlat(t *testing.T) {
	t.Parallel()
	const n, most = 50, 40 // index entries read for each transfer, by all statements together
	b := newBench(t)
	grow(t, b, 50_000)
	reads := func() int {
		return value[int](t, b, `select sum(idx_tup_read)::int from pg_stat_user_indexes where relname = 'transfers_tb'`)
	}
	before := reads()
	r := rigOf(t, benchOf(t, storetest.Bundle{Store: storetest.Open(t, storetest.Options(b.URL, storetest.Rules)), URL: b.URL, DB: b.DB}), nil)
	for range n {
		if got, err := r.Submit(t.Context(), request(request("").ReqID), terms); err != nil || got.State != transfer.Committed {
			t.Fatalf("submit: got %s, %v", got.State, err)
		}
	}
	r.due(t, 10, time.Time{})
	r.Bundle.Store.Close() // its sessions report their statistics when they end
	var got int
	storetest.Await(t, "the reads are in the statistics", func() bool { got = reads() - before; return got >= n })
	if got > n*most {
		t.Errorf("index entries read for %d transfers: got %d, want %d at most", n, got, n*most)
	}
}
