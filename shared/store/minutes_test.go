package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// rateOf is what happened in the last counted minutes, as text.
func rateOf(t *testing.T, db storetest.Bundle, minutes int) string {
	t.Helper()
	for _, r := range check.Value(db.Overview(t.Context(), attentionLimits()))(t).Rates {
		if r.Minutes == minutes {
			text := func(p *int64) string {
				if p == nil {
					return "-"
				}
				return fmt.Sprint(*p)
			}
			return fmt.Sprintf("%d counted: %d %d %d, %s %s", r.Counted, r.Accepted, r.Confirmed, r.Failed, text(r.P50), text(r.P99))
		}
	}
	return "none"
}

// past moves the history and the transactions so far back.
func past(t *testing.T, db storetest.Bundle, by time.Duration) {
	t.Helper()
	db.RunUnguarded(t, "tx_history", `update tx_history set at = at - $1::interval`, by)
	db.RunUnguarded(t, "managed_tx", `update managed_tx set created_at = created_at - $1::interval`, by)
}

// The sweep counts each completed minute once: accepted and ended transactions, and how long they took.
func TestMinutesAreCounted(t *testing.T) {
	t.Parallel()
	db := registered(t, 100, alice)
	check.Equal(t, "nothing counted", rateOf(t, db, 60), "0 counted: 0 0 0, - -")
	postMany(t, db, alice, 10)
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where request_id = '9'`)
	past(t, db, 30*time.Second) // nine are final half a minute after they were accepted, or later
	sendAll(t, db, alice)
	moveAll(t, db, alice, inBlocks(true, block(7, 1)))
	db.Run(t, `update managed_tx set state = 'CONFIRMED', sub_state = null, confirmed_at = now(), confirmations = '[]' where open`)
	past(t, db, 10*time.Minute)
	post(t, db, alice, "now")
	check.OK(t)(db.CountMinutes(t.Context()))
	check.Equal(t, "an hour", rateOf(t, db, 60), "60 counted: 10 9 1, 32000 32000")
	check.Equal(t, "five minutes", rateOf(t, db, 5), "5 counted: 0 0 0, - -")
	before := contents(t, db, "tx_minute")
	check.OK(t)(db.CountMinutes(t.Context()))
	after := contents(t, db, "tx_minute")
	check.Same(t, "the same minutes again", after[:len(before)], before)
	if len(after) > len(before)+1 {
		t.Errorf("counted again: got %d rows after %d, want one more at most", len(after), len(before))
	}
	db.Run(t, `insert into tx_minute values (date_bin('1 minute', now() - interval '3 days', 'epoch'), 1, 1, 1, '{}')`)
	check.OK(t)(db.CountMinutes(t.Context()))
	check.Equal(t, "old minutes", value[int](t, db, `select count(*) from tx_minute where minute < now() - interval '2 days'`), 0)
}

// The oldest transaction that has not ended is found among queued, held and open ones, and each is counted.
func TestOverview(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	o := check.Value(db.Overview(t.Context(), attentionLimits()))(t)
	if o.Oldest != nil || o.RatesUpTo != nil || len(o.Attention) != 0 {
		t.Errorf("an empty deployment: got %+v, want nothing open", o)
	}
	postAll(t, db, alice, "1", "2")
	post(t, db, bob, "1")
	oldest := func(want string) {
		t.Helper()
		o = check.Value(db.Overview(t.Context(), attentionLimits()))(t)
		check.Equal(t, "oldest", value[string](t, db, `select submitter || ' ' || request_id from managed_tx where tx_id = $1`, o.Oldest.TxID), want)
	}
	oldest(string(alice) + " 1")
	sendAll(t, db, alice)
	oldest(string(alice) + " 1")
	check.Same(t, "states", o.States, []store.StateCount{{State: "SUBMITTED", Count: 1}, {State: "QUEUED", Count: 2}})
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'REVERTED', receipt = '{}', confirmed_at = now() where open`)
	db.Run(t, `update managed_tx set held = true where submitter = $1`, bob)
	oldest(string(alice) + " 2")
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where submitter = $1 and queued`, alice)
	oldest(string(bob) + " 1")
	check.Same(t, "states", o.States, []store.StateCount{{State: "QUEUED", Count: 1, Held: 1}})
}

// Of a minute with many transactions, the time of one in sixteen is measured, and counts for them all.
func TestABusyMinuteIsSampled(t *testing.T) {
	t.Parallel()
	db := grown(t)
	conn := db.Connect(t)
	check.Value(conn.Exec(t.Context(), `set session_replication_role = replica`))(t)
	conn.Do(`update tx_history set at = date_bin('1 minute', now(), 'epoch') - interval '90 seconds', from_state = 'SUBMITTED' where state = 'CONFIRMED'`)
	check.OK(t)(db.CountMinutes(t.Context()))
	check.Equal(t, "confirmed", value[int](t, db, `select sum(confirmed) from tx_minute`), 50_000)
	if got := value[int](t, db, `select sum(n) from tx_minute, unnest(seconds) as n`); got%16 != 0 || got < 45_000 || got > 55_000 {
		t.Errorf("measured: got %d, want about 50,000 by sixteens", got)
	}
}

// Spending lists final transactions, the newest first, with the value of those that succeeded.
func TestSpending(t *testing.T) {
	t.Parallel()
	db := registered(t, 3, alice)
	postAll(t, db, alice, "1", "2", "3")
	sendAll(t, db, alice)
	moveAll(t, db, alice, func(x *txmanager.Tx) {
		inBlocks(true, block(7, 1))(x)
		x.Receipt.Document = json.RawMessage(`{"gasUsed":"0x5208"}`)
	})
	db.Run(t, `update managed_tx set state = 'CONFIRMED', sub_state = null, confirmed_at = now() where nonce = 0`)
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'REVERTED', confirmed_at = now() where nonce = 1`)
	all, now, err := db.Spending(t.Context(), alice)
	check.OK(t)(err)
	var got []string
	for _, one := range all {
		if one.At.After(now) {
			t.Errorf("final at %s, after %s", one.At, now)
		}
		got = append(got, one.Value+" "+string(one.Receipt))
	}
	value := value[string](t, db, `select coalesce(body ->> 'value', '0') from tx_document where name = 'version:1' and tx_id = (select tx_id from managed_tx where nonce = 0)`)
	check.Same(t, "spent", got, []string{`0 {"gasUsed":"0x5208"}`, value + ` {"gasUsed":"0x5208"}`})
}

