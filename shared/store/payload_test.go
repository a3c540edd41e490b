package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// An open transaction does not commit without its payload, whichever statement stores that. A
// row that is final at the commit needs none. An operator may archive the payload later.
func TestNoTransactionWithoutAPayload(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	const payload = `insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from managed_tx where request_id = 'r'`
	commit := func(statements ...string) error {
		return pgx.BeginFunc(t.Context(), db.DB, func(tx pgx.Tx) error {
			for _, s := range statements {
				if _, err := tx.Exec(t.Context(), s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	row := func(request, state string) string {
		return `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state, nonce, prev_nonce)
			values (gen_random_uuid(), '` + string(alice) + `', '` + request + `', 'shop', sha256(''), ` + state + `)`
	}
	for _, state := range []string{`'QUEUED', null, null, null`, `'IN_FLIGHT', null, 0, null`} {
		if err := commit(row("r", state)); violated(err) != "transactions_have_payloads" {
			t.Errorf("%s without a payload: got %v, want it refused by transactions_have_payloads", state, err)
		}
	}
	if err := commit(row("r", `'QUEUED', null, null, null`), payload); err != nil {
		t.Errorf("with its payload in a later statement: got %v, want it stored", err)
	}
	if err := commit(row("lost", `'FAILED', 'DISPLACED', 0, null`)); err != nil {
		t.Errorf("a nonce that was lost: got %v, want it stored", err)
	}
	ended := `update managed_tx set state = 'CONFIRMED', sub_state = 'RECORDED', recorded_nonce = 0, event_sequence = 1 where request_id = 'named'`
	if err := commit(row("named", `'QUEUED', null, null, null`), ended); err != nil {
		t.Errorf("a lost request that a release names: got %v, want it stored", err)
	}
	run(t, db, `do $$ declare part regclass; begin
		for part in select inhrelid::regclass from pg_inherits where inhparent = 'tx_document'::regclass loop
			execute format('alter table tx_document detach partition %s', part);
		end loop; end $$`)
	run(t, db, `update managed_tx set state = $2, sub_state = 'CANCELLED' where submitter = $1 and state = 'QUEUED'`, alice, txmanager.Failed)
}
