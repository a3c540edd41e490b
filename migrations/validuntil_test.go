package migrations

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Migration 0053 can be applied and reverted with rows present, including rows that only it allows. It
// can be repeated after an interruption.
func TestValidUntilComesAndGoes(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	apply(t, databaseURL, files, len(embedded(t)))
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	do(t, conn, `insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by) values ('eip155:1:0x0000000000000000000000000000000000000ca0', 'local', 0, 1, '{sub:1}', 'test')`)
	do(t, conn, `insert into intent_mac_rule (required, by, reason) values (false, 'test', 'none here')`)
	do(t, conn, `
with put as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, valid_until, state, sub_state)
  select gen_random_uuid(), 'eip155:1:0x0000000000000000000000000000000000000ca0', r.state, 'sub:1', sha256('x'), now(), r.state, r.sub
    from (values ('QUEUED', null), ('FAILED', 'EXPIRED')) as r (state, sub)
  returning tx_id
)
insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from put`)
	provider, err := open(databaseURL, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	if _, err := provider.DownTo(t.Context(), 52); err != nil {
		t.Fatalf("down: %v", err)
	}
	do(t, conn, `update managed_tx set last_error = 'still there' where state = 'QUEUED'`)
	// The interruption came before the last index.
	do(t, conn, `alter table managed_tx add column valid_until timestamptz`)
	do(t, conn, `create index tx_deferred on managed_tx (submitter)`)
	if _, err := provider.UpTo(t.Context(), 53); err != nil {
		t.Fatalf("up again: %v", err)
	}
	if got := count(t, databaseURL, `select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
		where c.relname in ('tx_valid_until', 'tx_deferred', 'tx_queue_of_caller') and i.indisvalid and i.indnatts >= 2`); got != 3 {
		t.Errorf("indexes: got %d, want 3", got)
	}
	if got := count(t, databaseURL, `select count(*) from managed_tx where valid_until is null`); got != 2 {
		t.Errorf("rows: got %d, want both", got)
	}
}
