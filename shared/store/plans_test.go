package store_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var update = flag.Bool("update", false, "write the plans of the hot statements to testdata/plans")

// Beside many finished transactions every hot statement finds its rows by an
// index, with the plan that it has once Postgres plans it no more for each call.
// The plans are kept in testdata/plans; -update writes them anew.
func TestPlansOfHotStatements(t *testing.T) {
	t.Parallel()
	db, _ := ownCluster(t) // vacuum keeps old rows that a session of another database may see, and they change plans
	grow(t, db)
	conn := check.Value(db.Raw(t.Context()))(t)
	defer conn.Release()
	for name, statement := range store.HotStatements {
		plan := storetest.Explain(t, conn, name, statement)
		if line := wholeTable.FindString(plan); line != "" {
			t.Errorf("%s: got %q, want an index:\n%s", name, strings.TrimSpace(line), plan)
		}
		storetest.ShowPlan(t, conn, name, plan, *update)
	}
}

// Plans that were made when there was nothing in the database, and may be in use
// until it is analysed, read no table whole either, and find transactions by id.
func TestPlansOfAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.NewClone(t)
	conn := check.Value(db.Raw(t.Context()))(t)
	defer conn.Release()
	for name, want := range map[string]string{
		"findIntents": `Index Cond: .*request_id`, "recordByRequest": `Index Cond: .*request_id`,
		"applyTransitions": `Index Cond: \(tx_id = w.tx_id\)`, "allocateTxs": `(?s)Index Cond: \(tx_id = w.tx_id\).*Index Cond: \(tx_id = n.tx_id\)`,
		"insertPayloads": `Index Cond: \(tx_id = i.tx_id\)`, "loadUnsettled": `using tx_open on managed_tx m\n`, "loadQueue": `(?s)using tx_deferred on managed_tx m_1\n.*using tx_queue on managed_tx q\n.*using tx_queue_of_caller on managed_tx q_1\n[^\n]*seq < .*using tx_valid_until on managed_tx x\n`,
	} {
		plan := storetest.Explain(t, conn, name, store.HotStatements[name])
		if line := wholeTable.FindString(plan); line != "" || !regexp.MustCompile(want).MatchString(plan) {
			t.Errorf("%s: got another plan than one with %s:\n%s", name, want, plan)
		}
	}
}

// wholeTable is a scan of all rows of a table that grows.
var wholeTable = regexp.MustCompile(`Seq Scan on (managed_tx|tx_version|tx_(history|document)(_\w+)?|submitter)[ \n].*`)

// grow inserts 50,000 terminal transactions: half of one submitter, numbered(0), the rest of
// 25,000 others. It adds the queue and the open transactions of a few more, and analyzes the
// tables.
func grow(t testing.TB, db storetest.Bundle) {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), db.URL))(t)
	defer conn.Close(context.Background())
	for _, statement := range []string{keepStatistics, `set session_replication_role = replica`, manyFinished, `set session_replication_role = origin`, `set default_statistics_target = 1000`} {
		check.OK(t)(conn.Exec(t.Context(), statement))
	}
	for i := range 3 {
		sub := numbered(1_000_000 + i)
		db.Register(t, sub, 100)
		postMany(t, db, sub, 40)
		w := take(t, db, sub, "a/1")
		write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:20], LeaseEnd: txmanager.ReleaseUnlessRerun})
	}
	// Rewritten, since the pages that the inserts and updates need are not always as many, and they change plans.
	check.OK(t)(conn.Exec(t.Context(), `vacuum full managed_tx, tx_version, submitter, submitter_lease, submitter_nonce_cursor`))
	check.OK(t)(conn.Exec(t.Context(), `vacuum analyze`))
}

// grown returns a database that no other test uses, after grow.
func grown(t testing.TB) storetest.Bundle {
	t.Helper()
	return storetest.NewCopy(t, "grown", func(db storetest.Bundle) { grow(t, db) })
}

// keepStatistics stops autovacuum, which would replace the statistics by those of a random sample, and so some plans.
const keepStatistics = `
do $$ declare t regclass; begin
  for t in select oid from pg_class where relkind = 'r' and relnamespace = current_schema::regnamespace loop
    execute format('alter table %s set (autovacuum_enabled = false)', t);
  end loop;
end $$`

