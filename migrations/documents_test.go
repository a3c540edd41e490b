package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// until returns the embedded files up to the number.
func until(t *testing.T, number string) fstest.MapFS {
	t.Helper()
	first := fstest.MapFS{}
	for _, name := range embedded(t) {
		if text, err := fs.ReadFile(files, name); err != nil {
			t.Fatal(err)
		} else if name[:4] <= number {
			first[name] = &fstest.MapFile{Data: text}
		}
	}
	return first
}

// old contains rows from before the table of documents. They are of three quarters: one confirmed by its second
// version, one tracked, one in flight without bytes, one queued, one cancelled in the queue, and one
// lost.
const old = `
insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by)
values ('eip155:1:0x00000000000000000000000000000000000000a1', 'local', 0, 9, '{*}', 'test');
insert into submitter_nonce_cursor (submitter, next_nonce) values ('eip155:1:0x00000000000000000000000000000000000000a1', 4);
insert into managed_tx (tx_id, submitter, request_id, caller, payload, fingerprint, nonce, prev_nonce, raw_tx_hex, tx_hash, state, sub_state,
  first_submit_at, last_submit_at, last_gas_params, receipt, confirmations, confirmed_at, created_at, updated_at)
select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000800000000000000' || n)::uuid, submitter, 'r' || n, 'shop',
       jsonb_build_object('to', '0x' || repeat('0', 40), 'value', n::text), sha256(n::text::bytea), nonce, nullif(nonce, 0) - 1,
       '0x' || repeat('0' || hash, 40), '0x' || repeat(hash, 64), state, sub_state, signed_at, signed_at,
       case when nonce is not null and state <> 'FAILED' then jsonb_build_object('gas', 21000 + n) end, receipt, confirmations, case when receipt is not null and state = 'CONFIRMED' then at end, at, at
  from submitter, (values
    (1, timestamptz '2026-01-31', 0,    '2',  'CONFIRMED', null,        timestamptz '2026-01-31',
      jsonb_build_object('txHash', '0x' || repeat('2', 64), 'blockHash', '0x' || repeat('b', 64), 'blockNumber', 7, 'succeeded', true, 'document', '{"logs": []}'::jsonb), '[]'::jsonb),
    (2, timestamptz '2026-04-01', 1,    '3',  'TRACKING',  'PENDING',   '2026-04-01', null, null),
    (3, timestamptz '2026-06-30', 2,    null, 'IN_FLIGHT', null,        null, null, null),
    (4, timestamptz '2026-07-01', null, null, 'QUEUED',    null,        null, null, null),
    (5, timestamptz '2026-07-02', null, null, 'FAILED',    'CANCELLED', null, null, null),
    (6, timestamptz '2026-07-03', 3,    null, 'FAILED',    'DISPLACED', null, null, null)
  ) as r (n, at, nonce, hash, state, sub_state, signed_at, receipt, confirmations)
 order by n;
insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, raw_tx_hex, gas_params, fencing_token)
select '0x' || repeat(hash, 64), tx_id, submitter, nonce, version, kind, '0x' || repeat('0' || hash, 40), jsonb_build_object('gas', gas), 1
  from managed_tx join (values ('r1', '1', 1, 'ORIGINAL', 1), ('r1', '2', 2, 'BUMP', 21001), ('r2', '3', 1, 'ORIGINAL', 21002)) as v (request_id, hash, version, kind, gas) using (request_id)`

