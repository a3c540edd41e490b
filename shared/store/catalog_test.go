package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type (
	refusal = storetest.Refusal
	duty    = storetest.Duty
)

// The database itself refuses every forbidden write, by any role. No constraint may be in the schema
// of which no test shows what it refuses.
func TestEveryConstraintRefusesItsNonsense(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	all := storetest.Statements(nonsense)
	for constraint, refusals := range furtherNonsense {
		all[constraint] = append(all[constraint], refusals...)
	}
	db.ShowRefusals(t, plant(t, db), all, constraints)
}

// No trigger may be in the schema of which no test shows that it, and nothing
// else, refuses or records.
func TestEveryTriggerDoesItsDuty(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.ShowDuties(t, plant(t, db), guarded, []string{
		"record_new_txs", "record_txs", "make_first_events", // these record: see TestHistoryKeepsEveryChange and TestEventsOfALife
		"name_approval",                // this names: see TestApprovalsAreInTheChain
		"link_change", "link_decision", // these link: see TestAuditRowsAreLinked
		"release_policy_use", // it gives amounts back: see TestACancelGivesTheDayBack
	}, triggers)
}

// constraints and triggers are all that the schema has: keys, foreign keys and checks of
// tables and domains, unique indexes without a constraint, triggers. Postgres' internal ones,
// goose's table and those that partitions inherit are excluded.
const (
	// The tables of transfers, of their ledgers and of their monitor are shown by the
	// packages whose they are.
	ofTransfers = `(select oid from pg_class where relname ~ '^(assets_tb|transfers_tb|transfer_|balances_tb|payout_address|conservation_|account_act|asset_change|service_deposits)')`
	constraints = `
select conname::text from pg_constraint
 where connamespace = 'public'::regnamespace and contype in ('c', 'f', 'p', 'u', 'x') and conrelid not in ` + ofTransfers + `
   and conrelid <> 'goose_db_version'::regclass and conrelid not in (select inhrelid from pg_inherits)
 union
select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
 where c.relnamespace = 'public'::regnamespace and i.indisunique and c.oid not in ` + ofTransfers + `
   and not c.relispartition and not exists (select from pg_constraint k where k.conindid = i.indexrelid)`
	triggers = `
select tgname::text from pg_trigger t join pg_class c on c.oid = t.tgrelid
 where c.relnamespace = 'public'::regnamespace and not tgisinternal and c.oid not in ` + ofTransfers + `
   and tgname <> 'halt_restored_database'`
)

