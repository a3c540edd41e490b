package transfers_test

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
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
			plan := explain(t, conn, name, statement)
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
				compareGolden(t, conn, name, plan)
			}
		}
		conn.Conn().DeallocateAll(t.Context())
	}
	crowd(t, b, 20_000)
	const user, none = 7, int64(math.MaxInt64)
	failed, committed, pending, soon := int16(transfer.Failed), int16(transfer.Committed), int16(transfer.TargetPending), time.Now().Add(time.Hour)
	of := pgx.NamedArgs{"before": none, "before_time": soon, "before_req": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "state": nil, "user": int64(0), "asset": "", "size": 51, "owner": int64(user), "ended": committed, "failed": failed, "cut": 51, "created_before": nil}
	for name, args := range map[string][]any{
		"listOf": {user, "", 51}, "listEnded": {user, "", 51, committed}, "listOpen": {user, "", 51, pending}, "allWanted": {of}, "openWanted": {of}, "failedWanted": {of}, "userWanted": {of}, "endedWanted": {of},
		"olderWanted": {of}, "usersOpenWanted": {of},
		"allLast": {of}, "openLast": {of}, "failedLast": {of}, "userLast": {of}, "endedLast": {of}, "olderLast": {of}, "usersOpenLast": {of}, "dueActs": {50},
	} {
		got := blocks(t, conn, transfers.HotStatements[name], args...)
		if t.Logf("%s: %d blocks", name, got); got > mostBlocks {
			t.Errorf("%s beside 50,000: read %d blocks, want %d at most", name, got, mostBlocks)
		}
	}
}

// crowd adds open transfers and open deposits of other users, which are due. The lists of one user, and the statuses that
// are due, must not read them.
func crowd(t *testing.T, b bench, n int) {
	t.Helper()
	b.run(t, `alter table transfers_tb disable trigger user`)
	b.run(t, `
		insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state)
		select '02' || lpad(n::text, 24, '0'), 100 + n, 1, 1, 6, 1, 1, 30 from generate_series(1, $1::integer) as n`, n)
	b.run(t, `alter table transfers_tb enable trigger user`)
	b.run(t, `
		insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, next_at)
		select 'DEPOSIT', 'due-' || n, 'FUNDING', 100 + n, 1, 1, 'ann', 'r', clock_timestamp() - interval '1 min' from generate_series(1, $1::integer) as n`, n)
	check.OK(t)(b.DB.Exec(t.Context(), `vacuum analyze transfers_tb, account_act`))
}

// mostBlocks is the number of blocks that a page of 50 may read. It reads its rows one by one, and finds where a window of
// 1,000 ends in the order of an index.
const mostBlocks = 700

// blocks returns the number of blocks that a statement reads.
func blocks(t *testing.T, conn *pgxpool.Conn, statement string, args ...any) int {
	t.Helper()
	var text string
	check.OK(t)(0, conn.QueryRow(t.Context(), `explain (analyze, buffers, timing off, format json) `+statement, args...).Scan(&text))
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	check.OK(t)(0, json.Unmarshal([]byte(text), &plan))
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// grow adds finished transfers, half of them of one user.
func grow(t *testing.T, b bench, n int) {
	t.Helper()
	b.run(t, `alter table transfers_tb disable trigger user`)
	b.run(t, `
		insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type, state, created_at)
		select '01' || lpad(n::text, 24, '0'), 'old-' || n, case when n % 2 = 0 then 7 else 100 + n end, 1, 1, 6, 1, 1, 40,
		       clock_timestamp() - interval '90 days' + n * interval '1 min'
		  from generate_series(1, $1::integer) as n`, n)
	b.run(t, `alter table transfers_tb enable trigger user`)
	b.run(t, `insert into transfer_history (transfer_id, from_state, state, retry_count) select transfer_id, 30, 40, 0 from transfers_tb`)
	b.run(t, `insert into balances_tb (user_id, asset_id, precision, available) select 100 + n, 1, 6, 1 from generate_series(1, $1::integer) as n`, n)
	b.run(t, `
		insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, funding)
		select 'DEPOSIT', 'wire-' || n, 'FUNDING', 100 + n, 1, 1, 'ann', 'r', 'APPLIED' from generate_series(1, $1::integer) as n`, n)
	check.OK(t)(b.DB.Exec(t.Context(), `vacuum analyze transfers_tb, transfer_history, balances_tb, account_act`))
}

// explain returns the generic plan of a statement.
func explain(t *testing.T, conn *pgxpool.Conn, name, statement string) string {
	t.Helper()
	statement, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), nil, statement, nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	hot := pgx.Identifier{"hot " + name}.Sanitize()
	if _, err := conn.Exec(t.Context(), `prepare `+hot+` as `+statement); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer func() { _, _ = conn.Exec(t.Context(), `deallocate `+hot) }()
	var parameters int
	if err := conn.QueryRow(t.Context(), `select cardinality(parameter_types) from pg_prepared_statements where name = $1`, "hot "+name).Scan(&parameters); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	nulls := strings.TrimSuffix(strings.Repeat("null, ", parameters), ", ")
	rows, err := conn.Query(t.Context(), `explain (costs off) execute `+hot+`(`+nulls+`)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.Join(lines, "\n") + "\n"
}

// compareGolden compares with the file, if the same version of Postgres made it, or writes it.
func compareGolden(t *testing.T, conn *pgxpool.Conn, name, plan string) {
	t.Helper()
	var version string
	check.OK(t)(conn.QueryRow(t.Context(), `select split_part(current_setting('server_version'), '.', 1)`).Scan(&version))
	file, got := filepath.Join("testdata", "plans", name+".txt"), "Postgres "+version+"\n\n"+plan
	if *update {
		check.OK(t)(os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want := check.Value(os.ReadFile(file))(t)
	if of, _, _ := strings.Cut(string(want), "\n"); !strings.HasPrefix(got, of+"\n") {
		t.Logf("%s is of %s: not compared", file, of)
		return
	}
	check.Same(t, file, got, string(want))
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
	r := rigOf(t, benchOf(t, storetest.Bundle{Store: openStore(t, b.URL), URL: b.URL, DB: b.DB}), nil, transfer.DefaultRules())
	for range n {
		if got, err := r.Submit(t.Context(), request(request("").ReqID), terms); err != nil || got.State != transfer.Committed {
			t.Fatalf("submit: got %s, %v", got.State, err)
		}
	}
	r.due(t, 10, time.Time{})
	r.Bundle.Store.Close() // its sessions report their statistics when they end
	var got int
	await(t, "the reads are in the statistics", func() bool { got = reads() - before; return got >= n })
	if got > n*most {
		t.Errorf("index entries read for %d transfers: got %d, want %d at most", n, got, n*most)
	}
}

// openStore returns a separate store, which its user closes.
func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	s := check.Value(store.Open(t.Context(), storetest.Options(url, storetest.Rules)))(t)
	return s
}
