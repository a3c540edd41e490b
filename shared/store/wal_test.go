package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// maxWAL is the limit of [TestWALOfATransaction], in bytes. Postgres 15 writes about 6,750 for such a small receipt.
const maxWAL = 6_850

// walOfDatabase counts the bytes that one database wrote to rows and indexes, without full-page images, since
// a checkpoint makes them. The tests of other databases write to the same log.
const walOfDatabase = `
select coalesce(sum(r.record_length - r.fpi_length), 0)
  from pg_get_wal_records_info($1::pg_lsn, pg_current_wal_flush_lsn()) as r
 where r.block_ref like '% rel %/' || (select oid from pg_database where datname = current_database()) || '/%'`

// The bytes of the write-ahead log that a transaction takes are limited, from its creation to CONFIRMED. The test runs
// alone, because others make the server recycle the log that it reads.
func TestWALOfATransaction(t *testing.T) {
	const n = 200
	db := registered(t, n, alice)
	run(t, db, `create extension if not exists pg_walinspect`)
	run(t, db, `checkpoint`)
	from := value[string](t, db, `select pg_current_wal_flush_lsn()::text`)
	intents := make([]store.Intent, n)
	for i := range intents {
		intents[i] = intent(alice, fmt.Sprintf("request-%d", i))
	}
	for _, created := range check.Value(db.CreateAll(t.Context(), intents, 2*n))(t) {
		check.OK(t)(created.Err)
	}
	sendAll(t, db, alice)
	becomeAll(t, db, func(x *txmanager.Tx) { x.State, x.Sub = txmanager.Tracking, txmanager.Pending })
	document := json.RawMessage(`{"status":"0x1","from":"` + strings.Repeat("a", 42) + `","logs":[]}`)
	becomeAll(t, db, func(x *txmanager.Tx) {
		inBlocks(true, block(7, 1))(x)
		x.State, x.Sub, x.Receipt.Document = txmanager.Confirmed, "", document
	})
	check.Equal(t, "confirmed", value[int](t, db, `select count(*) from managed_tx where state = 'CONFIRMED'`), n)
	got := value[int](t, db, walOfDatabase, from) / n
	if t.Logf("%d bytes", got); got > maxWAL || got < maxWAL/2 {
		t.Errorf("write-ahead log of a transaction: got %d bytes, want %d to %d", got, maxWAL/2, maxWAL)
	}
}

// becomeAll makes one change to each open transaction of alice.
func becomeAll(t *testing.T, db storetest.Bundle, change func(*txmanager.Tx)) {
	t.Helper()
	w := take(t, db, alice, "a/1")
	moves := make([]txmanager.Transition, len(w.Open))
	for i, x := range w.Open {
		moves[i] = txmanager.Transition{From: x.State, To: x, Node: "10.0.0.1:8545"}
		if change(&moves[i].To); moves[i].To.Sub == txmanager.Pending {
			moves[i].Node, moves[i].Answers = "", []txmanager.NodeAnswer{{Node: "10.0.0.1:8545", Class: txmanager.SendAccepted}}
		}
	}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: moves, LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "moved", done.Transitioned, len(moves))
}

// The whole history has in each row what the transaction had: its submitter, and the hash at that time, also after it was
// removed. Rows of an earlier release are shown as they are.
func TestWholeHistory(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "r")
	const earlier = `insert into tx_history (tx_id, submitter, at, from_state, state, tx_hash, attempts)
		select tx_id, submitter, now(), 'EARLIER', 'EARLIER', $1, 0 from managed_tx`
	run(t, db, earlier, "0xold")
	run(t, db, earlier, nil)
	sendAll(t, db, alice)
	becomeAll(t, db, func(x *txmanager.Tx) { x.State, x.Sub = txmanager.Tracking, txmanager.Pending })
	run(t, db, `update managed_tx set state = 'STUCK', sub_state = null, tx_hash = null`)
	run(t, db, `update managed_tx set last_error = 'a reason'`)
	hash := value[string](t, db, `select tx_hash from tx_version`)
	const lines = `select string_agg(concat_ws(' ', state, tx_hash, reason), '; ' order by id) from `
	want := "QUEUED; EARLIER 0xold; EARLIER; SUBMITTED " + hash + "; TRACKING " + hash + "; STUCK; STUCK a reason"
	check.Same(t, "history", strings.Split(value[string](t, db, lines+`tx_history_full`), "; "), strings.Split(want, "; "))
	check.Equal(t, "submitters", value[string](t, db, `select string_agg(distinct submitter, ' ') from tx_history_full where submitter is not null`), string(alice))
	check.Equal(t, "rows without one", value[int](t, db, `select count(*) from tx_history_full where submitter is null`), 0)
	stored := "QUEUED; EARLIER 0xold; EARLIER; SUBMITTED " + hash + "; TRACKING; STUCK ; STUCK a reason"
	check.Same(t, "stored", strings.Split(value[string](t, db, lines+`tx_history`), "; "), strings.Split(stored, "; "))
}