const (
	macsFrom       = `insert into intent_mac_rule (required, intents_upto, by, reason) values `
	carol          = `'eip155:1337:0x0000000000000000000000000000000000000ca0'`
	newSub         = `insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by) values `
	isRetired      = isCarol + `; update submitter set status = 'RETIRED' where submitter = ` + carol
	isCarol        = newSub + `(` + carol + `, 'local', 0, 1, '{*}', 'test')`
	newEp          = `insert into protect_incident (submitter, incident, evidence, closed_at, closed_by, mode, reason) values `
	newReservation = `insert into managed_tx (submitter, caller, fingerprint, tx_id, request_id, nonce, prev_nonce, state, sub_state, reservation, lock_owner, lock_until)
		values ($alice, 'hooks', ` + emptyPrint + `, gen_random_uuid(), `
	// Its payload is checked at once, so that a table with nothing pending can be altered.
	isReserved = newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'RESERVED', 'x', now());
		insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from managed_tx where request_id = '41';
		set constraints check_payload immediate; set constraints check_payload deferred`
	newScoped   = `insert into policy_use (submitter, scope, number, added, at, tx_id, intents, total) values `
	newBack     = `insert into policy_released_use (submitter, scope, minute, amount) values `
	newForeign  = `insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, value_wei, call_digest, succeeded, receipt, node) values `
	newReading  = `insert into foreign_reading (submitter, incident, start_block, block, final_block, passes, again) values `
	newHold     = `insert into foreign_hold (submitter, nonce, call_digest) values `
	newDec      = `insert into tx_decision (tx_id, action, by, reason) values `
	newPolicy   = `insert into submitter_policy (submitter, max_per_minute) values `
	newFee      = `insert into submitter_fee (submitter, number, added_wei, at, tx_id, total_wei) values `
	newUse      = `insert into submitter_use (submitter, number, added_wei, at, tx_id, intents, value_wei) values `
	newChange   = `insert into submitter_change (submitter, action, by, reason, policy) values `
	newMove     = `insert into submitter_change (submitter, action, by, reason, from_signer, to_signer) values `
	newLink     = `insert into audit_link (submitter, number, change_id, decision_id, at, hash) values `
	newMark     = `insert into database_mark (id, written_over, reason) values `
	newProposal = `insert into proposal (kind, act, subject, method, path, body, effect, observed_state, observed_state_hash, epoch, proposed_by, proposer_names, reason, expires_at,
		digest, status, approved_by, approver_names, approve_reason, approved_at, closed_by, closed_at)
		select 'policy', 'policy', '{}', 'PUT', '/', '{}', 'e', '{}', '', '', 'ann', '{ann}', 'r', now() + interval '1 hour', `
	isOpen     = `'PROPOSED', null::text, null::text[], null, null::timestamptz, null, null::timestamptz`
	isApproved = `'APPROVED', 'ben', '{ben}', 'r', now(), null, null`
	newMinute  = `insert into tx_minute (minute, accepted, confirmed, failed, seconds) values `
	newAuth    = `insert into identity_change (system_identifier, timeline_id, by, reason) values `
)

// foreignOf are the values of a foreign transaction.
func foreignOf(key, hash string) string {
	return `(` + key + `, ` + hash + `, 1, $hash, 0, ` + emptyPrint + `, true, '{}', 'node')`
}

var isForeign = newForeign + foreignOf("$bob, 7, 1", "$hash")

// furtherNonsense is what [nonsense] leaves to show, by the constraint that must
// refuse it. A key that another implies is shown with that other dropped.
var furtherNonsense = map[string][]refusal{
	// Orders and what the cursor shows.
	"requested_action_is_known": {{Then: `update managed_tx set requested_action = 'PAY' where tx_id = $sent`}},
	"requested_action_fits_state": {
		{Then: `update managed_tx set requested_action = 'CANCEL' where tx_id = $queued`},
		{Then: `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', requested_action = 'CANCEL' where tx_id = $queued`},
		{Then: `update managed_tx set state = 'FAILED', sub_state = 'DISPLACED', requested_action = 'REPLACE' where tx_id = $sent`},
	},
	"extra_is_an_amount": {{Then: `insert into tx_version (tx_id, submitter, nonce, version, tx_hash, kind, fencing_token, extra_wei)
		values ($sent, $alice, 0, 2, $hash, 'BUMP', 1, -1)`}},
	"submitter_nonce_cursor_final_blocks_check": {{Then: `update submitter_nonce_cursor set final_blocks = '{}' where submitter = $alice`}},
	"in_flight_has_a_nonce":                     {{Then: `update submitter_nonce_cursor set in_flight_nonce = null, in_flight_tx_id = null where submitter = $alice`}},

	// Acts that two operators approve.
	"one_id_per_proposal":         {{newProposal + `'a', ` + isOpen + `; alter table proposal disable trigger guard_proposal`, `insert into proposal overriding system value select (jsonb_populate_record(p, '{"digest": "\\x62", "seq": 0}')).* from proposal p`}},
	"one_number_per_proposal":     {{newProposal + `'a', ` + isOpen, `insert into proposal overriding system value select (jsonb_populate_record(p, '{"digest": "\\x62", "proposal_id": "018f0000-0000-7000-8000-000000000000"}')).* from proposal p`}},
	"one_open_proposal":           {{newProposal + `'a', ` + isOpen, newProposal + `'a', ` + isOpen}},
	"proposed_by_a_person":        {{Then: strings.Replace(newProposal, `'{ann}'`, `'{ben}'`, 1) + `'', ` + isOpen}, {Then: strings.Replace(newProposal, `'ann', '{ann}'`, `'', '{""}'`, 1) + `'', ` + isOpen}},
	"status_of_proposal_is_known": {{Then: newProposal + `'', 'AGREED', null, null, null, null::timestamptz, null, now()`}},
	"two_people_agree": {
		{Then: newProposal + `'', 'APPROVED', null::text, null::text[], null, null::timestamptz, null, null::timestamptz`},
		{Then: newProposal + `'', 'APPROVED', 'ann', '{ann}', 'r', now(), null, null`},
		{Then: newProposal + `'', 'APPROVED', 'ben', '{ben,ann}', 'r', now(), null, null`},
		{Then: newProposal + `'', 'APPROVED', 'ben', '{cat}', 'r', now(), null, null`},
		{Then: newProposal + `'', 'APPROVED', 'ben', '{ben}', '', now(), null, null`},
		{Then: newProposal + `'', 'CARRIED_OUT', null::text, null::text[], null, null::timestamptz, null, now()`},
	},
	"end_of_proposal_is_complete": {
		{Then: newProposal + `'', 'REJECTED', null::text, null::text[], null, null::timestamptz, null, now()`},
		{Then: newProposal + `'', 'EXPIRED', null::text, null::text[], null, null::timestamptz, null, null::timestamptz`},
		{newProposal + `'', ` + isApproved, `update proposal set outcome_status = 200`},
	},

	// A submitter has one spelling (TestH04OneAccountTwoNames has others, in each table), and reasonable terms.
	"submitter_id_check":            {{Then: newSub + `('eip155:100000000000000000000:0x0000000000000000000000000000000000000ca0', 'local', 0, 1, '{*}', 'test')`}},
	"submitter_pkey":                {{isCarol, isCarol}},
	"start_nonce_key":               {{isCarol + `; alter table submitter drop constraint submitter_pkey cascade`, isCarol}},
	"submitter_signer_check":        {{Then: newSub + `(` + carol + `, '', 0, 1, '{*}', 'test')`}},
	"submitter_start_nonce_check":   {{Then: `insert into submitter (submitter, signer, start_nonce, start_reason, max_in_flight, callers, created_by) values (` + carol + `, 'local', -1, 'r', 1, '{*}', 'test')`}},
	"start_nonce_has_a_reason":      {{Then: newSub + `(` + carol + `, 'local', 7, 1, '{*}', 'test')`}},
	"submitter_max_in_flight_check": {{Then: `update submitter set max_in_flight = 0`}, {Then: `update submitter set max_in_flight = 10001`}},
	"name_is_short":                 {{Then: `update submitter set name = repeat('x', 101)`}},
	"submitter_status_check":        {{Then: `update submitter set status = 'GONE'`}},
	"submitter_created_by_check":    {{Then: newSub + `(` + carol + `, 'local', 0, 1, '{*}', '')`}},

	"submitter_nonce_cursor_pkey":                  {{Then: `insert into submitter_nonce_cursor (submitter, next_nonce) values ($alice, 0)`}},
	"submitter_nonce_cursor_submitter_fkey":        {{Then: `insert into submitter_nonce_cursor (submitter, next_nonce) values (` + carol + `, 0)`}},
	"submitter_nonce_cursor_next_nonce_check":      {{isCarol, `insert into submitter_nonce_cursor (submitter, next_nonce) values (` + carol + `, -1)`}},
	"submitter_nonce_cursor_in_flight_state_check": {{Then: `update submitter_nonce_cursor set in_flight_state = 'BUSY' where submitter = $alice`}},

	"protect_incident_pkey":           {{Then: newEp + `($bob, 1, '{}', now(), 'o', 'resume', 'r')`}},
	"protect_incident_submitter_fkey": {{Then: newEp + `(` + carol + `, 1, '{}', now(), 'o', 'resume', 'r')`}},
	"protect_incident_incident_check": {{Then: newEp + `($alice, 0, '{}', now(), 'o', 'resume', 'r')`}},
	"protect_incident_mode_check":     {{Then: newEp + `($alice, 1, '{}', now(), 'o', 'forget', 'r')`}},

	// Foreign transactions.
	"foreign_transaction_pkey":           {{newForeign + foreignOf("$bob, 7, 1", "$hash"), newForeign + foreignOf("$bob, 7, 1", "$hash")}},
	"foreign_transaction_submitter_fkey": {{Then: newForeign + foreignOf(carol+", 7, 1", "$hash")}},
	"foreign_is_of_the_chain": {{Then: newForeign + foreignOf("$bob, -1, 1", "$hash")}, {Then: newForeign + foreignOf("$bob, 7, 1", "'0x5'")}, {Then: newForeign + foreignOf("$bob, 7, 0", "$hash")},
		{isForeign, `update foreign_transaction set to_address = '0x00000000000000000000000000000000000000C3'`}, {isForeign, `update foreign_transaction set to_address = ''`}},

	"one_foreign_reading_per_submitter": {{newReading + `($bob, 1, 5, 9, 9, 0, null)`, newReading + `($bob, 2, 5, 9, 9, 0, null)`}},
	"foreign_reading_of_a_submitter":    {{Then: newReading + `(` + carol + `, 1, 5, 9, 9, 0, null)`}},
	"foreign_reading_is_in_order": {
		{Then: newReading + `($bob, 0, 5, 9, 9, 0, null)`}, {Then: newReading + `($bob, 1, -1, 9, 9, 0, null)`}, {Then: newReading + `($bob, 1, 9, 5, 9, 0, null)`},
		{Then: newReading + `($bob, 1, 5, 9, -1, 0, null)`}, {Then: newReading + `($bob, 1, 5, 9, 9, -1, null)`}, {Then: newReading + `($bob, 1, 5, 9, 9, 0, 10)`},
	},

	"foreign_hold_pkey":        {{isForeign + `; ` + newHold + `($bob, 7, 'x')`, newHold + `($bob, 7, 'x')`}},
	"hold_has_its_transaction": {{Then: newHold + `($bob, 7, 'x')`}},
	"foreign_hold_tx_id_fkey":  {{isForeign + `; ` + newHold + `($bob, 7, 'x')`, `update foreign_hold set tx_id = gen_random_uuid()`}},
	"one_hold_per_tx":          {{isForeign + `; ` + newHold + `($bob, 7, 'x'); update foreign_hold set tx_id = $sent; ` + newForeign + foreignOf("$bob, 8, 1", "$hash"), `insert into foreign_hold (submitter, nonce, call_digest, tx_id) values ($bob, 8, 'x', $sent)`}},
	"hold_is_ended_by_an_operator": {
		{isForeign + `; ` + newHold + `($bob, 7, 'x')`, `update foreign_hold set ended_at = now()`},
		{isForeign + `; ` + newHold + `($bob, 7, 'x')`, `update foreign_hold set ended_at = now(), outcome = 'WRITTEN_OFF', by = 'o', reason = ''`},
		{isForeign + `; ` + newHold + `($bob, 7, 'x')`, `update foreign_hold set ended_at = now(), outcome = 'FORGOTTEN', by = 'o', reason = 'r'`},
		{isForeign + `; ` + newHold + `($bob, 7, 'x')`, `update foreign_hold set ended_at = now(), outcome = 'MATCHED', by = 'o', reason = 'r'`},
		{isForeign + `; ` + newHold + `($bob, 7, 'x')`, `update foreign_hold set outcome = 'WRITTEN_OFF', by = 'o', reason = 'r'`},
	},

	// Transactions and their versions.
	"managed_tx_pkey": {{Then: newTx + `($sent, $alice, 'another', 'shop', ` + emptyPrint + `)`}},
	"one_nonce_per_tx": {{
		`alter table managed_tx drop constraint managed_tx_pkey cascade; alter table managed_tx drop constraint one_tx_per_nonce cascade`,
		`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, state)
		 values ($bound, $alice, 'another', 'shop', ` + emptyPrint + `, 1, 0, 'IN_FLIGHT')`,
	}},
	"begins_at_start_nonce": {{
		isCarol + `; ` + newTx + `(gen_random_uuid(), ` + carol + `, 'r', 'shop', ` + emptyPrint + `)`,
		`update managed_tx set state = 'IN_FLIGHT', nonce = 7 where submitter = ` + carol,
	}},
	"held_for_is_known": {{Then: `update managed_tx set held_for = 'CALL' where state = 'QUEUED'`}, {Then: `update managed_tx set held = true, held_for = 'NOTHING' where state = 'QUEUED'`}},
	"fills_a_nonce": {{Then: `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, fills)
		values (gen_random_uuid(), $alice, 'filler', 'o', sha256('x'), true)`}},
	"deferred_is_blocked": {{Then: `update managed_tx set deferred_at = now() where tx_id = $queued`}},
	"expired_had_an_end":  {{Then: `update managed_tx set state = 'FAILED', sub_state = 'EXPIRED' where tx_id = $queued`}},
	"wait_cause_is_known": {{Then: `update managed_tx set wait_cause = 'RAIN', waiting_since = now() where state = 'QUEUED'`}},
	"wait_has_a_start":    {{Then: `update managed_tx set wait_cause = 'BALANCE' where state = 'QUEUED'`}, {Then: `update managed_tx set waiting_since = now() where state = 'QUEUED'`}},
	"held_has_no_nonce":   {{Then: `update managed_tx set held = true where state in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK')`}},

	// Reservations: made with their row, for one owner, until a time.
	"reservation_is_known":   {{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'LENT', 'x', now())`}},
	"bound_for_ever":         {{isReserved + `; ` + isGivenBack + `; ` + signsFor(`(select tx_id from managed_tx where request_id = '41')`, 2, 1, "ORIGINAL", storetest.Bytes(1337, 2, alice.Address(), 1, "")), isUnbound}},
	"follows_the_last_nonce": {{isReserved + `; ` + isGivenBack + `; ` + newReservation + `'42', 3, 2, 'IN_FLIGHT', null, 'RESERVED', 'x', now())`, isUnbound}},
	"reservation_has_a_lock": {
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'RESERVED', 'x', null)`},
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'RESERVED', null, now())`},
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'RESERVED', '', now())`},
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'RESERVED', repeat('x', 129), now())`},
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, null, 'x', null)`},
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, null, null, now())`},
	},
	"reservation_fits_state": {
		{Then: newReservation + `'41', null, null, 'QUEUED', null, 'RESERVED', 'x', now())`},
		{Then: newReservation + `'41', null, null, 'FAILED', 'REJECTED', 'RESERVED', 'x', now())`},
		{Then: newReservation + `'41', null, null, 'FAILED', 'CANCELLED', 'RESERVED', 'x', now())`},
		{`alter table managed_tx drop constraint expired_had_an_end`, newReservation + `'41', null, null, 'FAILED', 'EXPIRED', 'RESERVED', 'x', now())`},
		{Then: newReservation + `'41', 2, 1, 'IN_FLIGHT', null, 'USED', 'x', now())`},
		{isReserved + `; alter table managed_tx disable trigger guard_tx`, `update managed_tx set handler = 'pays' where request_id = '41'`},
	},
	"handler_is_a_name": {{Then: `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, handler)
		values (gen_random_uuid(), $alice, 'another', 'shop', ` + emptyPrint + `, 'Pay out')`}},
	"managed_tx_submit_attempts_check":  {{Then: `update managed_tx set submit_attempts = -1 where tx_id = $sent`}},
	"managed_tx_replaced_by_hash_check": {{Then: `update managed_tx set replaced_by_hash = upper(tx_hash) where tx_id = $sent`}},
	"tx_version_tx_hash_check":          {{Then: newVersion + `($sent, $alice, 0, 2, upper($hash), 'BUMP', 1)`}},
	"tx_version_version_check":          {{Then: newVersion + `($sent, $alice, 0, 0, $hash, 'BUMP', 1)`}},

	// Operators' decisions and their records.
	"tx_decision_tx_id_fkey":   {{Then: newDec + `(gen_random_uuid(), 'WAIT', 'o', 'r')`}},
	"tx_decision_action_check": {{Then: newDec + `($sent, 'PAY', 'o', 'r')`}},
	"tx_decision_by_check":     {{Then: newDec + `($sent, 'WAIT', '', 'r')`}},
	"tx_decision_reason_check": {{Then: newDec + `($sent, 'WAIT', 'o', '')`}},
	"tx_decision_pkey": {{newDec + `($sent, 'WAIT', 'o', 'r')`,
		`insert into tx_decision (id, tx_id, action, by, reason) overriding system value select id, tx_id, action, by, reason from tx_decision`}},
	"tx_history_pkey": {{Then: `insert into tx_history (id, tx_id, submitter, at, state, attempts)
		select id, tx_id, submitter, at, state, attempts from tx_history`}},
	"tx_document_pkey": {{Then: newDocument + `($queued, 'payload', '{}', null)`}},

	// Policies, and what counts against them.
	"submitter_policy_pkey":            {{newPolicy + `($alice, 1)`, newPolicy + `($alice, 1)`}},
	"submitter_policy_submitter_fkey":  {{Then: newPolicy + `(` + carol + `, 1)`}},
	"value_is_an_amount":               {{newPolicy + `($alice, 1)`, `update submitter_policy set max_value_wei = -1`}},
	"day_is_an_amount":                 {{newPolicy + `($alice, 1)`, `update submitter_policy set max_day_wei = -1`}},
	"rate_is_a_number":                 {{Then: newPolicy + `($alice, 0)`}, {Then: newPolicy + `($alice, 1000001)`}},
	"fee_is_an_amount":                 {{newPolicy + `($alice, 1)`, `update submitter_policy set max_fee_wei = -1`}},
	"tip_is_an_amount":                 {{newPolicy + `($alice, 1)`, `update submitter_policy set max_tip_wei = 0`}},
	"gas_is_an_amount":                 {{newPolicy + `($alice, 1)`, `update submitter_policy set max_gas = 20999`}},
	"day_of_fees_is_an_amount":         {{newPolicy + `($alice, 1)`, `update submitter_policy set max_day_fees_wei = -1`}},
	"one_fee_each":                     {{newFee + `($alice, 1, 0, now(), $sent, 0)`, newFee + `($alice, 1, 0, now(), $sent, 0)`}},
	"submitter_fee_number_check":       {{Then: newFee + `($alice, 0, 0, now(), $sent, 0)`}},
	"submitter_fee_added_wei_check":    {{Then: newFee + `($alice, 1, -1, now(), $sent, 0)`}},
	"targets_are_not_empty":            {{newPolicy + `($alice, 1)`, `update submitter_policy set targets = '{}'`}},
	"one_use_each":                     {{newUse + `($alice, 1, 0, now(), $sent, 1, 0)`, newUse + `($alice, 1, 0, now(), $sent, 1, 0)`}},
	"per_caller_is_not_empty":          {{newPolicy + `($alice, 1)`, `update submitter_policy set per_caller = '{}'`}, {newPolicy + `($alice, 1)`, `update submitter_policy set per_caller = '[1]'`}},
	"tokens_are_not_empty":             {{newPolicy + `($alice, 1)`, `update submitter_policy set tokens = '{}'`}, {newPolicy + `($alice, 1)`, `update submitter_policy set tokens = '[1]'`}},
	"one_scoped_use_each":              {{newScoped + `($alice, 'sub:a', 1, 0, now(), $sent, 1, 0)`, newScoped + `($alice, 'sub:a', 1, 0, now(), $sent, 1, 0)`}},
	"policy_use_scope_check":           {{Then: newScoped + `($alice, '', 1, 0, now(), $sent, 1, 0)`}},
	"policy_use_number_check":          {{Then: newScoped + `($alice, 'sub:a', 0, 0, now(), $sent, 1, 0)`}},
	"policy_use_added_check":           {{Then: newScoped + `($alice, 'sub:a', 1, -1, now(), $sent, 1, 0)`}},
	"one_sum_a_minute":                 {{newBack + `($alice, '', now(), 1)`, newBack + `($alice, '', now(), 1)`}},
	"policy_released_use_amount_check": {{Then: newBack + `($alice, '', now(), 0)`}},
	"submitter_use_number_check":       {{Then: newUse + `($alice, 0, 0, now(), $sent, 1, 0)`}},
	"submitter_use_added_wei_check":    {{Then: newUse + `($alice, 1, -1, now(), $sent, 1, 0)`}},
	"submitter_change_submitter_fkey":  {{Then: newChange + `(` + carol + `, 'SUSPEND', 'o', 'r', null)`}},
	"change_is_known":                  {{Then: newChange + `($alice, 'FORGET', 'o', 'r', null)`}},
	"policy_fits_action":               {{Then: newChange + `($alice, 'POLICY', 'o', 'r', null)`}, {Then: newChange + `($alice, 'SUSPEND', 'o', 'r', '{}')`}},
	"update_fits_action": {
		{Then: newChange + `($alice, 'UPDATE', 'o', 'r', null)`},
		{Then: `insert into submitter_change (submitter, action, by, reason, from_max_in_flight, to_max_in_flight) values ($alice, 'UPDATE', 'o', 'r', 2, 2)`},
		{Then: `insert into submitter_change (submitter, action, by, reason, to_max_in_flight) values ($alice, 'UPDATE', 'o', 'r', 2)`},
		{Then: `insert into submitter_change (submitter, action, by, reason, from_name) values ($alice, 'UPDATE', 'o', 'r', 'a')`},
		{Then: `insert into submitter_change (submitter, action, by, reason, from_name, to_name) values ($alice, 'SUSPEND', 'o', 'r', '', 'a')`},
	},
	"succeeded_are_names": {{Then: `update submitter set succeeded = '[]'`}},
	"callers_fit_action": {
		{Then: newChange + `($alice, 'CALLERS', 'o', 'r', null)`},
		{Then: `insert into submitter_change (submitter, action, by, reason, from_callers) values ($alice, 'SUSPEND', 'o', 'r', '{shop}')`},
		{Then: `insert into submitter_change (submitter, action, by, reason, to_callers) values ($alice, 'SUSPEND', 'o', 'r', '{shop}')`},
		{Then: `insert into submitter_change (submitter, action, by, reason, succeeds) values ($alice, 'SUSPEND', 'o', 'r', '{}')`},
		{Then: `insert into submitter_change (submitter, action, by, reason, from_callers, succeeds) values ($alice, 'CALLERS', 'o', 'r', '{shop}', '{}')`},
	},
	"signers_fit_action": {
		{Then: newMove + `($alice, 'SIGNER', 'o', 'r', 'local', 'local')`},
		{Then: newMove + `($alice, 'SIGNER', 'o', 'r', 'local', '')`},
		{Then: newMove + `($alice, 'SIGNER', 'o', 'r', 'local', null)`},
		{Then: newMove + `($alice, 'SIGNER', 'o', 'r', null, 'local')`},
		{Then: newMove + `($alice, 'SUSPEND', 'o', 'r', 'local', null)`},
		{Then: newMove + `($alice, 'RESUME', 'o', 'r', null, 'local')`},
	},
	"submitter_change_by_check":     {{Then: newChange + `($alice, 'SUSPEND', '', 'r', null)`}},
	"submitter_change_reason_check": {{Then: newChange + `($alice, 'SUSPEND', 'o', '', null)`}},
	"submitter_change_pkey": {{newChange + `($alice, 'SUSPEND', 'o', 'r', null)`,
		`insert into submitter_change (id, submitter, action, by, reason) overriding system value select id, submitter, action, by, reason from submitter_change`}},

	// The audit chain.
	"audit_head_pkey":           {{isChanged, `insert into audit_head select * from audit_head`}},
	"audit_head_submitter_fkey": {{Then: `insert into audit_head (submitter, number, hash) values (` + carol + `, 1, '')`}},
	"audit_link_pkey":           {{isChanged, newLink + `($alice, 1, 1000, null, now(), '')`}},
	"audit_link_submitter_fkey": {{Then: newLink + `(` + carol + `, 1, 1, null, now(), '')`}},
	"link_has_one_row":          {{Then: newLink + `($alice, 9, 1, 1, now(), '')`}, {Then: newLink + `($alice, 9, null, null, now(), '')`}},
	"one_link_per_change":       {{Then: newLink + `($alice, 8, 1000, null, now(), ''), ($alice, 9, 1000, null, now(), '')`}},
	"one_link_per_decision":     {{Then: newLink + `($alice, 8, null, 1000, now(), ''), ($alice, 9, null, 1000, now(), '')`}},
	"audit_seal_pkey":           {{isSealed, `insert into audit_seal select * from audit_seal`}},

	// The database itself.
	"database_identity_pkey":            {{Then: `insert into database_identity (epoch, system_identifier, timeline_id, accepted_by) select epoch, 1, 1, 'o' from database_identity`}},
	"database_identity_singleton_check": {{Then: `insert into database_identity (singleton, epoch, system_identifier, timeline_id, accepted_by) select false, epoch, 1, 1, 'o' from database_identity`}},
	"database_identity_epoch_check":     {{Then: `update database_identity set epoch = 'again'`}},
	"database_mark_written_over_check":  {{Then: newMark + `('x', -1, 'r')`}},
	"database_mark_pkey":                {{newMark + `('x', 0, 'r')`, newMark + `('x', 1, 'r')`}},
	"identity_change_by_check":          {{Then: newAuth + `(1, 1, '', 'r')`}},
	"identity_change_reason_check":      {{Then: newAuth + `(1, 1, 'o', '')`}},
	"identity_change_pkey": {{newAuth + `(1, 1, 'o', 'r')`,
		`insert into identity_change (id, system_identifier, timeline_id, by, reason) overriding system value
		 select id, system_identifier, timeline_id, by, reason from identity_change`}},
}

const (
	isFinal  = `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where tx_id = $queued`
	isEnded  = isFinal + `; set constraints release_policy_use immediate; set constraints release_policy_use deferred` // at once, so that the table can be altered
	isClosed = `update protect_incident set closed_at = now(), closed_by = 'o', mode = 'resume', reason = 'r' where submitter = $bob`
	byGuard  = "history_never_changes"

	// Linked at once, so that a table with nothing pending can be altered.
	linksNow  = `; set constraints link_change, link_decision immediate; set constraints link_change, link_decision deferred`
	isDecided = newDec + `($sent, 'WAIT', 'o', 'r')` + linksNow
	isChanged = newChange + `($alice, 'RESUME', 'o', 'r', null)` + linksNow
	isSealed  = isChanged + `; select seal_audit('m')`

	isUnbound     = `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', nonce = null, prev_nonce = null where request_id = '41'`
	isGivenBack   = `update managed_tx set reservation = 'RECYCLABLE' where request_id = '41'`
	byReservation = "reservation_changes_once"
)

