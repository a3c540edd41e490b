package store_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// notOperators are the columns of reasons that belong to no act of an operator, with the cause.
var notOperators = map[string]string{
	"intent_mac_rule.reason":             "an act of the command migrate",
	"database_move.reason":               "an act of the command migrate",
	"database_move.ended_reason":         "an act of the command migrate",
	"event_endpoint.pause_reason":        "webhook_act has the act",
	"transfer_resolution.verdict_reason": "the ledger's",
}

// Each column in which a person's reason is stored is a source of the list of acts. A table that a later migration adds
// must be one too, or be named above.
func TestEveryReasonOfAPersonIsListed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	columns := db.Names(t, `
select c.table_name || '.' || c.column_name
  from information_schema.columns c
 where c.table_schema = 'public' and c.column_name ~ '(^|_)reason$'
   and exists (select from information_schema.columns o where o.table_schema = 'public' and o.table_name = c.table_name and o.column_name ~ '(^|_)by$')`)
	listed := store.ActReasons()
	for _, column := range columns {
		if _, named := notOperators[column]; named == slices.Contains(listed, column) {
			t.Errorf("%s: got it listed %t; append its table to actSources, or say here why it is no operator's", column, !named)
		}
	}
	for column := range notOperators {
		if !slices.Contains(columns, column) {
			t.Errorf("%s: there is no such column", column)
		}
	}
	if len(columns) < 20 {
		t.Errorf("columns of reasons: got %d, want at least 20", len(columns))
	}
}

// plantActs stores one act in each source's table, with a reason that names the table, a second apart.
func plantActs(t *testing.T, db storetest.Bundle) (acts int) {
	t.Helper()
	db.Register(t, alice, 1)
	post(t, db, alice, "r")
	conn := db.Connect(t)
	conn.Do(`set session_replication_role = replica`)
	when := func() string {
		acts++
		return fmt.Sprintf(`'2026-01-01'::timestamptz + interval '%d s'`, acts)
	}
	for _, s := range []string{
		`update submitter set created_at = $at, start_reason = 'submitter', created_by = 'ann'`,
		`insert into submitter_change (submitter, action, by, reason, at) values ($alice, 'SUSPEND', 'ann', 'submitter_change', $at)`,
		`insert into tx_decision (tx_id, action, by, reason, operator, at) select tx_id, 'WAIT', 'ann', 'tx_decision', true, $at from managed_tx`,
		`insert into protect_incident (submitter, incident, evidence, closed_at, closed_by, mode, reason, released) values ($alice, 1, '{}', $at, 'ann', 'resume', 'protect_incident', '{"nextNonce": 3}')`,
		`insert into foreign_hold (submitter, nonce, call_digest, ended_at, outcome, by, reason) values ($alice, 1, '\x', $at, 'WRITTEN_OFF', 'ann', 'foreign_hold')`,
		`insert into identity_change (system_identifier, timeline_id, by, reason, at) values (1, 1, 'ann', 'identity_change', $at)`,
		`insert into transfer_resolution (transfer_id, op, by, reason, at) values (1, 'withdraw', 'ann', 'transfer_resolution', $at)`,
		`insert into transfer_acknowledgement (transfer_id, state, by, reason, at, until) values (1, 30, 'ann', 'transfer_acknowledgement', $at, $at + interval '1 day')`,
		`insert into transfer_halt (scope, evidence, resumed_at, resumed_by, resume_reason) values ('all', '{}', $at, 'ann', 'transfer_halt')`,
		`insert into payout_statement (req_id, of_confirmed, paid, tx_hash, by, reason, at) values ('01ARZ3NDEKTSV4RRFFQ69G5FAV', false, true, '0x' || repeat('ab', 32), 'ann', 'payout_statement', $at)`,
		`update payout_statement set withdrawn_at = $at, withdrawn_by = 'ann', withdraw_reason = 'payout_statement withdrawn'`,
		`insert into payout_address (user_id, chain_id, address, removed_at, removed_by, remove_reason) values (7, 1, '0x' || repeat('ab', 20), $at, 'ann', 'payout_address'), (7, 1, '0x' || repeat('cd', 20), $at, 'user', null)`,
		`insert into payout_address_block (user_id, at, by, reason) values (7, $at, 'ann', 'payout_address_block')`,
		`update payout_address_block set lifted_at = $at, lifted_by = 'ann', lift_reason = 'payout_address_block lifted'`,
		`insert into conservation_adjustment (finding_id, side, op, user_id, asset_id, units, by, reason, at) values (1, 'FUNDING', 'balance_credit', 7, 1, 5, 'ann', 'conservation_adjustment', $at)`,
		newProposal + `'\x01', ` + isOpen,
		`update proposal set reason = 'proposal', created_at = $at`,
		`update proposal set status = 'APPROVED', approved_by = 'ben', approver_names = '{ben}', approve_reason = 'proposal approved', approved_at = $at`,
		`update proposal set status = 'REJECTED', closed_by = 'ann', close_reason = 'proposal rejected', closed_at = $at`,
		`insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount) values (1, 'USDT', 2, 1, 9)`,
		`insert into asset_change (asset_id, by, reason, at, after) values (1, 'ann', 'asset_change', $at, '{}')`,
		`insert into account_act (kind, user_id, asset_id, status, by, reason, at) values ('STATUS', 7, 1, 'FROZEN', 'ann', 'account_act', $at)`,
		`insert into account_act_ending (act_id, by, reason, at, line) select act_id, 'ann', 'account_act_ending', $at, 7 from account_act`,
		`insert into webhook_act (endpoint, action, by, reason, at) values ('hook', 'PAUSE', 'ann', 'webhook_act', $at)`,
	} {
		if strings.Contains(s, "$at") {
			s = strings.ReplaceAll(s, "$at", when())
		}
		conn.Do(strings.ReplaceAll(s, "$alice", "'"+string(alice)+"'"))
	}
	return acts
}

