package store_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	moves "github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

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
		"payout_proof", "transfer_resolution", "transfer_halt", "payout_address", "payout_address_block", "foreign_hold", "event_counter", "conservation_adjustment", "database_mark", "webhook_act",
		"account_act", "account_act_ending", "asset_change", "service_deposits"} {
		stopped = append(stopped, duty{table, aMove, `insert into ` + table + ` default values`, "move_expected"})
	}
	for _, update := range []string{`submitter_lease set rerun_requested = true`, `submitter_nonce_cursor set next_nonce = next_nonce`, `managed_tx set held = held`} {
		table, _, _ := strings.Cut(update, " ")
		stopped = append(stopped, duty{table, aMove, `update ` + update, "move_expected"})
	}
	guarded["refuse_while_moving"] = stopped
}

// Where another operator expects a move again, and it gets another mark by that, both are on
// record, each once. While a move is expected no copy is accepted, so that it can be called
// off only before that.
func TestEachOperatorWhoExpectsAMoveIsOnRecord(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	expect := func(by, reason string) moves.Mark {
		t.Helper()
		m, _, err := db.Expect(t.Context(), moves.Observed{}, moves.OperatorReason{By: by, Reason: reason})
		check.OK(t)(err)
		return m
	}
	expect("ann", "postgres 16")
	expect("ann", "postgres 16")
	expect("bob", "ann's run broke off")
	last := expect("bob", "ann's run broke off")
	said := `select by || ' | ' || reason from database_move where ended_at is null`
	want := "ann, bob | postgres 16; bob: ann's run broke off"
	check.Equal(t, "who and why", value[string](t, db, said), want)
	if _, done, err := db.Expect(t.Context(), moves.Observed{Mark: last}, moves.OperatorReason{By: "cid", Reason: "once more"}); err != nil || !done || value[string](t, db, said) != want {
		t.Errorf("what changed nothing: got done %v, %v, and %q on record; want %q", done, err, value[string](t, db, said), want)
	}
	distrusted(t, db)
	if err := db.AcceptDatabase(t.Context(), "ann", "restored"); !store.IsMoving(err) {
		t.Errorf("an acceptance meanwhile: got %v, want it refused for the move", err)
	}
}

// Two operators end one move. The later one writes no mark.
func TestAMoveThatHasEndedGetsNoMark(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	_, _, err := db.Expect(t.Context(), moves.Observed{}, moves.OperatorReason{By: "ann", Reason: "postgres 18"})
	check.OK(t)(err)
	m, err := db.Expected(t.Context())
	check.OK(t)(err)
	db.Run(t, `update database_move set outcome = 'CANCELLED', ended_at = now(), ended_by = 'ann', ended_reason = 'r'`)
	marks := value[int](t, db, `select count(*) from database_mark`)
	check.Err(t, "the end of a move that has ended", moves.ErrNoMove)(db.PrepareEnd(t.Context(), m, 0, moves.Cancels))
	check.Equal(t, "marks", value[int](t, db, `select count(*) from database_mark`), marks)
}

// A transaction at work holds one table of a move and wants another, which the move has
// locked already. Postgres ends the move's transaction; the move is tried again, and
// succeeds once the other has ended.
func TestExpectedMoveOutlivesADeadlock(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	work := db.Holding(t, `set local deadlock_timeout = '1min'`)
	work.Do(`lock table managed_tx in row exclusive mode`)
	moving := storetest.Start(func() (m moves.Mark, err error) {
		m, _, err = db.Expect(t.Context(), moves.Observed{}, moves.OperatorReason{By: "ada", Reason: "test"})
		return m, err
	})
	storetest.Await(t, "the move waits", func() bool {
		return value[bool](t, db, `select exists (select from pg_locks where relation = 'managed_tx'::regclass and not granted and database = (select oid from pg_database where datname = current_database()))`)
	})
	work.Do(`lock table submitter_lease in row exclusive mode`)
	work.Do("commit")
	check.OK(t)((<-moving).Err)
}