// unguarded takes the guard against truncating off each partition.
func unguarded(whole string) string {
	return `do $$ declare part regclass; begin
		for part in select inhrelid::regclass from pg_inherits where inhparent = '` + whole + `'::regclass loop
			execute format('alter table %s disable trigger guard_truncate', part);
		end loop; end $$`
}

// guarded is by the trigger that must refuse. Of the tables that a truncate
// takes along, each trigger but the one in question is switched off.
var guarded = map[string][]duty{
	"guard_tx": {
		{"managed_tx", isEnded, `update managed_tx set last_error = 'another' where tx_id = $queued`, "final_never_changes"},
		{"managed_tx", isEnded, `update managed_tx set state = 'QUEUED', sub_state = null where tx_id = $queued`, "final_never_changes"},
		{"managed_tx", isEnded, `update managed_tx set sub_state = 'REJECTED' where tx_id = $queued`, "final_never_changes"},
		{"managed_tx", "", `update managed_tx set caller = 'another' where tx_id = $queued`, "binding_never_changes"},
		{"managed_tx", isReserved, `update managed_tx set state = 'FAILED', sub_state = 'DISPLACED', nonce = null, prev_nonce = null where request_id = '41'`, "binding_never_changes"},
		{"managed_tx", isReserved + `; ` + isGivenBack, `update managed_tx set state = 'FAILED', sub_state = 'DISPLACED', nonce = null, prev_nonce = null where request_id = '41'`, "binding_never_changes"},
		{"managed_tx", "", `update managed_tx set handler = 'another' where tx_id = $queued`, "binding_never_changes"},
		{"managed_tx", "", `update managed_tx set tx_id = gen_random_uuid() where tx_id = $queued`, "binding_never_changes"},
	},
	"guard_held": {
		{"managed_tx", `update managed_tx set held = true where tx_id = $queued`, `create role role_that_cancels; grant select, update on managed_tx to role_that_cancels;
			grant insert on tx_history, event_outbox to role_that_cancels; grant usage on all sequences in schema public to role_that_cancels; grant select on all tables in schema public to role_that_cancels;
			set local role role_that_cancels; update managed_tx set held = false where tx_id = $queued`, "held_until_decided"},
	},
	"guard_reservation": {
		{"managed_tx", "", `update managed_tx set reservation = 'RESERVED', lock_owner = 'x', lock_until = now() where tx_id = $bound`, byReservation},
		{"managed_tx", isReserved, `update managed_tx set lock_owner = 'y' where request_id = '41'`, byReservation},
		{"managed_tx", isReserved, `update managed_tx set lock_until = 'infinity' where request_id = '41'`, byReservation},
		{"managed_tx", isReserved, `update managed_tx set reservation = null, lock_owner = null, lock_until = null where request_id = '41'`, byReservation},
		{"managed_tx", isReserved, `update managed_tx set reservation = 'RECYCLABLE', lock_owner = 'y' where request_id = '41'`, byReservation},
		{"managed_tx", isReserved + `; ` + isGivenBack, `update managed_tx set reservation = 'RESERVED' where request_id = '41'`, byReservation},
		{"managed_tx", isReserved + `; update managed_tx set requested_action = 'CANCEL' where request_id = '41'`, isGivenBack, byReservation},
		{"managed_tx", isReserved + `; update managed_tx set state = 'STUCK' where request_id = '41'`, isGivenBack, byReservation},
	},
	"guard_tx_delete": {{"managed_tx", "", `delete from managed_tx where tx_id = $queued`, byGuard}},
	"guard_history":   {{"tx_history", "", `delete from tx_history`, byGuard}, {"tx_history", "", `update tx_history set reason = 'another'`, byGuard}},
	"guard_versions": {
		{"tx_version", "", `delete from tx_version`, byGuard},
		{"tx_version", "", `update tx_version set kind = 'BUMP'`, byGuard},
	},
	"guard_documents": {
		{"tx_document", "", `delete from tx_document`, byGuard},
		{"tx_document", "", `update tx_document set body = '{"to": "0x"}' where name = 'payload'`, byGuard},
		{"tx_document", "", `update tx_document set bytes = '\x00' where name = 'version:1'`, byGuard},
	},
	"guard_documents_truncate": {
		{"tx_document", unguarded("tx_document"), `truncate tx_document`, byGuard},
	},
	"guard_truncate": {
		{"tx_document_default", "", `truncate tx_document_default`, byGuard},
		{"tx_history_default", "", `truncate tx_history_default`, byGuard},
	},
	"guard_txs_truncate":      {{"managed_tx", `alter table tx_version disable trigger guard_versions_truncate; alter table tx_decision disable trigger guard_decisions_truncate; alter table payout_confirmed disable trigger guard_proofs_truncate`, `truncate managed_tx cascade`, byGuard}},
	"guard_history_truncate":  {{"tx_history", unguarded("tx_history"), `truncate tx_history`, byGuard}},
	"guard_versions_truncate": {{"tx_version", "", `truncate tx_version`, byGuard}},
	"guard_fills":             {{"managed_tx", "", `update managed_tx set fills = true where tx_id = $sent`, byGuard}},
	"guard_hold": {
		{"foreign_hold", isForeign + `; ` + newHold + `($bob, 7, 'x'); update foreign_hold set ended_at = now(), outcome = 'WRITTEN_OFF', by = 'o', reason = 'r'`, `update foreign_hold set reason = 'another'`, byGuard},
	},
	"guard_decisions": {
		{"tx_decision", isDecided, `delete from tx_decision`, byGuard},
		{"tx_decision", isDecided, `update tx_decision set reason = 'another'`, byGuard},
	},
	"guard_incident": {
		{"protect_incident", "", `delete from protect_incident`, byGuard},
		{"protect_incident", "", `update protect_incident set evidence = '{"node": "another"}'`, byGuard},
		{"protect_incident", "", `update protect_incident set incident = 2`, byGuard},
		{"protect_incident", isClosed, `update protect_incident set reason = 'another'`, byGuard},
		{"protect_incident", isClosed, `update protect_incident set closed_at = null, closed_by = null, mode = null, reason = null`, byGuard},
	},
	"guard_policy":        {{"submitter_policy", newPolicy + `($alice, 1)`, `delete from submitter_policy`, byGuard}},
	"guard_fees":          {{"submitter_fee", newFee + `($alice, 1, 0, now(), $sent, 0)`, `delete from submitter_fee`, byGuard}, {"submitter_fee", newFee + `($alice, 1, 0, now(), $sent, 0)`, `update submitter_fee set total_wei = 1`, byGuard}},
	"guard_fees_truncate": {{"submitter_fee", "", `truncate submitter_fee`, byGuard}},
	"guard_uses":          {{"submitter_use", newUse + `($alice, 1, 0, now(), $sent, 1, 0)`, `delete from submitter_use`, byGuard}, {"submitter_use", newUse + `($alice, 1, 0, now(), $sent, 1, 0)`, `update submitter_use set intents = 0`, byGuard}},
	"guard_uses_truncate": {{"submitter_use", "", `truncate submitter_use`, byGuard}},
	"guard_scoped_uses": {
		{"policy_use", newScoped + `($alice, 'sub:a', 1, 0, now(), $sent, 1, 0)`, `delete from policy_use`, byGuard},
		{"policy_use", newScoped + `($alice, 'sub:a', 1, 0, now(), $sent, 1, 0)`, `update policy_use set intents = 0`, byGuard},
	},
	"guard_scoped_uses_truncate":  {{"policy_use", "", `truncate policy_use`, byGuard}},
	"guard_released_use":          {{"policy_released_use", newBack + `($alice, '', now(), 1)`, `delete from policy_released_use`, byGuard}},
	"guard_released_use_truncate": {{"policy_released_use", "", `truncate policy_released_use`, byGuard}},
	"guard_changes":               {{"submitter_change", isChanged, `delete from submitter_change`, byGuard}, {"submitter_change", isChanged, `update submitter_change set reason = 'another'`, byGuard}},
	"guard_changes_truncate":      {{"submitter_change", "", `truncate submitter_change`, byGuard}},

	"guard_links":          {{"audit_link", isChanged, `delete from audit_link`, byGuard}, {"audit_link", isChanged, `update audit_link set by_role = 'another'`, byGuard}},
	"guard_links_truncate": {{"audit_link", "", `truncate audit_link`, byGuard}},
	"guard_seals":          {{"audit_seal", isSealed, `delete from audit_seal`, byGuard}, {"audit_seal", isSealed, `update audit_seal set hash = ''`, byGuard}},
	"guard_seals_truncate": {{"audit_seal", "", `truncate audit_seal`, byGuard}},

	"guard_decisions_truncate":        {{"tx_decision", "", `truncate tx_decision`, byGuard}},
	"guard_incidents_truncate":        {{"protect_incident", "", `truncate protect_incident`, byGuard}},
	"guard_identity_changes_truncate": {{"identity_change", "", `truncate identity_change`, byGuard}},
	"guard_lease":                     {{"submitter_lease", "", `delete from submitter_lease`, "tokens_only_rise"}},
	"guard_lease_update": {
		{"submitter_lease", "", `update submitter_lease set submitter = ` + carol + ` where submitter = $bob`, "tokens_only_rise"},
		{"submitter_lease", `update submitter_lease set fencing_token = 9`, `update submitter_lease set fencing_token = 8`, "tokens_only_rise"},
	},
	"guard_cursor": {{"submitter_nonce_cursor", "", `delete from submitter_nonce_cursor`, "nonces_only_rise"}},
	"guard_cursor_update": {
		{"submitter_nonce_cursor", isCarol, `update submitter_nonce_cursor set submitter = ` + carol + ` where submitter = $bob`, "nonces_only_rise"},
		{"submitter_nonce_cursor", `update submitter_nonce_cursor set next_nonce = 9`, `update submitter_nonce_cursor set next_nonce = 8`, "nonces_only_rise"},
	},
	"refuse_retired": {{"managed_tx", isRetired, newTx + `(gen_random_uuid(), ` + carol + `, 'r', 'shop', ` + emptyPrint + `)`, "retired_takes_no_work"}},
	"guard_submitter": {
		{"submitter", "", `delete from submitter where submitter = $bob`, "start_never_changes"},
		{"submitter", "", `update submitter set start_nonce = 1, start_reason = 'r'`, "start_never_changes"},
		{"submitter", "", `update submitter set status = 'RETIRED' where submitter = $alice`, "retired_without_work"},
		{"submitter", isRetired, `update submitter set status = 'ACTIVE' where submitter = ` + carol, "retired_for_ever"},
		{"submitter", newSub + `(` + carol + `, 'local', 0, 1, '{transfer}', 'test')`, `update submitter set max_in_flight = 2 where submitter = ` + carol, "payer_window_is_known"},
	},
	"require_mac_at_insert": {
		{"managed_tx", macsFrom + `(true, 0, 'o', 'r')`, newTx + `(gen_random_uuid(), $alice, 'bare', 'shop', ` + emptyPrint + `)`, "intents_have_a_mac"},
		{"managed_tx", macsFrom + `(true, 1000, 'o', 'r')`, `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, seq, state, sub_state) overriding system value
			values (gen_random_uuid(), $alice, 'bare', 'shop', ` + emptyPrint + `, 999, 'FAILED', 'CANCELLED')`, "intents_have_a_mac"},
	},
	"require_mac_at_allocation": {{"managed_tx", macsFrom + `(true, 0, 'o', 'r')`, `update managed_tx set state = 'IN_FLIGHT', nonce = 2, prev_nonce = 1 where tx_id = $queued`, "intents_have_a_mac"}},
	"guard_mac":                 {{"managed_tx", "", `update managed_tx set mac = sha256('x'), mac_key = 'k' where tx_id = $queued`, byGuard}},
	"guard_valid_until":         {{"managed_tx", "", `update managed_tx set valid_until = now() + interval '1 y' where tx_id = $queued`, byGuard}},
	"guard_rules":               {{"intent_mac_rule", "", `delete from intent_mac_rule`, byGuard}, {"intent_mac_rule", "", `update intent_mac_rule set reason = 'another'`, byGuard}},
	"guard_rules_truncate":      {{"intent_mac_rule", "", `truncate intent_mac_rule`, byGuard}},
	"sign_once":                 signedOnce,
	"check_payload": {{"managed_tx", `set constraints check_payload immediate`,
		newTx + `(gen_random_uuid(), $alice, 'bare', 'shop', sha256('x'))`, "transactions_have_payloads"}},
	"guard_proposal": {
		{"proposal", newProposal + `'', ` + isOpen, `delete from proposal`, byGuard},
		{"proposal", newProposal + `'', ` + isOpen, `update proposal set body = '{"maxValue": "9"}'`, byGuard},
		{"proposal", newProposal + `'', ` + isOpen, `update proposal set observed_state = '{"policy": null}'`, byGuard},
		{"proposal", newProposal + `'', ` + isOpen, `update proposal set proposer_names = '{ann,ann-at-work}'`, byGuard},
		{"proposal", newProposal + `'', ` + isOpen, `update proposal set expires_at = 'infinity'`, byGuard},
		{"proposal", newProposal + `'', ` + isOpen, `update proposal set status = 'CARRIED_OUT', approved_by = 'ben', approver_names = '{ben}', approve_reason = 'r', approved_at = now(), closed_at = now()`, byGuard},
		{"proposal", newProposal + `'', ` + isApproved, `update proposal set approved_by = 'cat', approver_names = '{cat}'`, byGuard},
		{"proposal", newProposal + `'', ` + isApproved + `; update proposal set status = 'CARRIED_OUT', closed_at = now()`, `update proposal set status = 'APPROVED', closed_at = null`, byGuard},
		{"proposal", newProposal + `'', ` + isApproved + `; update proposal set status = 'CARRIED_OUT', closed_at = now(), outcome_status = 200`, `update proposal set outcome_status = 204`, byGuard},
		{"proposal", newProposal + `'', ` + isApproved + `; update proposal set status = 'EXPIRED', closed_at = now()`, `update proposal set status = 'APPROVED', closed_at = null`, byGuard},
	},
	"guard_proposals_truncate": {{"proposal", "", `truncate proposal`, byGuard}},
	"guard_identity":           {{"database_identity", "", `delete from database_identity`, byGuard}},
	"guard_identity_changes": {
		{"identity_change", newAuth + `(1, 1, 'o', 'r')`, `delete from identity_change`, byGuard},
		{"identity_change", newAuth + `(1, 1, 'o', 'r')`, `update identity_change set reason = 'another'`, byGuard},
	},
}

