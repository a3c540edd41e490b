package transfers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
)

// ours are the tables of this package's schema.
const ours = `('assets_tb'::regclass, 'transfers_tb'::regclass, 'transfer_history'::regclass, 'transfer_resolution'::regclass, 'transfer_acknowledgement'::regclass, 'transfer_halt'::regclass, 'payout_address'::regclass, 'payout_address_block'::regclass, 'account_act'::regclass, 'asset_change'::regclass, 'service_deposits'::regclass, 'account_act_ending'::regclass)`

// aMove is a planned move of the database, during which nothing is written.
const aMove = `insert into database_move (mark, from_system, from_timeline, by, reason) values ('m', 1, 1, 'o', 'r')`

// $init, $source, $target, $comp and $done in the statements are transfers.
const (
	newAsset    = `insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount, daily_transfer_amount, chain_id, payout_submitter, token_contract, chain_decimals) values `
	newTransfer = `insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type) values `
	newPayout   = `insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, payout_submitter, payout_chain_id, payout_token, payout_address, payout_base_units, payout_payload) values `
	newHalt     = `insert into transfer_halt (scope, user_id, asset_id, evidence) values `
	newAddress  = `insert into payout_address (user_id, chain_id, address, removed_at, removed_by, remove_reason) values `
	newBlock    = `insert into payout_address_block (user_id, by, reason, lifted_at, lifted_by, lift_reason) values `
	newAct      = `insert into account_act (kind, request_id, ledger, user_id, asset_id, units, status, by, reason, of_service, funding, trading) values `
	oneAct      = newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 1, null, 'o', 'r', false, 'APPLIED', null)`
	newEnding   = `insert into account_act_ending (act_id, by, reason, line, read_after, read_upto) `
	oneEnding   = oneAct + `; ` + newEnding + `select act_id, 'o', 'r', 1, null, null from account_act`
	oneChange   = `insert into asset_change (asset_id, by, reason, after) values (1, 'o', 'r', '{}')`
	listed      = newAddress + `(7, 1, ` + addr + `, null, null, null)`
	blocked     = newBlock + `(7, 'o', 'r', null, null, null)`
	newOrder    = `insert into transfer_resolution (transfer_id, op, by, reason, verdict, answered_at) select transfer_id, `
	newAck      = `insert into transfer_acknowledgement (transfer_id, state, by, reason, until) select transfer_id, `
	ofInit      = ` from transfers_tb where req_id = $init`
	req         = `'01ARZ3NDEKTSV4RRFFQ69G5FAV'`
	addr        = `'0x00000000000000000000000000000000000000c3'`
	sub         = `'eip155:1337:0x00000000000000000000000000000000000000a1'`
	withMem     = `alter domain submitter_id drop constraint submitter_id_check` // as if another family's accounts were known
)

var nonsense = map[string][]storetest.Refusal{
	"assets_tb_pkey":                 {{Then: newAsset + `(1, 'X', 2, 1, 9, null, null, null, null, null)`}},
	"one_asset_per_name":             {{Then: newAsset + `(9, 'USDT', 2, 1, 9, null, null, null, null, null)`}},
	"precision_key":                  {{First: `alter table assets_tb drop constraint assets_tb_pkey cascade; alter table assets_tb drop constraint one_asset_per_name`, Then: newAsset + `(1, 'USDT', 6, 1, 9, null, null, null, null, null)`}},
	"assets_tb_asset_id_check":       {{Then: newAsset + `(0, 'X', 2, 1, 9, null, null, null, null, null)`}},
	"assets_tb_asset_check":          {{Then: newAsset + `(9, 'usdt', 2, 1, 9, null, null, null, null, null)`}, {Then: newAsset + `(9, '', 2, 1, 9, null, null, null, null, null)`}},
	"assets_tb_precision_check":      {{Then: newAsset + `(9, 'X', 9, 1, 9, null, null, null, null, null)`}},
	"assets_tb_status_check":         {{Then: `update assets_tb set status = 'GONE'`}},
	"assets_tb_chain_id_check":       {{Then: newAsset + `(9, 'X', 2, 1, 9, null, -1, null, null, null)`}},
	"assets_tb_token_contract_check": {{Then: newAsset + `(9, 'X', 2, 1, 9, null, 1337, ` + sub + `, '0xAB', 18)`}},
	"amounts_are_ordered": {
		{Then: newAsset + `(9, 'X', 2, 0, 9, null, null, null, null, null)`}, {Then: newAsset + `(9, 'X', 2, 5, 4, null, null, null, null, null)`},
		{Then: newAsset + `(9, 'X', 2, 5, 9, 4, null, null, null, null)`},
	},
	"amounts_fit_precision": {
		{Then: newAsset + `(9, 'X', 2, 0.001, 9, null, null, null, null, null)`}, {Then: newAsset + `(9, 'X', 2, 1, 9.001, null, null, null, null, null)`},
		{Then: newAsset + `(9, 'X', 2, 1, 9, 9.001, null, null, null, null)`},
	},
	"amounts_fit_64_bits": {
		{Then: newAsset + `(9, 'X', 8, 1, 184467440737.09551616, null, null, null, null, null)`},
		{Then: newAsset + `(9, 'X', 8, 1, 2, 184467440737.09551616, null, null, null, null)`},
	},
	"payout_terms_are_complete": {
		{Then: newAsset + `(9, 'X', 2, 1, 9, null, 1337, null, null, 18)`}, {Then: newAsset + `(9, 'X', 2, 1, 9, null, 1337, ` + sub + `, null, null)`},
		{Then: newAsset + `(9, 'X', 2, 1, 9, null, null, null, ` + addr + `, null)`},
	},
	"payer_is_on_the_chain":          {{Then: newAsset + `(9, 'X', 2, 1, 9, null, 1, ` + sub + `, null, 18)`}, {withMem, newAsset + `(9, 'X', 2, 1, 9, null, 7, 'mem:7:m', null, 18)`}},
	"chain_decimals_cover_precision": {{Then: newAsset + `(9, 'X', 2, 1, 9, null, 1337, ` + sub + `, null, 1)`}, {Then: newAsset + `(9, 'X', 2, 1, 9, null, 1337, ` + sub + `, null, 37)`}},

	"transfers_tb_pkey":                {{Then: `insert into transfers_tb (transfer_id, req_id, user_id, asset_id, amount, precision, transfer_type, source_type) select transfer_id, ` + req + `, 7, 1, 1, 6, 1, 1` + ofInit}},
	"one_transfer_per_req":             {{Then: newTransfer + `($init, 'x', 7, 1, 1, 6, 1, 1)`}},
	"one_transfer_per_cid":             {{Then: newTransfer + `(` + req + `, 'c-1', 7, 1, 1, 6, 1, 1)`}},
	"transfers_tb_req_id_check":        {{Then: newTransfer + `('01arz3ndektsv4rrffq69g5fav', null, 7, 1, 1, 6, 1, 1)`}, {Then: newTransfer + `('81ARZ3NDEKTSV4RRFFQ69G5FAV', null, 7, 1, 1, 6, 1, 1)`}, {Then: newTransfer + `('', null, 7, 1, 1, 6, 1, 1)`}},
	"transfers_tb_cid_check":           {{Then: newTransfer + `(` + req + `, '', 7, 1, 1, 6, 1, 1)`}},
	"transfers_tb_user_id_check":       {{Then: newTransfer + `(` + req + `, null, 0, 1, 1, 6, 1, 1)`}},
	"transfers_tb_amount_check":        {{Then: newTransfer + `(` + req + `, null, 7, 1, 0, 6, 1, 1)`}, {Then: newTransfer + `(` + req + `, null, 7, 1, -1, 6, 1, 1)`}},
	"transfers_tb_transfer_type_check": {{Then: newTransfer + `(` + req + `, null, 7, 1, 1, 6, 4, 1)`}},
	"precision_is_the_assets":          {{Then: newTransfer + `(` + req + `, null, 7, 1, 1, 7, 1, 1)`}, {Then: newTransfer + `(` + req + `, null, 7, 99, 1, 6, 1, 1)`}},
	"amount_fits_precision":            {{Then: newTransfer + `(` + req + `, null, 7, 1, 1.0000001, 6, 1, 1)`}},
	"units_fit_64_bits":                {{Then: newTransfer + `(` + req + `, null, 7, 1, 18446744073709.551616, 6, 1, 1)`}},
	"source_fits_type":                 {{Then: newTransfer + `(` + req + `, null, 7, 1, 1, 6, 1, 2)`}, {Then: newTransfer + `(` + req + `, null, 7, 1, 1, 6, 2, 1)`}},
	"transfer_state_is_known":          {{Then: `update transfers_tb set state = 11 where req_id = $init`}},
	"reason_fits_state": {
		{Then: `update transfers_tb set state = -10 where req_id = $source`}, {Then: `update transfers_tb set state = 10, error_message = 'X' where req_id = $init`},
		{Then: `update transfers_tb set state = -30, error_message = null where req_id = $comp`},
	},
	"transfers_tb_error_message_check": {{Then: `update transfers_tb set state = -10, error_message = 'it failed' where req_id = $source`}},
	"failures_are_retries":             {{Then: `update transfers_tb set failures = 1 where req_id = $source`}, {Then: `update transfers_tb set failures = -1 where req_id = $source`}},
	"unknown_fits_state":               {{Then: `update transfers_tb set failures = 1, retry_count = 1 where req_id = $init`}},
	"due_fits_state":                   {{Then: `update transfers_tb set next_attempt_at = now() where req_id = $init`}, {Then: `update transfers_tb set state = -10, error_message = 'X', next_attempt_at = now() where req_id = $source`}},
	"payout_is_complete": {
		{Then: newTransfer + `(` + req + `, null, 7, 1, 1, 6, 3, 1)`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 1, 1, ` + sub + `, 1337, null, ` + addr + `, 1, '{}')`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1337, null, null, 1, '{}')`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1337, null, ` + addr + `, null, '{}')`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1337, null, ` + addr + `, 1, null)`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, null, 1337, null, ` + addr + `, 1, '{}')`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, null, null, ` + addr + `, 1, '{}')`},
		{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 1, 1, null, null, ` + addr + `, null, null, null)`},
	},
	"payout_is_on_its_chain":               {{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1, null, ` + addr + `, 1, '{}')`}, {withMem, newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, 'mem:7:m', 7, null, ` + addr + `, 1, '{}')`}},
	"transfers_tb_payout_token_check":      {{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1337, '0xAB', ` + addr + `, 1, '{}')`}},
	"transfers_tb_payout_address_check":    {{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1337, null, '0xAB', 1, '{}')`}},
	"transfers_tb_payout_base_units_check": {{Then: newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, ` + sub + `, 1337, null, ` + addr + `, 0, '{}')`}},

	"transfer_history_pkey":                {{Then: `insert into transfer_history (id, transfer_id, state, retry_count) overriding system value select id, transfer_id, 0, 0 from transfer_history`}},
	"transfer_resolution_pkey":             {{newOrder + `'refund', 'o', 'r', null, null` + ofInit, `insert into transfer_resolution (id, transfer_id, op, by, reason) overriding system value select id, transfer_id, op, by, reason from transfer_resolution`}},
	"transfer_resolution_transfer_id_fkey": {{Then: `insert into transfer_resolution (transfer_id, op, by, reason) values (-1, 'refund', 'o', 'r')`}},
	"transfer_resolution_op_check":         {{Then: newOrder + `'commit', 'o', 'r', null, null` + ofInit}},
	"transfer_resolution_by_check":         {{Then: newOrder + `'refund', '', 'r', null, null` + ofInit}},
	"transfer_resolution_reason_check":     {{Then: newOrder + `'refund', 'o', '', null, null` + ofInit}},
	"transfer_resolution_verdict_check":    {{Then: newOrder + `'refund', 'o', 'r', 'MAYBE', now()` + ofInit}},
	"answered_as_one":                      {{Then: newOrder + `'refund', 'o', 'r', 'SUCCESS', null` + ofInit}, {Then: newOrder + `'refund', 'o', 'r', null, now()` + ofInit}},
	"cancel_has_no_verdict":                {{Then: newOrder + `'cancel', 'o', 'r', 'SUCCESS', now()` + ofInit}},

	"outcome_is_known":       {{Then: `insert into transfer_resolution (transfer_id, op, by, reason, outcome) select transfer_id, 'refund', 'o', 'r', 'maybe'` + ofInit}},
	"outcome_of_a_call":      {{Then: `insert into transfer_resolution (transfer_id, op, by, reason, outcome) select transfer_id, 'cancel', 'o', 'r', 'applied'` + ofInit}},
	"line_proves_an_outcome": {{Then: `insert into transfer_resolution (transfer_id, op, by, reason, line) select transfer_id, 'refund', 'o', 'r', 5` + ofInit}, {Then: `insert into transfer_resolution (transfer_id, op, by, reason, outcome, line) select transfer_id, 'refund', 'o', 'r', 'applied', 0` + ofInit}},

	"one_number_per_acknowledgement": {{newAck + `30, 'o', 'r', now() + interval '1 h'` + ofInit, `insert into transfer_acknowledgement (id, transfer_id, state, by, reason, at, until) overriding system value select id, transfer_id, state, by, reason, at, until from transfer_acknowledgement`}},
	"acknowledged_transfer_exists":   {{Then: `insert into transfer_acknowledgement (transfer_id, state, by, reason, until) values (-1, 30, 'o', 'r', now() + interval '1 h')`}},
	"acknowledged_in_flight":         {{Then: newAck + `0, 'o', 'r', now() + interval '1 h'` + ofInit}},
	"acknowledged_by_a_person":       {{Then: newAck + `30, '', 'r', now() + interval '1 h'` + ofInit}, {Then: newAck + `30, 'o', '', now() + interval '1 h'` + ofInit}},
	"acknowledged_for_a_time":        {{Then: newAck + `30, 'o', 'r', now() - interval '1 h'` + ofInit}, {Then: newAck + `30, 'o', 'r', now() + interval '32 days'` + ofInit}},

	"transfer_halt_pkey":          {{newHalt + `('all', null, null, '{}')`, `insert into transfer_halt (halt_id, scope, evidence) overriding system value select halt_id, scope, evidence from transfer_halt`}},
	"transfer_halt_asset_id_fkey": {{Then: newHalt + `('asset', null, 99, '{}')`}},
	"transfer_halt_scope_check":   {{Then: newHalt + `('user', null, 1, '{}')`}},
	"halt_fits_scope":             {{Then: newHalt + `('all', null, 1, '{}')`}, {Then: newHalt + `('asset', 7, 1, '{}')`}, {Then: newHalt + `('user_asset', null, 1, '{}')`}, {Then: newHalt + `('asset', null, null, '{}')`}},
	"day_of_payouts_is_an_amount": {
		{Then: `update assets_tb set daily_payout_amount = min_transfer_amount / 2`}, {Then: `update assets_tb set daily_payout_amount = 1.0000001`},
		{Then: `update assets_tb set daily_payout_amount = 18446744073709.551616`},
	},
	"service_deposits_are_an_amount": {
		{Then: `update assets_tb set daily_service_deposits = 0`}, {Then: `update assets_tb set daily_service_deposits = 1.0000001`},
		{Then: `update assets_tb set daily_service_deposits = 18446744073709.551616`},
	},
	"account_act_pkey":                {{oneAct, `insert into account_act (act_id, kind, request_id, ledger, user_id, asset_id, units, by, reason) overriding system value select act_id, kind, 'x', ledger, user_id, asset_id, units, by, reason from account_act`}},
	"account_act_kind_check":          {{Then: newAct + `('GIFT', 'w', 'FUNDING', 7, 1, 1, null, 'o', 'r', false, null, null)`}},
	"account_act_request_id_check":    {{Then: newAct + `('DEPOSIT', '', 'FUNDING', 7, 1, 1, null, 'o', 'r', false, null, null)`}, {Then: newAct + `('DEPOSIT', 'a b', 'FUNDING', 7, 1, 1, null, 'o', 'r', false, null, null)`}},
	"account_act_ledger_check":        {{Then: newAct + `('DEPOSIT', 'w', 'MARGIN', 7, 1, 1, null, 'o', 'r', false, null, null)`}},
	"account_act_user_id_check":       {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 0, 1, 1, null, 'o', 'r', false, null, null)`}},
	"account_act_asset_id_fkey":       {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 99, 1, null, 'o', 'r', false, null, null)`}},
	"account_act_units_check":         {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 0, null, 'o', 'r', false, null, null)`}, {Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 18446744073709551616, null, 'o', 'r', false, null, null)`}},
	"account_act_status_check":        {{Then: newAct + `('STATUS', null, null, 7, 1, null, 'GONE', 'o', 'r', false, null, null)`}},
	"account_act_by_check":            {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 1, null, '', 'r', false, null, null)`}},
	"account_act_reason_check":        {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 1, null, 'o', '', false, null, null)`}},
	"account_act_funding_check":       {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 1, null, 'o', 'r', false, 'no', null)`}},
	"account_act_trading_check":       {{Then: newAct + `('DEPOSIT', 'w', 'SPOT', 7, 1, 1, null, 'o', 'r', false, null, '')`}},
	"account_act_journal_read_check":  {{Then: `insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, journal_read) values ('DEPOSIT', 'w', 'SPOT', 7, 1, 1, 'o', 'r', -1)`}},
	"one_act_per_request":             {{oneAct, oneAct}},
	"act_is_complete":                 {{Then: newAct + `('DEPOSIT', null, 'FUNDING', 7, 1, 1, null, 'o', 'r', false, null, null)`}, {Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 1, 'FROZEN', 'o', 'r', false, null, null)`}, {Then: newAct + `('STATUS', null, null, 7, 1, null, null, 'o', 'r', false, null, null)`}},
	"service_deposits_only":           {{Then: newAct + `('WITHDRAWAL', 'w', 'FUNDING', 7, 1, 1, null, 'o', 'r', true, null, null)`}},
	"one_ledger_answers":              {{Then: newAct + `('DEPOSIT', 'w', 'FUNDING', 7, 1, 1, null, 'o', 'r', false, null, 'APPLIED')`}},
	"one_ending_per_act":              {{oneEnding, newEnding + `select act_id, 'o', 'r', 2, null, null from account_act`}},
	"account_act_ending_act_id_fkey":  {{Then: newEnding + `values (99, 'o', 'r', 1, null, null)`}},
	"account_act_ending_by_check":     {{oneAct, newEnding + `select act_id, '', 'r', 1, null, null from account_act`}},
	"account_act_ending_reason_check": {{oneAct, newEnding + `select act_id, 'o', '', 1, null, null from account_act`}},
	"ending_has_evidence": {
		{oneAct, newEnding + `select act_id, 'o', 'r', null, null, null from account_act`}, {oneAct, newEnding + `select act_id, 'o', 'r', 0, null, null from account_act`},
		{oneAct, newEnding + `select act_id, 'o', 'r', 1, 0, 9 from account_act`}, {oneAct, newEnding + `select act_id, 'o', 'r', null, 9, 8 from account_act`},
		{oneAct, newEnding + `select act_id, 'o', 'r', null, null, 8 from account_act`}, {oneAct, newEnding + `select act_id, 'o', 'r', null, 0, null from account_act`},
		{oneAct, newEnding + `select act_id, 'o', 'r', null, -1, 8 from account_act`},
	},
	"asset_change_pkey":              {{oneChange, `insert into asset_change (id, asset_id, by, reason, after) overriding system value select id, 1, 'o', 'r', '{}' from asset_change`}},
	"asset_change_asset_id_fkey":     {{Then: `insert into asset_change (asset_id, by, reason, after) values (99, 'o', 'r', '{}')`}},
	"asset_change_by_check":          {{Then: `insert into asset_change (asset_id, by, reason, after) values (1, '', 'r', '{}')`}},
	"asset_change_reason_check":      {{Then: `insert into asset_change (asset_id, by, reason, after) values (1, 'o', '', '{}')`}},
	"service_deposits_pkey":          {{`insert into service_deposits values (1, '2026-01-01', 1)`, `insert into service_deposits values (1, '2026-01-01', 1)`}},
	"service_deposits_asset_id_fkey": {{Then: `insert into service_deposits values (99, '2026-01-01', 1)`}},
	"service_deposits_units_check":   {{Then: `insert into service_deposits values (1, '2026-01-01', 0)`}},
	"one_number_per_address":         {{listed, `insert into payout_address (address_id, user_id, chain_id, address) overriding system value select address_id, 8, 1, address from payout_address`}},
	"one_listed_address":             {{listed, listed}},
	"address_of_a_user":              {{Then: newAddress + `(0, 1, ` + addr + `, null, null, null)`}},
	"address_on_a_chain":             {{Then: newAddress + `(7, 0, ` + addr + `, null, null, null)`}},
	"address_is_canonical":           {{Then: newAddress + `(7, 1, '0x00000000000000000000000000000000000000C3', null, null, null)`}, {Then: newAddress + `(7, 1, '0xc3', null, null, null)`}},
	"removal_is_complete": {
		{Then: newAddress + `(7, 1, ` + addr + `, now(), null, null)`}, {Then: newAddress + `(7, 1, ` + addr + `, null, 'user', null)`},
		{Then: newAddress + `(7, 1, ` + addr + `, now(), 'o', null)`}, {Then: newAddress + `(7, 1, ` + addr + `, now(), 'user', 'r')`},
	},
	"one_number_per_block":   {{blocked, `insert into payout_address_block (block_id, user_id, by, reason) overriding system value select block_id, 8, by, reason from payout_address_block`}},
	"one_open_block":         {{blocked, blocked}},
	"block_of_a_user":        {{Then: newBlock + `(0, 'o', 'r', null, null, null)`}},
	"blocked_by_a_person":    {{Then: newBlock + `(7, '', 'r', null, null, null)`}, {Then: newBlock + `(7, 'o', '', null, null, null)`}},
	"lifted_by_a_person":     {{Then: newBlock + `(7, 'o', 'r', now(), null, 'r')`}, {Then: newBlock + `(7, 'o', 'r', now(), 'o', null)`}, {Then: newBlock + `(7, 'o', 'r', null, 'o', 'r')`}},
	"resumed_by_an_operator": {{newHalt + `('all', null, null, '{}')`, `update transfer_halt set resumed_at = now(), resumed_by = 'o'`}, {newHalt + `('all', null, null, '{}')`, `update transfer_halt set resumed_at = now(), resume_reason = 'r'`}},
}

const retiredPayer = `insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by, status) values ('eip155:1337:0x00000000000000000000000000000000000000a2', 'local', 0, 1, '{transfer}', 'test', 'RETIRED')`

// guarded lists statements that one trigger must refuse, with the name that it raises.
var guarded = map[string][]storetest.Duty{
	// On the other tables: see store's test of a planned move.
	"refuse_while_moving": {{"transfers_tb", aMove, `update transfers_tb set updated_at = now() where req_id = $init`, "move_expected"}},
	"refuse_retired_payer_of_asset": {
		{"assets_tb", retiredPayer, newAsset + `(9, 'PAID', 6, 1, 1, null, 1337, 'eip155:1337:0x00000000000000000000000000000000000000a2', null, 8)`, "retired_pays_nothing"},
	},
	"refuse_another_retired_payer": {
		{"assets_tb", retiredPayer + "; " + newAsset + `(9, 'PAID', 6, 1, 1, null, null, null, null, null)`,
			`update assets_tb set payout_submitter = 'eip155:1337:0x00000000000000000000000000000000000000a2', chain_id = 1337, chain_decimals = 8 where asset_id = 9`, "retired_pays_nothing"},
	},
	"refuse_retired_payer": {{"transfers_tb", retiredPayer,
		newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, 'eip155:1337:0x00000000000000000000000000000000000000a2', 1337, null, ` + addr + `, 1, '{}')`, "retired_pays_nothing"}},
	"guard_account_act": {
		{"account_act", oneAct, `delete from account_act`, byGuard}, {"account_act", oneAct, `update account_act set units = 2`, byGuard},
		{"account_act", oneAct, `update account_act set funding = 'OVERFLOW'`, byGuard},
		{"account_act", oneAct + `; update account_act set journal_read = 7`, `update account_act set journal_read = 6`, byGuard},
		{"account_act", newAct + `('DEPOSIT', 'w', 'SPOT', 7, 1, 1, null, 'o', 'r', false, null, 'APPLIED')`, `update account_act set trading = null`, byGuard},
	},
	"guard_account_acts_truncate":        {{"account_act", `alter table account_act_ending drop constraint account_act_ending_act_id_fkey`, `truncate account_act`, byGuard}},
	"guard_account_act_endings":          {{"account_act_ending", oneEnding, `delete from account_act_ending`, byGuard}, {"account_act_ending", oneEnding, `update account_act_ending set reason = 'x'`, byGuard}},
	"guard_account_act_endings_truncate": {{"account_act_ending", "", `truncate account_act_ending`, byGuard}},
	"guard_asset_changes":                {{"asset_change", oneChange, `delete from asset_change`, byGuard}, {"asset_change", oneChange, `update asset_change set reason = 'x'`, byGuard}},
	"guard_asset_changes_truncate":       {{"asset_change", "", `truncate asset_change`, byGuard}},
	"refuse_stale_payer":                 {{"transfers_tb", "", newPayout + `(` + req + `, 7, 1, 1, 6, 3, 1, 'eip155:1337:0x00000000000000000000000000000000000000a9', 1337, null, ` + addr + `, 1, '{}')`, "payout_of_the_payer"}},
	"guard_asset_terms": {
		{"assets_tb", "", `update assets_tb set payout_submitter = 'eip155:1337:0x00000000000000000000000000000000000000a2' where payout_submitter is not null`, "payer_of_open_payouts"},
		{"assets_tb", `insert into balances_tb (user_id, asset_id, precision, available) select 7, asset_id, precision, 0 from assets_tb where payout_submitter is not null`,
			`update assets_tb set chain_decimals = 19 where payout_submitter is not null`, "terms_of_entries"},
	},
	"begin_transfer": {
		{"transfers_tb", "", `insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state) values (` + req + `, 7, 1, 1, 6, 1, 1, 40)`, "transfers_begin_in_init"},
		{"transfers_tb", "", `insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, retry_count) values (` + req + `, 7, 1, 1, 6, 1, 1, 4)`, "transfers_begin_in_init"},
	},
	"guard_transfer": {
		{"transfers_tb", "", `update transfers_tb set updated_at = now() where req_id = $done`, "final_never_changes"},
		{"transfers_tb", "", `update transfers_tb set state = -10, error_message = 'ACCOUNT_FROZEN' where req_id = $init`, "transitions_only"},
		{"transfers_tb", "", `update transfers_tb set state = -10, error_message = 'CANCELLED' where req_id = $source`, "transitions_only"},
		{"transfers_tb", "", `update transfers_tb set state = -30, error_message = 'OTHER' where req_id = $comp`, "transitions_only"},
		{"transfers_tb", "", `update transfers_tb set error_message = 'OTHER' where req_id = $comp`, "binding_never_changes"},
		{"transfers_tb", `update transfers_tb set retry_count = 2 where req_id = $source`, `update transfers_tb set retry_count = 1 where req_id = $source`, "binding_never_changes"},
	},
	"guard_transfer_binding": {
		{"transfers_tb", "", `update transfers_tb set req_id = ` + req + ` where req_id = $init`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set cid = 'other' where req_id = $init`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set user_id = 8 where req_id = $init`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set amount = 2 where req_id = $init`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set transfer_type = 2, source_type = 2 where req_id = $init`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set created_at = now() where req_id = $init`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set payout_address = '0x00000000000000000000000000000000000000c4' where req_id = $pay`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set payout_submitter = 'eip155:1337:0x00000000000000000000000000000000000000a2' where req_id = $pay`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set payout_token = null where req_id = $pay`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set payout_base_units = 1 where req_id = $pay`, "binding_never_changes"},
		{"transfers_tb", "", `update transfers_tb set payout_payload = '[]' where req_id = $pay`, "binding_never_changes"},
	},
	"guard_asset": {
		{"assets_tb", "", `update assets_tb set asset = 'X'`, "scale_never_changes"},
		{"assets_tb", `alter table transfers_tb drop constraint precision_is_the_assets`, `update assets_tb set precision = 7`, "scale_never_changes"},
	},
	"guard_transfer_delete":  {{"transfers_tb", "", `delete from transfers_tb where req_id = $init`, byGuard}},
	"guard_asset_delete":     {{"assets_tb", "", `delete from assets_tb`, byGuard}},
	"guard_transfer_history": {{"transfer_history", "", `delete from transfer_history`, byGuard}, {"transfer_history", "", `update transfer_history set state = 0`, byGuard}},
	"guard_resolution": {
		{"transfer_resolution", newOrder + `'refund', 'o', 'r', null, null` + ofInit, `delete from transfer_resolution`, byGuard},
		{"transfer_resolution", newOrder + `'refund', 'o', 'r', null, null` + ofInit, `update transfer_resolution set by = 'other'`, byGuard},
		{"transfer_resolution", newOrder + `'refund', 'o', 'r', 'UNKNOWN', now()` + ofInit, `update transfer_resolution set verdict = 'SUCCESS'`, byGuard},
	},
	"guard_halt": {
		{"transfer_halt", newHalt + `('all', null, null, '{}')`, `delete from transfer_halt`, byGuard},
		{"transfer_halt", newHalt + `('all', null, null, '{}')`, `update transfer_halt set evidence = '[]'`, byGuard},
		{"transfer_halt", newHalt + `('all', null, null, '{}'); update transfer_halt set resumed_at = now(), resumed_by = 'o', resume_reason = 'r'`, `update transfer_halt set resumed_at = null, resumed_by = null, resume_reason = null`, byGuard},
	},
	"guard_payout_address": {
		{"payout_address", listed, `delete from payout_address`, byGuard},
		{"payout_address", listed, `update payout_address set added_at = added_at - interval '1 day'`, byGuard},
		{"payout_address", newAddress + `(7, 1, ` + addr + `, now(), 'user', null)`, `update payout_address set removed_at = null, removed_by = null`, byGuard},
	},
	"guard_payout_addresses_truncate": {{"payout_address", "", `truncate payout_address`, byGuard}},
	"guard_payout_address_block": {
		{"payout_address_block", blocked, `delete from payout_address_block`, byGuard},
		{"payout_address_block", blocked, `update payout_address_block set reason = 'other'`, byGuard},
		{"payout_address_block", newBlock + `(7, 'o', 'r', now(), 'o', 'r')`, `update payout_address_block set lifted_at = null, lifted_by = null, lift_reason = null`, byGuard},
	},
	"guard_payout_address_blocks_truncate": {{"payout_address_block", "", `truncate payout_address_block`, byGuard}},
	"guard_transfers_truncate":             {{"transfers_tb", unguarded("transfers_tb"), `truncate transfers_tb cascade`, byGuard}},
	"guard_assets_truncate":                {{"assets_tb", unguarded("assets_tb"), `truncate assets_tb cascade`, byGuard}},
	"guard_transfer_history_truncate":      {{"transfer_history", "", `truncate transfer_history`, byGuard}},
	"guard_resolutions_truncate":           {{"transfer_resolution", "", `truncate transfer_resolution`, byGuard}},
	"guard_acknowledgement": {
		{"transfer_acknowledgement", newAck + `30, 'o', 'r', now() + interval '1 h'` + ofInit, `delete from transfer_acknowledgement`, byGuard},
		{"transfer_acknowledgement", newAck + `30, 'o', 'r', now() + interval '1 h'` + ofInit, `update transfer_acknowledgement set until = now() + interval '2 h'`, byGuard},
	},
	"guard_acknowledgements_truncate": {{"transfer_acknowledgement", "", `truncate transfer_acknowledgement`, byGuard}},
	"guard_halts_truncate":            {{"transfer_halt", "", `truncate transfer_halt`, byGuard}},
}

// unguarded disables the guards of each table but one, since a truncate includes the referencing
// tables.
func unguarded(but string) string {
	return `do $$ declare t regclass; begin
		for t in select oid::regclass from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' and oid <> '` + but + `'::regclass loop
			execute format('alter table %s disable trigger user', t);
		end loop; end $$; `
}

const byGuard = "history_never_changes"

// plant creates rows for the statements, and returns their placeholders.
func plant(t *testing.T, b bench) *strings.Replacer {
	t.Helper()
	var words []string
	name := func(word string, x transfer.Transfer) { words = append(words, "$"+word, "'"+x.ReqID+"'") }
	name("init", b.created(t, request("c-1")))
	name("source", b.at(t, transfer.SourcePending))
	name("target", b.at(t, transfer.TargetPending))
	name("comp", b.at(t, transfer.Compensating))
	name("done", b.at(t, transfer.Committed))
	b.offer(t, payable)
	name("pay", b.created(t, payout()))
	return strings.NewReplacer(words...)
}

// For each constraint in the schema of transfers a test shows what it refuses.
func TestEveryConstraintRejectsItsForbiddenRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ShowRefusals(t, plant(t, b), nonsense, `
		select conname::text from pg_constraint where conrelid in `+ours+` and contype in ('c', 'f', 'p', 'u', 'x')
		 union
		select i.indexrelid::regclass::text from pg_index i where i.indrelid in `+ours+` and i.indisunique
		   and not exists (select from pg_constraint k where k.conindid = i.indexrelid)`)
}

// For each trigger in the schema of transfers a test shows that it alone refuses a statement.
func TestEveryTriggerDoesItsDuty(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// The others refuse nothing: the happy path's states show what they record.
	b.ShowDuties(t, plant(t, b), guarded, []string{"record_new_transfer", "record_transfer", "name_approval"},
		`select tgname::text from pg_trigger where tgrelid in `+ours+` and not tgisinternal`)
}

// The database has the domain's table of transitions, pair by pair, in the result of an update in each
// state.
func TestTheDatabaseHasTheSameTransitions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, from := range transfer.States() {
		x := b.at(t, from)
		for _, to := range transfer.States() {
			if from == to {
				continue
			}
			reason := "null"
			if to == transfer.Failed || to == transfer.Compensating || to == transfer.RolledBack {
				reason = map[bool]string{true: "'CANCELLED'", false: "coalesce(error_message, 'ACCOUNT_FROZEN')"}[from == transfer.Init]
			}
			err := b.Try(t, "", fmt.Sprintf(`update transfers_tb set error_message = %s, state = %d where req_id = '%s'`, reason, to, x.ReqID))
			throughDone := from == transfer.SourcePending && to == transfer.TargetPending // recorded as two transitions
			if want := from.MayBecome(to) || throughDone; (err == nil) != want {
				t.Errorf("%s to %s by an update: got %v, want it allowed %t", from, to, err, want)
			}
		}
	}
}