func actsOf(t *testing.T, db storetest.Bundle, q store.ActQuery) (all []store.OperatorAct, pages int) {
	t.Helper()
	for {
		page, next, err := db.OperatorActs(t.Context(), q)
		check.OK(t)(err)
		all, pages = append(all, page...), pages+1
		if next == nil {
			return all, pages
		}
		q.Before = next
	}
}

// Each source is listed, newest first, each act once however long the pages are, and by every filter. Decisions of
// callers are not.
func TestOperatorActsAreOneList(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	want := plantActs(t, db)
	check.Equal(t, "acts, one of each source", want, len(store.ActStatements()))
	for _, size := range []int{1, 4, want - 1, want, 1000} {
		all, pages := actsOf(t, db, store.ActQuery{Size: size})
		reasons := make(map[string]bool)
		for i, a := range all {
			reasons[*a.Reason] = true
			if i > 0 && !a.At.Before(all[i-1].At) || !slices.Contains(store.ActNames(), a.Act) || a.Kind == "" || a.Subject == "" && a.Kind != "database" && !strings.HasPrefix(*a.Reason, "transfer_") {
				t.Errorf("%d a page, act %d: got %+v", size, i, a)
			}
		}
		if len(all) != want || len(reasons) != want || pages != (want+size-1)/size {
			t.Errorf("%d a page: got %d acts with %d reasons on %d pages, want %d on %d", size, len(all), len(reasons), pages, want, (want+size-1)/size)
		}
	}
	for name, c := range map[string]struct {
		q    store.ActQuery
		want int
	}{
		"an operator":        {store.ActQuery{By: "ben", Size: 9}, 1},
		"nobody":             {store.ActQuery{By: "eve", Size: 9}, 0},
		"an act":             {store.ActQuery{Act: "suspend", Size: 9}, 1},
		"another act":        {store.ActQuery{Act: "resume", Size: 9}, 0},
		"a submitter":        {store.ActQuery{Subject: string(alice), Size: 99}, 5},
		"a user":             {store.ActQuery{Subject: "7", Act: "address-remove", Size: 9}, 1},
		"since the last two": {store.ActQuery{Since: time.Date(2026, 1, 1, 0, 0, want-1, 0, time.UTC), Size: 9}, 2},
		"since tomorrow":     {store.ActQuery{Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Size: 9}, 0},
	} {
		if all, _ := actsOf(t, db, c.q); len(all) != c.want {
			t.Errorf("%s: got %+v, want %d", name, all, c.want)
		}
	}
}