// plant creates the rows that the writes try to break, and returns the words that name them.
// They are alice's $sent (nonce 0), $bound (nonce 1, no bytes), $queued and $next, and bob's
// $theirs (nonce 0, sent).
func plant(t *testing.T, db storetest.Bundle) *strings.Replacer {
	t.Helper()
	db.Register(t, alice, 2)
	db.Register(t, bob, 1)
	postAll(t, db, alice, "sent", "bound", "queued", "next")
	post(t, db, bob, "theirs")
	w := take(t, db, alice, "a/1")
	all := allocations(w, true)
	all[1].Signed = nil
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all, LeaseEnd: txmanager.ReleaseUnlessRerun})
	sendAll(t, db, bob)
	db.Run(t, openIncident, bob)

	words := []string{"$alice", "'" + string(alice) + "'", "$bob", "'" + string(bob) + "'", "$hash", "'0x" + strings.Repeat("5", 64) + "'"}
	named := check.Value(db.DB.Query(t.Context(), `select request_id, tx_id::text from managed_tx`))(t)
	var request, id string
	check.OK(t)(pgx.ForEachRow(named, []any{&request, &id}, func() error {
		words = append(words, "$"+request, "'"+id+"'")
		return nil
	}))
	return strings.NewReplacer(words...)
}