const manyFinished = `
insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by)
select 'eip155:1337:0x' || lpad(to_hex(i), 40, '0'), 'local', 0, 1, '{*,shop}', 'test' from generate_series(0, 24999) as i;
insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at)
select submitter, '', 9, now(), now() from submitter;
insert into submitter_nonce_cursor (submitter, next_nonce)
select submitter, case submitter when 'eip155:1337:0x' || repeat('0', 40) then 25001 else 1 end from submitter;
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, tx_hash, state,
  first_submit_at, last_submit_at, submit_attempts, receipt, confirmations, confirmed_at, fencing_token)
select overlay(tx_id_at(now() + i * interval '1 ms')::text placing right(md5(i::text), 12) from 25)::uuid, 'eip155:1337:0x' || lpad(to_hex(greatest(i - 25000, 0)), 40, '0'),
       'old-' || i, 'shop', sha256(i::text::bytea), n, nullif(n, 0) - 1, '0x' || md5(i::text) || md5((-i)::text), 'CONFIRMED', now(), now(), 1,
       jsonb_build_object('txHash', '0x' || md5(i::text) || md5((-i)::text), 'blockNumber', i / 100, 'blockHash', '0x' || md5((i / 100)::text) || md5((i / 100)::text), 'succeeded', true),
       '[]', now(), 9
  from (select i, case when i <= 25000 then i else 0 end as n from generate_series(0, 49999) as i) as old;
insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token)
select tx_hash, tx_id, submitter, nonce, 1, 'ORIGINAL', 9 from managed_tx;
insert into tx_document (tx_id, name, body, bytes)
select tx_id, name, '{}', case when name = 'version:1' then '\x00'::bytea end from managed_tx, unnest(array['payload', 'version:1']) as name;
insert into tx_history (tx_id, submitter, at, state, attempts)
select tx_id, submitter, now(), step, 1 from managed_tx, unnest(array['QUEUED', 'SUBMITTED', 'CONFIRMED']) as step;` + endedProposals

// endedProposals inserts 50,000 proposals that were rejected.
const endedProposals = `
insert into proposal (kind, act, subject, method, path, body, effect, observed_state, observed_state_hash, epoch, digest, proposed_by, proposer_names, reason, expires_at, status, closed_by, close_reason, closed_at)
select 'policy', 'policy', '{}', 'PUT', '/', '{}', 'e', '{}', sha256('x'), 'e', sha256(n::text::bytea), 'sub:ann', '{sub:ann}', 'r', now(), 'REJECTED', 'sub:ben', 'r', now()
  from generate_series(1, 50000) n`

// A transaction that moves while it holds its nonce writes no index: the new row
// stands beside the old one, where its page has room. Half of each page is kept
// free; a receipt makes the row nearly twice as long, so that it needs more.
func TestMovesAreInPlace(t *testing.T) {
	t.Parallel()
	const n = 1000
	db, _ := ownCluster(t) // what runs in other databases keeps old rows alive
	db.Register(t, alice, n)
	for half := range slices.Chunk(intents(alice, "", n), n/2) {
		check.OK(t)(db.CreateAll(t.Context(), half, 2*n))
	}
	sendAll(t, db, alice)
	db.Store.Close()
	storetest.Await(t, "the allocation is in the statistics", func() bool { return updates(t, db, "n_tup_upd") == n })
	for _, step := range []struct {
		sub   txmanager.SubState
		least int // of 1,000
		move  func(*txmanager.Tx)
	}{
		{txmanager.Pending, 800, func(*txmanager.Tx) {}},
		{txmanager.Included, 400, func(x *txmanager.Tx) {
			x.Receipt = &txmanager.Receipt{TxHash: x.Hash(), BlockNumber: 7, Succeeded: true, Document: []byte(`{"logs": []}`)}
			x.Confirmations = []txmanager.Header{{Number: 7}}
		}},
		{txmanager.Included, 700, func(x *txmanager.Tx) { x.Confirmations = []txmanager.Header{{Number: 7}, {Number: 8}} }},
	} {
		all, before := updates(t, db, "n_tup_upd"), updates(t, db, "n_tup_hot_upd")
		moveAllApart(t, db, alice, func(x *txmanager.Tx) {
			x.State, x.Sub = txmanager.Tracking, step.sub
			step.move(x)
		})
		storetest.Await(t, "the moves are in the statistics", func() bool { return updates(t, db, "n_tup_upd") == all+n })
		if got := updates(t, db, "n_tup_hot_upd") - before; got < step.least {
			t.Errorf("moves to TRACKING/%s in place: got %d of %d, want %d at least", step.sub, got, n, step.least)
		}
	}
}

// updates is a count of updates of managed_tx that Postgres keeps.
func updates(t *testing.T, db storetest.Bundle, column string) int {
	t.Helper()
	return value[int](t, db, `select `+column+` from pg_stat_user_tables where relname = 'managed_tx'`)
}