// A rare act is found behind more others than one window has, on a full page, and acts of the same time are not lost
// between pages.
func TestOperatorActsWalkOnUntilThePageIsFull(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Run(t, `alter table submitter_change disable trigger user`)
	db.Run(t, `insert into submitter_change (submitter, action, by, reason, at)
		select $1, case when n % 1500 = 0 then 'RETIRE' else 'SUSPEND' end, 'ann', 'r', '2026-01-01'::timestamptz + n / 7 * interval '1 s' from generate_series(1, 4500) n`, alice)
	page, next, err := db.OperatorActs(t.Context(), store.ActQuery{Act: "retire", Size: 3})
	if err != nil || len(page) != 3 || next != nil {
		t.Errorf("retirements: got %d, next %v, %v; want three on one page", len(page), next, err)
	}
	all, pages := actsOf(t, db, store.ActQuery{Act: "suspend", Size: 400})
	seen := make(map[int64]bool)
	for _, a := range all {
		seen[a.ID] = true
	}
	if len(all) != 4497 || len(seen) != 4497 || pages != 12 {
		t.Errorf("suspensions: got %d, %d different, on %d pages; want 4,497 on 12", len(all), len(seen), pages)
	}
}

// A filter that lets nothing pass reads a limited number of acts for a page. The next page continues where it ended.
func TestOperatorActsOfARareFilterAreBounded(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Run(t, `alter table submitter_change disable trigger user`)
	db.Run(t, `insert into submitter_change (submitter, action, by, reason, at)
		select $1, 'SUSPEND', case n when 1 then 'eve' else 'ann' end, 'r', '2026-01-01'::timestamptz + n * interval '1 s' from generate_series(1, 12000) n`, alice)
	q := store.ActQuery{By: "eve", Size: 10}
	var sizes []int
	for next := new(store.ActPlace); next != nil; {
		var page []store.OperatorAct
		var err error
		page, next, err = db.OperatorActs(t.Context(), q)
		check.OK(t)(err)
		sizes = append(sizes, len(page))
		q.Before = next
	}
	check.Same(t, "pages", sizes, []int{0, 0, 1})
}

// Each source is read in the order of its index and stops at its window. It is planned without the scans that Postgres
// prefers for tables as small as a test's. identity_change has no index: it has one row for each restored database.
func TestPlansOfOperatorActs(t *testing.T) {
	t.Parallel()
	db := storetest.NewClone(t)
	conn := check.Value(db.Raw(t.Context()))(t)
	defer conn.Release()
	check.OK(t)(conn.Exec(t.Context(), `set enable_seqscan = off`))
	check.OK(t)(conn.Exec(t.Context(), `set enable_bitmapscan = off`))
	check.OK(t)(conn.Exec(t.Context(), `set enable_sort = off`))
	byIndex := regexp.MustCompile(`CTE w\n\s+->  Limit\n\s+->  Index (Only )?Scan Backward using acts_of_\w+ on \w+ r\n\s+Index Cond: \(\(ROW\(.*\) < ROW\(\$1, \$2\)\) AND `)
	for name, statement := range store.ActStatements() {
		plan := storetest.Explain(t, conn, name, statement)
		if !byIndex.MatchString(plan) && !strings.Contains(name, "identity_change") {
			t.Errorf("%s: got another plan than one in the order of its index:\n%s", name, plan)
		}
		storetest.ShowPlan(t, conn, name, plan, *update)
	}
}