const (
	newVersion  = `insert into tx_version (tx_id, submitter, nonce, version, tx_hash, kind, fencing_token) values `
	newDocument = `insert into tx_document (tx_id, name, body, bytes) values `
	newTx       = `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values `
	newMarked   = `insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, mac, mac_key) values `
	emptyPrint  = `'\x0000000000000000000000000000000000000000000000000000000000000000'`
)

// nonsense is by the name of the constraint that must refuse it.
var nonsense = map[string][]string{
	// MACs of intents, and whether they must have one.
	"mac_has_a_key":                {newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, sha256('x'), null)`, newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, null, 'k')`},
	"mac_is_of_32_bytes":           {newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, '\x00', 'k')`},
	"mac_key_is_an_id":             {newMarked + `(gen_random_uuid(), $alice, 'm', 'shop', ` + emptyPrint + `, sha256('x'), '')`},
	"intent_mac_rule_pkey":         {`insert into intent_mac_rule (id, required, by, reason) overriding system value select id, true, 'o', 'r' from intent_mac_rule`},
	"intent_mac_rule_by_check":     {`insert into intent_mac_rule (required, by, reason) values (true, '', 'r')`},
	"intent_mac_rule_reason_check": {`insert into intent_mac_rule (required, by, reason) values (true, 'o', '')`},

	"one_last_sweep":        {`insert into last_sweep (sweep) values ('a'), ('b')`},
	"last_sweep_is_one_row": {`insert into last_sweep (only_row, sweep) values (false, 'a')`},

	"one_row_a_minute":  {newMinute + `('2026-01-01 00:00Z', 0, 0, 0, '{}'), ('2026-01-01 00:00Z', 0, 0, 0, '{}')`},
	"minute_is_whole":   {newMinute + `('2026-01-01 00:00:01Z', 0, 0, 0, '{}')`},
	"counts_are_counts": {newMinute + `('2026-01-01 00:00Z', -1, 0, 0, '{}')`, newMinute + `('2026-01-01 00:00Z', 0, 0, 0, '{1,-1}')`},

	"trace_is_a_span": {`update managed_tx set trace = '\x00' where tx_id = $sent`},
	// Nonces: no duplicate, no gap, no change.
	"one_tx_per_nonce": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 1, prev_nonce = 0 where tx_id = $queued`,
		`update managed_tx set state = 'IN_FLIGHT', nonce = 0 where tx_id = $queued`,
	},
	"follows_the_last_nonce": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 3, prev_nonce = 2 where tx_id = $queued`,
		`update managed_tx set nonce = 2, prev_nonce = 1 where tx_id = $bound`,
	},
	"prev_nonce_is_one_less": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 3, prev_nonce = 1 where tx_id = $queued`,
		`update managed_tx set nonce = 2 where tx_id = $bound`,
	},
	"prev_nonce_of_a_nonce": {`update managed_tx set prev_nonce = 1 where tx_id = $queued`},
	"first_nonce": {
		`update managed_tx set state = 'IN_FLIGHT', nonce = 2 where tx_id = $queued`,
		`update managed_tx set state = 'IN_FLIGHT', nonce = 7 where tx_id = $queued`,
	},
	"managed_tx_nonce_check": {`update managed_tx set state = 'IN_FLIGHT', nonce = -1, prev_nonce = -2 where tx_id = $queued`},
	"one_tx_per_request":     {newTx + `(gen_random_uuid(), $alice, 'sent', 'shop', ` + emptyPrint + `)`},

	// State against nonce, bytes, times and receipt.
	"state_is_known": {`update managed_tx set state = 'LOST' where tx_id = $bound`},
	"sub_state_fits": {
		`update managed_tx set sub_state = 'PENDING' where tx_id = $queued`,
		`update managed_tx set state = 'TRACKING' where tx_id = $sent`,
		`update managed_tx set state = 'TRACKING', sub_state = 'REVERTED' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED' where tx_id = $bound`,
	},
	"nonce_fits_state": {
		`update managed_tx set state = 'IN_FLIGHT' where tx_id = $queued`,
		`update managed_tx set state = 'STUCK' where tx_id = $queued`,
		`update managed_tx set state = 'QUEUED' where tx_id = $bound`,
		`update managed_tx set nonce = null, prev_nonce = null where tx_id = $bound`,
		`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where tx_id = $bound`,
		`update managed_tx set state = 'FAILED', sub_state = 'REJECTED' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED', sub_state = 'PLACEHOLDER', receipt = '{}', confirmed_at = now() where tx_id = $queued`,
	},
	"bytes_fit_state": {
		`update managed_tx set state = 'SUBMITTED', first_submit_at = now(), last_submit_at = now() where tx_id = $bound`,
		`update managed_tx set state = 'IN_FLIGHT' where tx_id = $sent`,
		`update managed_tx set tx_hash = $hash where tx_id = $queued`,
	},
	"sent_fits_state": {
		`update managed_tx set last_submit_at = null where tx_id = $sent`,
		`update managed_tx set first_submit_at = null where tx_id = $sent`,
	},
	"receipt_fits_state": {
		`update managed_tx set state = 'TRACKING', sub_state = 'INCLUDED' where tx_id = $sent`,
		`update managed_tx set state = 'TRACKING', sub_state = 'PENDING', receipt = '{}' where tx_id = $sent`,
		`update managed_tx set state = 'CONFIRMED', confirmed_at = now(), confirmations = '[]' where tx_id = $sent`,
		`update managed_tx set state = 'CONFIRMED', confirmed_at = now(), receipt = '{}' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED', sub_state = 'REVERTED', confirmed_at = now() where tx_id = $sent`,
	},
	"receipt_has_no_document": {`update managed_tx set receipt = '{"document": {}}' where tx_id = $queued`},
	"confirmed_at_fits_state": {
		`update managed_tx set confirmed_at = now() where tx_id = $sent`,
		`update managed_tx set state = 'CONFIRMED', receipt = '{}', confirmations = '[]' where tx_id = $sent`,
		`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', confirmed_at = now() where tx_id = $queued`,
	},
	"managed_tx_tx_hash_check": {
		`update managed_tx set tx_hash = upper(tx_hash) where tx_id = $sent`,
		`update managed_tx set tx_hash = left(tx_hash, 65) where tx_id = $sent`,
		`update managed_tx set tx_hash = tx_hash || '0' where tx_id = $sent`,
		`update managed_tx set tx_hash = left(tx_hash, 65) || E'\n' where tx_id = $sent`,
	},
	"managed_tx_replaced_by_hash_check": {
		`update managed_tx set replaced_by_hash = left($hash, 65) where tx_id = $sent`,
		`update managed_tx set replaced_by_hash = $hash || '0' where tx_id = $sent`,
		`update managed_tx set replaced_by_hash = right($hash, 64) where tx_id = $sent`,
	},
	"tx_version_tx_hash_check": {
		newVersion + `($sent, $alice, 0, 2, left($hash, 65), 'BUMP', 1)`,
		newVersion + `($sent, $alice, 0, 2, $hash || '0', 'BUMP', 1)`,
	},
	"managed_tx_request_id_check":  {newTx + `(gen_random_uuid(), $alice, repeat('r', 129), 'shop', ` + emptyPrint + `)`, newTx + `(gen_random_uuid(), $alice, '', 'shop', ` + emptyPrint + `)`},
	"managed_tx_fingerprint_check": {newTx + `(gen_random_uuid(), $alice, 'r', 'shop', '\x00')`},

	// Versions: each hash bound for ever to one nonce of one transaction.
	"tx_version_pkey":     {newVersion + `($theirs, $bob, 0, 2, (select tx_hash from managed_tx where tx_id = $sent), 'BUMP', 1)`},
	"one_of_each_version": {newVersion + `($sent, $alice, 0, 1, $hash, 'BUMP', 1)`},
	"bound_for_ever": {
		newVersion + `($sent, $alice, 1, 2, $hash, 'BUMP', 1)`,
		newVersion + `($sent, $bob, 0, 2, $hash, 'BUMP', 1)`,
		newVersion + `($queued, $alice, 2, 1, $hash, 'ORIGINAL', 1)`,
		`update managed_tx set nonce = 5 where tx_id = $theirs`,
	},

	// Stored values do not change.
	"binding_never_changes": {
		`update managed_tx set state = 'FAILED', sub_state = 'DISPLACED', nonce = null, prev_nonce = null where tx_id = $bound`,
		`update managed_tx set request_id = 'another' where tx_id = $queued`,
		`update managed_tx set fingerprint = sha256('another') where tx_id = $queued`,
		`update managed_tx set submitter = $bob where tx_id = $queued`,
	},
	"tx_version_kind_check": {newVersion + `($sent, $alice, 0, 2, $hash, 'COPY', 1)`},

	// Documents: known ones, whole, each once.
	"document_is_known": {
		newDocument + `($queued, 'note', '{}', null)`,
		newDocument + `($queued, 'version:0', '{}', '\x00')`,
		newDocument + `($queued, 'receipt:0x00', '{}', null)`,
		newDocument + `($queued, 'receipt:' || $hash || '0', '{}', null)`,
	},
	"document_has_a_body": {newDocument + `($sent, 'receipt:' || $hash, null, null)`},
	"versions_have_bytes": {
		newDocument + `($sent, 'version:2', '{}', null)`,
		newDocument + `($sent, 'version:2', '{}', '')`,
		newDocument + `($sent, 'receipt:' || $hash, '{}', '\x00')`,
	},

	// The cursor, PROTECT, leases and submitters.
	"in_flight_is_complete":   {`update submitter_nonce_cursor set in_flight_tx_id = null where submitter = $alice`},
	"idle_has_no_nonce":       {`update submitter_nonce_cursor set in_flight_state = 'IDLE' where submitter = $alice`},
	"in_flight_is_below_next": {`update submitter_nonce_cursor set in_flight_nonce = 2 where submitter = $alice`},
	"one_open_incident":       {`insert into protect_incident (submitter, incident, evidence) values ($bob, 2, '{}')`},
	"closed_by_an_operator":   {`update protect_incident set closed_at = now()`, `update protect_incident set closed_at = now(), closed_by = 'o', mode = 'resume'`},
	"submitter_lease_pkey":    {`insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at) values ($alice, '', 9, now(), now())`},
	"submitter_lease_fencing_token_check": {`insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at)
		values ('eip155:1:0x00000000000000000000000000000000000000ff', 'a', 0, now(), now())`},
	"managed_tx_submitter_fkey": {newTx + `(gen_random_uuid(), 'eip155:1:0x0000000000000000000000000000000000000001', 'r', 'shop', ` + emptyPrint + `)`},
}