// Each act of a lease session, and a create, is one round trip once its statements are
// prepared. Both the meter and the wire show it.
func TestActsAreOneRoundTripEach(t *testing.T) {
	t.Parallel()
	db := registered(t, 1000, alice)
	var waits atomic.Int64
	s := reopened(t, db, func(o *store.Options) {
		o.MaxConns, o.Dial = 1, func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &counted{Conn: conn, waits: &waits}, err
		}
	}).Store
	var w txmanager.SubmitterState
	acts := []struct {
		name string
		do   func(context.Context) error
		want telemetry.Cost
	}{
		{"create", func(ctx context.Context) error {
			_, err := s.Create(ctx, intent(alice, rowsSoFar(t, db)), 1000)
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 3, Commits: 1}},
		{"take", func(ctx context.Context) error {
			taken, err := s.Acquire(ctx, alice, "a/1", true)
			w = taken.State
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 4, Commits: 1}},
		{"renew", func(ctx context.Context) (err error) {
			w.Lease, err = s.Renew(ctx, w.Lease)
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 1, Commits: 1}},
		{"go round again", func(ctx context.Context) (err error) {
			w, err = s.BeginIteration(ctx, w.Lease, true)
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 4, Commits: 1}},
		{"write", func(ctx context.Context) error {
			_, err := s.Commit(ctx, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), Transitions: []txmanager.Transition{remark(w.Queue[0], "")}, LeaseEnd: txmanager.ReleaseUnlessRerun})
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 6, Commits: 1}},
	}
	for _, warm := range []bool{false, true} {
		for _, act := range acts {
			before := waits.Load()
			ctx := telemetry.WithMeter(t.Context())
			if err := act.do(ctx); err != nil {
				t.Fatalf("%s: %v", act.name, err)
			}
			if !warm {
				continue
			}
			check.Same(t, fmt.Sprintf("%s: cost by the meter", act.name), telemetry.MeterFrom(ctx).Cost(), act.want)
			if got := waits.Load() - before; got != 1 {
				t.Errorf("%s: waited for the server %d times, want once", act.name, got)
			}
		}
	}
}

// rowsSoFar names each request anew.
func rowsSoFar(t *testing.T, db storetest.Bundle) string {
	return value[string](t, db, `select 'r' || count(*) from managed_tx`)
}

// counted counts the messages of a client after which it waits for the server: Sync and simple Query. A client sends
// whole messages, and the first has no type.
// Source: https://www.postgresql.org/docs/17/protocol-message-formats.html
type counted struct {
	net.Conn
	started bool
	waits   *atomic.Int64
}

func (c *counted) Write(sent []byte) (int, error) {
	for rest := sent; c.started && len(rest) > 0; rest = rest[1+binary.BigEndian.Uint32(rest[1:]):] {
		if rest[0] == 'S' || rest[0] == 'Q' {
			c.waits.Add(1)
		}
	}
	c.started = true
	return c.Conn.Write(sent)
}

var beyondEight = regexp.MustCompile(`\$(9|[1-9]\d)\b`)

// No statement numbers more than eight parameters. Farther ones can stand in a wrong order: name
// them, or make them from a list of columns.
func TestStatementsNumberFewParameters(t *testing.T) {
	t.Parallel()
	check.OK(t)(filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for n, line := range strings.Split(string(text), "\n") {
			if beyondEight.MatchString(line) {
				t.Errorf("%s:%d: the statement numbers more than eight parameters", path, n+1)
			}
		}
		return err
	}))
}

// A statement's parameters have the order of their first use, however often it runs. A missing
// value and a value without a parameter are refused, also after the statement ran.
func TestNamedArgs(t *testing.T) {
	t.Parallel()
	const sql = `select @b::text, '@text', @a::int, @b::text`
	for _, b := range []string{"first", "second"} {
		text, values, err := store.NamedArgs{"a": 1, "b": b}.RewriteQuery(t.Context(), nil, sql, nil)
		if want := `select $1::text, '@text', $2::int, $1::text`; text != want || !cmp.Equal(values, []any{b, 1}) || err != nil {
			t.Errorf("got %q, %v, %v; want %q with %s and 1", text, values, err, want, b)
		}
	}
	for name, args := range map[string]store.NamedArgs{
		"a missing value": {"b": ""}, "another name": {"b": "", "c": 1}, "one more": {"a": 1, "b": "", "c": 1},
	} {
		if text, _, err := args.RewriteQuery(t.Context(), nil, sql, nil); err == nil {
			t.Errorf("%s: got %q, want an error", name, text)
		}
	}
}
