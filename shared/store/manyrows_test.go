package store_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// manyRows are 250,000 rows of one submitter and two callers. The oldest 99 are STUCK, then come 199,901
// that are CONFIRMED, and the newest 50,000 are FAILED. Statements have the same plans as beside a million rows, and
// to read all rows of a state would be thousands of blocks in either case.
const manyRows = `
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, tx_hash, state, sub_state, receipt, confirmations, confirmed_at, wait_cause, waiting_since)
select overlay(tx_id_at(now() + i * interval '1 ms')::text placing right(md5(i::text), 12) from 25)::uuid, $1, 'old-' || i, case when i % 3 = 0 then 'shop' else 'bank' end,
       sha256('x'), case when i <= 200000 then i - 1 end, case when i between 2 and 200000 then i - 2 end,
       case when i <= 200000 then '0x' || md5(i::text) || md5((-i)::text) end,
       case when i < 100 then 'STUCK' when i <= 200000 then 'CONFIRMED' else 'FAILED' end, case when i > 200000 then 'CANCELLED' end,
       case when i between 100 and 200000 then jsonb '{}' end, case when i between 100 and 200000 then jsonb '[]' end,
       case when i between 100 and 200000 then now() end, case when i < 100 then 'OPERATOR' end, case when i < 100 then now() end
  from generate_series(1, 250000) as i`

// The first page of each state is full where there are as many rows, and one statement reads it from few
// blocks, wherever most rows have the state.
func TestListsOfManyRowsReadFewBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it inserts 250,000 rows")
	}
	t.Parallel()
	db := storetest.NewClone(t)
	db.Register(t, alice, 100)
	conn := db.Connect(t)
	rebuilt := value[string](t, db, `select pg_get_indexdef('tx_of_caller'::regclass)`)
	// The lists do not use the constraints, and an index of all rows is made faster at once than row by row.
	for _, statement := range append(value[[]string](t, db, `select array_agg(format('alter table managed_tx drop constraint %I cascade', conname)) from pg_constraint where conrelid = 'managed_tx'::regclass and contype in ('c', 'f', 'u')`),
		`drop index tx_of_caller`, `alter table managed_tx set (fillfactor = 100, autovacuum_enabled = false)`, `set session_replication_role = replica`) {
		check.OK(t)(conn.Exec(t.Context(), statement))
	}
	check.OK(t)(conn.Exec(t.Context(), manyRows, alice))
	check.OK(t)(conn.Exec(t.Context(), rebuilt))
	check.OK(t)(conn.Exec(t.Context(), `analyze managed_tx`))

	const size, most = 50, 400 // blocks
	if whole := value[int](t, db, `select pg_relation_size('managed_tx')::int / 8192`); whole < 10*most {
		t.Fatalf("managed_tx: got %d blocks, want many more than a statement may read, %d", whole, most)
	}
	within := func(name string, args ...any) {
		t.Helper()
		got := storetest.Blocks(t, conn, store.HotStatements[name], args...)
		if t.Logf("%s: %d blocks", name, got); got > most {
			t.Errorf("%s, %v: read %d blocks, want %d at most", name, args, got, most)
		}
	}
	// Acts of operators, fifty thousand of one source.
	check.OK(t)(conn.Exec(t.Context(), `insert into submitter_change (submitter, action, by, reason, at)
		select $1, 'SUSPEND', 'ann', 'r', '2026-01-01'::timestamptz + n * interval '1 s' from generate_series(1, 50000) n`, alice))
	check.OK(t)(conn.Exec(t.Context(), `analyze submitter_change`))
	for name, statement := range store.ActStatements() {
		got := storetest.Blocks(t, conn, statement, time.Now().AddDate(10, 0, 0), 0, time.Time{}, "", "", "", size+1)
		if t.Logf("%s: %d blocks", name, got); got > most {
			t.Errorf("%s: read %d blocks, want %d at most", name, got, most)
		}
	}
	middle := value[time.Time](t, db, `select created_at - interval '1 hour' from managed_tx limit 1`)
	within("findNewest", nil, nil, size+1)
	within("findNewest", nil, middle, size+1)
	within("findClass", nil, nil, size+1, 5)
	within("findClass", nil, nil, size+1, 2)
	within("findCause", nil, "OPERATOR", size+1)
	within("findCauseOf", nil, middle, size+1, "OPERATOR", alice)
	within("findCallers", alice, nil, store.ClassesOf(""), "", size+1, "bank", middle)
	within("findCallers", alice, nil, store.ClassesOf(txmanager.Confirmed), "CONFIRMED", size+1, "", middle.Add(24*time.Hour))
	within("laneNonces", alice, 100_000, size)
	within("laneNonces", alice, nil, size)
	within("queuePage", alice, false, 0, size)
	attention := db.AttentionArgs(store.AttentionLimits{Transfers: transfer.DefaultRules()})
	attention["rank"], attention["since"], attention["key"], attention["size"] = 0, time.Time{}, "", size+1
	within("attentionPage", attention)
	delete(attention, "rank")
	delete(attention, "since")
	delete(attention, "key")
	delete(attention, "size")
	within("attentionCounts", attention)
	// Further statements of the console's pages. Those that need a unique constraint have golden plans.
	tx := value[string](t, db, `select tx_id::text from managed_tx where submitter = $1 and nonce = 100000`, alice)
	within("viewSubmitter", alice)
	within("stateCounts")
	within("oldestTx")
	within("lastMinutes")
	within("blockedHeads", false)
	within("findHash", "0x"+strings.Repeat("ab", 32))
	within("record", tx, []string{"shop"}, true)
	within("txOrder", tx, 1000)
	within("explainWait", tx, []string{"shop"}, true, false)
	within("txHistory", tx, 0, size+1)
	within("txVersions", tx, 0, size+1)
	within("txDecisions", tx, 0, size+1)
	within("listChanges", alice, int64(math.MaxInt64), size+1)
	for state, want := range map[txmanager.State]int{"": size, txmanager.Confirmed: size, txmanager.Failed: size, txmanager.Stuck: 33, txmanager.Protect: 0, txmanager.Queued: 0, txmanager.InFlight: 0} {
		for _, v := range []store.Viewer{shop, operator} {
			if v.Operator {
				want = min(3*want, size)
			}
			page, next, err := db.List(t.Context(), store.ListQuery{Submitter: alice, State: state, Size: size}, v)
			if err != nil || len(page) != want || (next != "") != (want == size) {
				t.Errorf("%q, operator %t: got %d rows, next %q, %v; want %d", state, v.Operator, len(page), next, err, want)
			}
		}
		classes := store.ClassesOf(state)
		for name, last := range map[string][]any{"listOwn": {[]string{"shop"}}, "listAll": {"", nil}} {
			args := append([]any{alice, nil, classes, string(state), size + 1}, last...)
			within(name, args...)
		}
	}

}