// A registration with a nonce in the middle of an account's sequence must state why. The sequence begins there.
func TestSequenceBeginsAtStartNonce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	r := store.Registration{Submitter: alice, Signer: "local", StartNonce: 7, MaxInFlight: 2, Callers: []string{"shop"}, CreatedBy: "test"}
	check.Equal(t, "start_nonce 7 without a reason", storetest.Violated(db.Store.Register(t.Context(), r)), "start_nonce_has_a_reason")
	r.StartReason = "used before"
	if isNew, err := db.Store.Register(t.Context(), r); err != nil || !isNew {
		t.Fatalf("register: got %v, %v; want it new", isNew, err)
	}
	postAll(t, db, alice, "one", "two")
	w := take(t, db, alice, "a/1")
	if done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)}); w.NextNonce != 7 || done.Allocated != 2 {
		t.Errorf("allocate: got %d from %d, want 2 from 7", done.Allocated, w.NextNonce)
	}
	check.Equal(t, "nonces", value[string](t, db, `select string_agg(nonce::text, ' ' order by seq) from managed_tx`), "7 8")
}

// H7: a unique key must hold for ever. In a table that is partitioned by time it would not,
// and the same request could run twice around midnight.
func TestH07KeysWithAPromiseLiveForEver(t *testing.T) {
	t.Parallel()
	t.Run("the catalog", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		db.ShowUniqueForEver(t, "managed_tx", "request_id", "submitter")
		db.ShowUniqueForEver(t, "managed_tx", "nonce", "submitter")
		db.ShowUniqueForEver(t, "tx_version", "tx_hash")
		want := []string{"tx_document", "tx_history"}
		check.Same(t, "tables with partitions, none with a promise in its key", value[[]string](t, db, partitioned), want)
	})
	t.Run("one request around midnight", requestAroundMidnight)
	t.Run("one nonce around midnight", nonceAroundMidnight)
	t.Run("one hash around midnight", hashAroundMidnight)
}