// Documents move out of existing rows to the partitions of their quarters, and back. No row loses data
// either way.
func TestDocumentsMoveOutAndBack(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	apply(t, databaseURL, until(t, "0012"), 12)
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	before := rowsOf(t, conn, "managed_tx", "tx_version", "tx_history")
	if len(before) != 6+3+6 {
		t.Fatalf("rows: got %d, want 15: a mistake of the test", len(before))
	}

	apply(t, databaseURL, files, len(embedded(t))-12)
	wantDocuments := []string{
		"r1 payload tx_document_2026q1", "r1 receipt:0x" + strings.Repeat("b", 64) + " tx_document_2026q1", "r1 version:1 tx_document_2026q1", "r1 version:2 tx_document_2026q1",
		"r2 payload tx_document_2026q2", "r2 version:1 tx_document_2026q2", "r3 payload tx_document_2026q2",
		"r4 payload tx_document_2026q3", "r5 payload tx_document_2026q3", "r6 payload tx_document_2026q3",
	}
	got := texts(t, conn, `select m.request_id || ' ' || d.name || ' ' || d.tableoid::regclass from tx_document d join managed_tx m using (tx_id) order by 1`)
	if diff := cmp.Diff(wantDocuments, got); diff != "" {
		t.Errorf("documents and where they lie (-want +got):\n%s", diff)
	}
	wantHistory := []string{"tx_history_2026q1 1", "tx_history_2026q2 2", "tx_history_2026q3 3"}
	if diff := cmp.Diff(wantHistory, texts(t, conn, `select tableoid::regclass || ' ' || count(*) from tx_history group by tableoid order by 1`)); diff != "" {
		t.Errorf("history by partition (-want +got):\n%s", diff)
	}
	if n := count(t, databaseURL, `select count(*) from managed_tx where receipt ? 'document' or (last_gas_params is null) <> (nonce is null or state in ('CONFIRMED', 'FAILED'))`); n != 0 {
		t.Errorf("rows with a receipt's document, or gas that is not theirs: got %d, want none", n)
	}
	provider, err := open(databaseURL, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	if _, err := provider.DownTo(t.Context(), 12); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, rowsOf(t, conn, "managed_tx", "tx_version", "tx_history")); diff != "" {
		t.Errorf("rows out and back (-before +after):\n%s", diff)
	}
	apply(t, databaseURL, files, len(embedded(t))-12)
	if _, err := conn.Exec(t.Context(), `update managed_tx set last_error = 'later' where request_id = 'r4'`); err != nil {
		t.Fatalf("history after the move: %v", err)
	}
	if n := count(t, databaseURL, `select count(*) from tx_history where reason = 'later' and id > (select max(id) from tx_history where reason is null)`); n != 1 {
		t.Errorf("a change after the move: got %d rows of history with the highest id, want 1", n)
	}
}

// rowsOf returns every row of the tables as text, with the table's name.
func rowsOf(t *testing.T, conn *pgx.Conn, tables ...string) (all []string) {
	t.Helper()
	for _, table := range tables {
		all = append(all, texts(t, conn, `select '`+table+` ' || to_jsonb(r)::text from `+table+` r order by 1`)...)
	}
	return all
}

// texts returns the result of a query of one column.
func texts(t *testing.T, conn *pgx.Conn, query string, arguments ...any) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}

// Documents that another process commits during the move are moved too. No write can happen between
// the copy and the removal of the columns.
func TestWhatIsWrittenMeanwhileIsMovedToo(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	apply(t, databaseURL, until(t, "0012"), 12)
	conn, writer := dial(t, databaseURL), dial(t, databaseURL)
	do(t, conn, old)
	do(t, writer, `begin`)
	do(t, writer, `insert into managed_tx (tx_id, submitter, request_id, caller, payload, fingerprint)
		select gen_random_uuid(), submitter, 'meanwhile', 'shop', '{"value": "7"}', sha256('7') from submitter`)
	applied := make(chan error, 1)
	go func() {
		_, err := up(t.Context(), databaseURL, slog.New(slog.DiscardHandler), until(t, "0013"))
		applied <- err
	}()
	for waiting := false; !waiting; {
		waiting = texts(t, conn, `select (count(*) > 0)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)[0] == "true"
	}
	do(t, writer, `commit`)
	if err := <-applied; err != nil {
		t.Fatalf("migrate: %v", err)
	}
	got := texts(t, conn, `select m.request_id from managed_tx m where not exists (select from tx_document d where d.tx_id = m.tx_id and d.name = 'payload')`)
	if len(got) > 0 {
		t.Errorf("without their payload: got %v, want none", got)
	}
}

// A role keeps the rights that it needs.
func TestGrantsAreCopied(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	apply(t, databaseURL, until(t, "0012"), 12)
	conn := dial(t, databaseURL)
	role := fmt.Sprintf("worker_%d", time.Now().UnixNano())
	do(t, conn, fmt.Sprintf(`create role %[1]s; grant select, insert, update on all tables in schema public to %[1]s`, role))
	defer do(t, conn, fmt.Sprintf(`drop owned by %[1]s; drop role %[1]s`, role))
	apply(t, databaseURL, files, len(embedded(t))-12)
	do(t, conn, `set role `+role)
	do(t, conn, `insert into tx_document (tx_id, name, body) values (gen_random_uuid(), 'payload', '{}')`)
	do(t, conn, `insert into tx_history (tx_id, submitter, at, state, attempts) values (gen_random_uuid(), 'eip155:1:0x00000000000000000000000000000000000000a1', now(), 'QUEUED', 0)`)
	if _, err := conn.Exec(t.Context(), `update tx_document set body = '[]'`); err == nil {
		t.Error("documents: got an update allowed, want it refused")
	}
	do(t, conn, `reset role`)
}

func dial(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func do(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
