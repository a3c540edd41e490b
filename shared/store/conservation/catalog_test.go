package conservation_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

const (
	newSum        = `insert into conservation_sum (generation, side, user_id, asset_id, units) select generation`
	newRequest    = `insert into conservation_request (generation, req_id, user_id, asset_id, units, debit, type, final, open) select generation`
	newScale      = `insert into conservation_scale (generation, side, asset_id, precision) select generation`
	newFinding    = `insert into conservation_finding (generation, kind, user_id, asset_id, expected, got, evidence) values `
	newReading    = `insert into conservation_chain (submitter, start_block, block, block_hash, sent, final_block) select submitter`
	newPayment    = `insert into conservation_payment (submitter, tx_hash, log_index, pass, block_number, block_hash, amount, outcome) select submitter`
	newAdjustment = `insert into conservation_adjustment (finding_id, side, op, user_id, asset_id, units, by, reason`
	fromHere      = ` from conservation_checkpoint where is_current`
)

// forbidden maps each constraint, index or trigger to the statements that it must reject.
var forbidden = map[string][]string{
	"one_checkpoint_per_generation": {`insert into conservation_checkpoint (generation, epoch) overriding system value select generation, epoch` + fromHere},
	"version_counts_up":             {`update conservation_checkpoint set version = -1`},
	"one_current_checkpoint":        {`insert into conservation_checkpoint (epoch, is_current) values ('another', true)`},
	"one_sum_per_account":           {newSum + `, 'FUNDING', 7, 1, 5` + fromHere},
	"sum_of_a_generation":           {`insert into conservation_sum (generation, side, user_id, asset_id, units) values (99, 'SPOT', 7, 1, 5)`},
	"sum_of_a_side":                 {newSum + `, 'MARGIN', 7, 1, 5` + fromHere},
	"one_evidence_per_request":      {newRequest + `, lpad('1', 26, '0'), 7, 1, 5, null, 0, 0, false` + fromHere},
	"evidence_of_a_generation":      {`insert into conservation_request (generation, req_id, user_id, asset_id, units, type, final, open) values (99, 'r', 7, 1, 5, 0, 0, false)`},
	"evidence_of_sides":             {newRequest + `, 'r', 7, 1, 5, 'MARGIN', 0, 0, false` + fromHere},
	"evidence_is_final_or_not":      {newRequest + `, 'r', 7, 1, 5, null, 0, 10, false` + fromHere},
	"one_scale_each":                {newScale + `, 'SPOT', 1, 2` + fromHere},
	"scale_of_a_generation":         {`insert into conservation_scale (generation, side, asset_id, precision) values (99, 'SPOT', 7, 1)`},
	"scale_of_a_side":               {newScale + `, 'MARGIN', 1, 2` + fromHere},
	"one_number_per_finding": {`insert into conservation_finding (finding_id, generation, kind, user_id, asset_id, expected, got, evidence) overriding system value
		select finding_id, generation, kind, user_id, asset_id, expected, got, evidence from conservation_finding`},
	"finding_is_named": {newFinding + `(1, '', 7, 1, '', '', '{}')`},
	"one_number_per_adjustment": {`insert into conservation_adjustment (id, finding_id, side, op, user_id, asset_id, units, by, reason) overriding system value
		select id, finding_id, side, op, user_id, asset_id, units, by, reason from conservation_adjustment`},
	"one_adjustment_per_finding": {newAdjustment + `, applied_at) select finding_id, 'FUNDING', 'journal_credit', 7, 1, 1, 'o', 'r', now() from conservation_adjustment`},
	"adjusted_finding_exists":    {newAdjustment + `) values (99, 'FUNDING', 'journal_credit', 7, 1, 1, 'o', 'r')`},
	"adjustment_of_a_side":       {newAdjustment + `) select finding_id, 'CHAIN', 'journal_credit', 7, 1, 1, 'o', 'r' from conservation_adjustment`},
	"adjustment_is_known":        {newAdjustment + `) select finding_id, 'SPOT', 'deposit', 7, 1, 1, 'o', 'r' from conservation_adjustment`},
	"adjusted_by_a_person": {newAdjustment + `) select finding_id, 'SPOT', 'journal_credit', 7, 1, 1, '', 'r' from conservation_adjustment`,
		newAdjustment + `) select finding_id, 'SPOT', 'journal_credit', 7, 1, 1, 'o', '' from conservation_adjustment`},
	"adjustment_moves_something": {newAdjustment + `) select finding_id, 'SPOT', 'journal_credit', 7, 1, 0, 'o', 'r' from conservation_adjustment`},

	"one_reading_per_payer":  {newReading + `, 1, 1, '0x', 0, 1 from conservation_chain`},
	"reading_of_a_submitter": {newReading + `, 1, 1, '0x', 0, 1 from (values ('eip155:1337:0x00000000000000000000000000000000000000c9'::submitter_id)) as s (submitter)`},
	"reading_is_in_order":    {`update conservation_chain set block = start_block - 1`, `update conservation_chain set pass = 0`, `update conservation_chain set sent = -1`},
	"one_row_per_payment":    {newPayment + `, tx_hash, log_index, 1, 1, '0x', 1, null from conservation_payment`},
	"payment_of_a_reading":   {newPayment + `, '0x2', -1, 1, 1, '0x', 1, null from (values ('eip155:1337:0x00000000000000000000000000000000000000c9'::submitter_id)) as s (submitter)`},
	"payment_is_some_money":  {newPayment + `, '0x2', -1, 1, 1, '0x', 0, null from conservation_chain`, newPayment + `, '0x2', -2, 1, 1, '0x', 1, null from conservation_chain`},
	"payment_has_canonical_addresses": {
		`update conservation_payment set token = '0x00000000000000000000000000000000000000C3'`, `update conservation_payment set token = ''`,
		`update conservation_payment set recipient = '0x00000000000000000000000000000000000000C3'`, `update conservation_payment set recipient = '0xc3'`},
	"payment_outcome_is_known": {newPayment + `, '0x2', -1, 1, 1, '0x', 1, 'PAID' from conservation_chain`, newPayment + `, '0x2', -1, 1, 1, '0x', 1, 'LOST' from conservation_chain`},
	"one_row_per_owed":         {`insert into conservation_owed (req_id) select req_id from conservation_owed`},

	"stands_once":           {`insert into conservation_standing (key, finding_id) select key, finding_id from conservation_standing`},
	"what_stands_was_found": {`insert into conservation_standing (key, finding_id) values ('another', 99)`},
	"history_never_changes": {`delete from conservation_finding`, `update conservation_finding set got = 'as it should be'`,
		`truncate conservation_finding cascade`, `delete from conservation_adjustment`, `truncate conservation_adjustment`,
		`update conservation_adjustment set reason = 'another'`, `update conservation_adjustment set applied_at = null`},
}

// Each constraint of the check's tables rejects its forbidden statements.
func TestEveryConstraintRejectsItsForbiddenRows(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	w.steal(alice, gold, 1)
	w.check(false)
	w.main.Run(t, newScale+`, 'SPOT', 1, 2`+fromHere)
	w.main.Run(t, `insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by)
		values ('eip155:1337:0x00000000000000000000000000000000000000c3', 's', 0, 1, '{transfer}', 'o')`)
	w.main.Run(t, newReading+`, 1, 1, '0x', 0, 1 from submitter`)
	w.main.Run(t, newPayment+`, '0x1', -1, 1, 1, '0x', 1, null from submitter`)
	w.main.Run(t, `insert into conservation_owed (req_id) values ('r')`)
	check.OK(t)(w.adjust(true))
	w.main.ShowRefusals(t, strings.NewReplacer(), storetest.Statements(forbidden), `
select conname::text from pg_constraint
 where conrelid::regclass::text like 'conservation\_%' and contype in ('c', 'f', 'p', 'u', 'x')
 union
select i.indexrelid::regclass::text from pg_index i
 where i.indrelid::regclass::text like 'conservation\_%' and i.indisunique and not exists (select from pg_constraint k where k.conindid = i.indexrelid)`)
}