// partitioned names each tree of tables by its root, and foreign tables.
const partitioned = `
select array(select distinct coalesce(pg_partition_root(c.oid), h.inhparent, c.oid)::regclass::text
  from pg_class c
  left join pg_inherits h on h.inhrelid = c.oid
 where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'f')
   and (c.relkind <> 'r' or h.inhparent is not null)
 order by 1)`

// The two sides of a midnight.
const (
	lateEvening = `timestamptz '2026-06-30 23:59:59+00'`
	nextMorning = `timestamptz '2026-07-01 00:00:01+00'`
)

// requestAroundMidnight posts one request on both sides, and again years later.
func requestAroundMidnight(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	insert := func(at string) error {
		in := intent(alice, "order-1")
		_, err := db.DB.Exec(t.Context(), withPayload(`
			insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, created_at, updated_at)
			values ($1, $2, $3, 'shop', $4, `+at+`, `+at+`)`), in.TxID, alice, in.RequestID, in.Fingerprint[:])
		return err
	}
	check.OK(t)(insert(lateEvening))
	stored := value[string](t, db, `select tx_id::text from managed_tx`)
	for _, at := range []string{nextMorning, lateEvening, lateEvening + ` + interval '30 years'`, `'infinity'`} {
		check.Equal(t, fmt.Sprintf("the same request at %s", at), storetest.Violated(insert(at)), "one_tx_per_request")
	}
	if again := post(t, db, alice, "order-1"); again.New || again.TxID != stored {
		t.Errorf("posted again today: got %+v, want the stored %s", again, stored)
	}
	check.Equal(t, "rows of one request", value[int](t, db, `select count(*) from managed_tx`), 1)
}

