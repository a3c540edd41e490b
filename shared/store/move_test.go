package store_test

import "strings"

// What the tables of a planned move refuse, and what the others refuse meanwhile.
func init() {
	const (
		newMove = `insert into database_move (mark, from_system, from_timeline, by, reason) values `
		aMove   = newMove + `('m', 1, 1, 'o', 'r')`
		ends    = `update database_move set outcome = 'CANCELLED', ended_at = now(), ended_by = 'o', ended_reason = 'r'`
	)
	for name, r := range map[string]refusal{
		"database_move_by_check":           {"", newMove + `('m', 1, 1, '', 'r')`},
		"database_move_reason_check":       {"", newMove + `('m', 1, 1, 'o', '')`},
		"database_move_pkey":               {aMove + `; ` + ends, `insert into database_move overriding system value select * from database_move`},
		"database_move_outcome_check":      {aMove, strings.Replace(ends, "CANCELLED", "LOST", 1)},
		"database_move_ended_by_check":     {aMove, strings.Replace(ends, "ended_by = 'o'", "ended_by = ''", 1)},
		"database_move_ended_reason_check": {aMove, strings.Replace(ends, "ended_reason = 'r'", "ended_reason = ''", 1)},
		"move_is_ended_by_an_operator":     {aMove, `update database_move set ended_at = now()`},
		"confirmed_on_a_server":            {aMove, strings.Replace(ends, "CANCELLED", "CONFIRMED", 1)},
		"one_open_move":                    {aMove, aMove},
	} {
		furtherNonsense[name] = []refusal{r}
	}
	guarded["guard_move"] = []duty{{"database_move", aMove + `; ` + ends, `update database_move set reason = 'another'`, byGuard}}
	guarded["guard_move_row"] = []duty{{"database_move", aMove, `delete from database_move`, byGuard}}
	guarded["guard_moves_truncate"] = []duty{{"database_move", "", `truncate database_move`, byGuard}}

	var stopped []duty
	for _, table := range []string{"submitter_lease", "submitter_nonce_cursor", "managed_tx", "tx_version", "tx_decision", "transfers_tb",
		"transfer_operations", "balances_tb", "submitter", "submitter_policy", "submitter_change", "payout_statement", "payout_confirmed",
		"payout_proof", "transfer_resolution", "transfer_halt", "payout_address", "payout_address_block", "foreign_hold", "event_counter", "conservation_adjustment", "database_mark"} {
		stopped = append(stopped, duty{table, aMove, `insert into ` + table + ` default values`, "move_expected"})
	}
	for _, update := range []string{`submitter_lease set rerun_requested = true`, `submitter_nonce_cursor set next_nonce = next_nonce`, `managed_tx set held = held`} {
		table, _, _ := strings.Cut(update, " ")
		stopped = append(stopped, duty{table, aMove, `update ` + update, "move_expected"})
	}
	guarded["refuse_while_moving"] = stopped
}
