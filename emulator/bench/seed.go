package main

import (
	"context"
	"fmt"
)

// seededSubmitters is how many submitters the finished rows are spread over,
// beside the one that is measured.
const seededSubmitters = 100_000

// seed fills the database with what a long life leaves behind: n finished
// transactions, each with its version and history, of 100,000 submitters, and
// besides a tenth as many cancelled ones of the measured submitter.
func (h *house) seed(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	h.bench.log.Info("seeding", "finished", n)
	for _, statement := range []string{
		"set session_replication_role = replica", // neither triggers nor foreign keys: the rows are whole as they are
		fmt.Sprintf(seedSubmitters, seededSubmitters),
		fmt.Sprintf(seedLeases, seededSubmitters),
		fmt.Sprintf(seedCursors, n/seededSubmitters+1, seededSubmitters),
		fmt.Sprintf(seedFinal, seededSubmitters, n),
		seedVersions,
		seedHistory,
		fmt.Sprintf(seedCancelled, n/10, pgQuote(string(h.Submitters()[0]))),
		"set session_replication_role = origin",
		"vacuum analyze",
	} {
		if _, err := h.db.Exec(ctx, statement); err != nil {
			return fmt.Errorf("seed: %w: %.80s", err, statement)
		}
	}
	return nil
}

func pgQuote(text string) string { return "'" + text + "'" } // of submitters: nothing to escape

const (
	seedSubmitters = `
insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by)
select 'eip155:1337:0x' || lpad(to_hex(i), 40, '0'), 'local', 0, 1, array['shop@fencepost.example'], 'seed'
  from generate_series(0, %d - 1) as i`

	seedLeases = `
insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at)
select 'eip155:1337:0x' || lpad(to_hex(i), 40, '0'), '', 10, '2025-01-01', '2025-01-01' from generate_series(0, %d - 1) as i`

	seedCursors = `
insert into submitter_nonce_cursor (submitter, next_nonce, fencing_token)
select 'eip155:1337:0x' || lpad(to_hex(i), 40, '0'), %d, 10 from generate_series(0, %d - 1) as i`

	seedFinal = `
insert into managed_tx (tx_id, submitter, request_id, caller, payload, fingerprint, nonce, prev_nonce, raw_tx_hex, tx_hash, state,
  first_submit_at, last_submit_at, submit_attempts, last_gas_params, receipt, confirmations, confirmed_at, fencing_token, created_at, updated_at)
select lpad(to_hex(i), 32, '0')::uuid, 'eip155:1337:0x' || lpad(to_hex(i %% s), 40, '0'), 'old-' || i, 'shop@fencepost.example',
       '{"to": "0x000000000000000000000000000000000000cafe", "value": "1", "gas": "21000"}', sha256(i::text::bytea), i / s,
       nullif(i / s - 1, -1), '0x' || repeat(md5(i::text), 7), '0x' || md5(i::text) || md5((-i)::text), 'CONFIRMED',
       at, at, 1, '{"gas": 21000, "value": 1, "maxFeePerGas": 3000000000, "maxPriorityFeePerGas": 1000000000}',
       jsonb_build_object('txHash', '0x' || md5(i::text) || md5((-i)::text), 'blockNumber', i / 1000, 'blockHash', '0x' || md5(i::text),
         'succeeded', true, 'document', jsonb_build_object('logs', '[]'::jsonb, 'logsBloom', '0x' || repeat('0', 512), 'gasUsed', '0x5208')),
       '[]', at, 10, at, at
  from (select i, %d as s, timestamptz '2025-01-01' + i * interval '1 s' as at from generate_series(0, %d - 1) as i) as old`

	seedVersions = `
insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, raw_tx_hex, gas_params, fencing_token)
select tx_hash, tx_id, submitter, nonce, 1, 'ORIGINAL', raw_tx_hex, last_gas_params, 10 from managed_tx where request_id like 'old-%'`

	seedHistory = `
insert into tx_history (tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, fencing_token)
select m.tx_id, m.submitter, m.created_at, step.was, step.state, step.sub, m.nonce, m.tx_hash, 1, 10
  from managed_tx m,
       (values (null, 'QUEUED', null), ('QUEUED', 'SUBMITTED', null), ('SUBMITTED', 'TRACKING', 'PENDING'), ('TRACKING', 'CONFIRMED', null)) as step (was, state, sub)
 where m.request_id like 'old-%'`

	seedCancelled = `
insert into managed_tx (tx_id, submitter, request_id, caller, payload, fingerprint, state, sub_state)
select gen_random_uuid(), s, 'gone-' || i, 'shop@fencepost.example', '{"to": "0x000000000000000000000000000000000000cafe", "value": "1"}',
       sha256(i::text::bytea), 'FAILED', 'CANCELLED'
  from generate_series(1, %d) as i, (values (%s)) as own (s)`
)