// nonceAroundMidnight binds one nonce on both sides.
func nonceAroundMidnight(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	postAll(t, db, alice, "first", "second")
	db.Run(t, `update managed_tx set created_at = `+lateEvening+` where request_id = 'first'`)
	db.Run(t, `update managed_tx set created_at = `+nextMorning+` where request_id = 'second'`)
	const bind = `update managed_tx set state = 'IN_FLIGHT', nonce = 0, updated_at = created_at where request_id = $1`
	db.Run(t, bind, "first")
	db.Run(t, withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, state, created_at)
		values (gen_random_uuid(), $1, 'between', 'shop', sha256(''), 1, 0, 'IN_FLIGHT', `+lateEvening+`)`), alice)
	for _, again := range []string{"nonce = 0", "nonce = 1, prev_nonce = 0"} {
		_, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'IN_FLIGHT', `+again+` where request_id = 'second'`)
		check.Equal(t, again+" again after midnight", storetest.Violated(err), "one_tx_per_nonce")
	}
}

// hashAroundMidnight stores one version's hash on both sides, for two
// transactions.
func hashAroundMidnight(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	postAll(t, db, alice, "first", "second")
	w := take(t, db, alice, "a/1")
	all := allocations(w, true)
	all[1].Signed = nil
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all})
	for _, at := range []string{lateEvening, nextMorning} {
		_, err := db.DB.Exec(t.Context(), `
			insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token, created_at)
			select f.tx_hash, s.tx_id, s.submitter, s.nonce, 1, 'ORIGINAL', 1, `+at+`
			  from tx_version f, managed_tx s where s.request_id = 'second'`)
		check.Equal(t, fmt.Sprintf("the hash of another transaction's version at %s", at), storetest.Violated(err), "tx_version_pkey")
	}
}