// Counting the last minutes reads the end of the history only, by its index, which a new partition has too.
func TestCountingReadsTheEndOfTheHistory(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "1")
	db.Run(t, `insert into tx_history (tx_id, at, from_state, state, attempts)
		select (select tx_id from managed_tx), now() - interval '300001 seconds' + i * interval '1 second', 'SUBMITTED', 'SUBMITTED', 1 from generate_series(1, 300000) as i`)
	check.Value(db.DB.Exec(t.Context(), `vacuum analyze tx_history`))(t)
	whole := value[int](t, db, `select sum(pg_relation_size(inhrelid))::int / 8192 from pg_inherits where inhparent = 'tx_history'::regclass`)
	if got := storetest.Blocks(t, db.DB, store.HotStatements["countMinutes"], 60); whole < 2000 || got > 1000 {
		t.Errorf("blocks read of a history of %d: got %d, want at most 1,000", whole, got)
	}
	db.Run(t, `select make_quarter('tx_history', '2031-01-01')`)
	check.Equal(t, "the index of a new quarter", value[string](t, db, `
		select reloptions::text from pg_class c join pg_index i on i.indexrelid = c.oid
		 where i.indrelid = 'tx_history_2031q1'::regclass and c.relam = (select oid from pg_am where amname = 'brin')`), "{autosummarize=on}")
}

// The id of the last sweep is the one that any process stored last.
func TestLastSweep(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	check.Equal(t, "before the first", check.Value(db.LastSweep(t.Context()))(t), "")
	for _, id := range []string{"a", "b", "a"} {
		check.OK(t)(db.SetLastSweep(t.Context(), id))
		check.Equal(t, "after "+id, check.Value(db.LastSweep(t.Context()))(t), id)
	}
}
