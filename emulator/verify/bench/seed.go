package main

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// seededSubmitters is the number of submitters with finished rows, beside the measured one.
const seededSubmitters = 100_000

// seed fills the database as after years of use. It adds n finished transactions of 100,000 submitters
// over two years, each with its version, history and documents. It also adds a tenth as many cancelled
// ones of the measured submitter.
func (h *environment) seed(ctx context.Context, n int) {
	if n == 0 {
		return
	}
	h.bench.log.Info("seeding", "finished", n)
	for _, statement := range []string{
		seedQuarters,
		"set session_replication_role = replica", // no triggers and foreign keys: the rows are consistent
		fmt.Sprintf(seedSubmitters, seededSubmitters),
		fmt.Sprintf(seedLeases, seededSubmitters),
		fmt.Sprintf(seedCursors, n/seededSubmitters+1, seededSubmitters),
		fmt.Sprintf(seedFinal, seededSubmitters, n, n),
		seedVersions,
		seedDocuments,
		seedHistory,
		fmt.Sprintf(seedCancelled, h.Submitters()[0], n/10),
		"set session_replication_role = origin",
		"vacuum analyze",
	} {
		if _, err := h.db.Exec(ctx, statement); err != nil {
			steps.Stopf("seed: %w: %.80s", err, statement)
		}
	}
}

const (
	seedQuarters = `
select make_quarter(whole, quarter::date)
  from unnest(array['tx_document', 'tx_history']) as whole,
       generate_series(date_trunc('quarter', clock_timestamp() at time zone 'UTC') - interval '2 years', clock_timestamp() at time zone 'UTC', interval '3 months') as quarter`

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

	// The txId contains its time, as a UUIDv7 does.
	seedFinal = `
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, tx_hash, state,
  first_submit_at, last_submit_at, submit_attempts, receipt, confirmations, confirmed_at, fencing_token, created_at, updated_at)
select overlay(tx_id_at(at)::text placing right(md5(i::text), 12) from 25)::uuid, 'eip155:1337:0x' || lpad(to_hex(i %% s), 40, '0'), 'old-' || i, 'shop@fencepost.example',
       sha256(i::text::bytea), i / s, nullif(i / s - 1, -1), '0x' || md5(i::text) || md5((-i)::text), 'CONFIRMED', at, at, 1,
       jsonb_build_object('txHash', '0x' || md5(i::text) || md5((-i)::text), 'blockNumber', i / 1000,
         'blockHash', '0x' || md5(i::text) || md5(i::text), 'succeeded', true),
       '[]', at, 10, at, at
  from (select i, %d as s, clock_timestamp() - interval '2 years' * (1 - i / %d::float8) as at from generate_series(0, %d - 1) as i) as old`

	seedVersions = `
insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token)
select tx_hash, tx_id, submitter, nonce, 1, 'ORIGINAL', 10 from managed_tx where request_id like 'old-%'`

	seedDocuments = `
insert into tx_document (tx_id, name, body, bytes)
select m.tx_id, d.name, d.body::json, d.bytes
  from managed_tx m,
       lateral (values
         ('payload', '{"to": "0x000000000000000000000000000000000000cafe", "value": "1", "gas": "21000"}', null),
         ('version:1', '{"gas": 21000, "value": "1", "maxFeePerGas": "3000000000", "maxPriorityFeePerGas": "1000000000"}', decode(repeat(md5(m.request_id), 7), 'hex')),
         ('receipt:' || (m.receipt ->> 'blockHash'), json_build_object('transactionHash', m.tx_hash, 'logs', '[]'::json, 'gasUsed', '0x5208', 'from', '0x' || repeat('0', 40), 'to', '0x' || repeat('0', 40))::text, null)
       ) as d (name, body, bytes)
 where m.request_id like 'old-%'`

	seedHistory = `
insert into tx_history (tx_id, submitter, at, from_state, state, sub_state, nonce, tx_hash, attempts, fencing_token)
select m.tx_id, m.submitter, m.created_at, step.was, step.state, step.sub, m.nonce, m.tx_hash, 1, 10
  from managed_tx m,
       (values (null, 'QUEUED', null), ('QUEUED', 'SUBMITTED', null), ('SUBMITTED', 'TRACKING', 'PENDING'), ('TRACKING', 'CONFIRMED', null)) as step (was, state, sub)
 where m.request_id like 'old-%'`

	seedCancelled = `
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state)
select gen_random_uuid(), '%s', 'gone-' || i, 'shop@fencepost.example', sha256(i::text::bytea), 'FAILED', 'CANCELLED'
  from generate_series(1, %d) as i`
)
