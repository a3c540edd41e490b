package store_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
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
	db.Run(t, `create extension if not exists pg_walinspect`)
	db.Run(t, `checkpoint`)
	from := value[string](t, db, `select pg_current_wal_flush_lsn()::text`)
	for _, created := range check.Value(db.CreateAll(t.Context(), intents(alice, "request-", n), 2*n))(t) {
		check.OK(t)(created.Err)
	}
	sendAll(t, db, alice)
	moveAll(t, db, alice, pends)
	moveAll(t, db, alice, confirmedIn(`{"status":"0x1","from":"`+strings.Repeat("a", 42)+`","logs":[]}`, block(7, 1)))
	check.Equal(t, "confirmed", value[int](t, db, `select count(*) from managed_tx where state = 'CONFIRMED'`), n)
	got := value[int](t, db, walOfDatabase, from) / n
	if t.Logf("%d bytes", got); got > maxWAL || got < maxWAL/2 {
		t.Errorf("write-ahead log of a transaction: got %d bytes, want %d to %d", got, maxWAL/2, maxWAL)
	}
}

// The whole history has in each row what the transaction had: its submitter, and the hash at that time, also after it was
// removed. Rows of an earlier release are shown as they are.
func TestWholeHistory(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	post(t, db, alice, "r")
	const earlier = `insert into tx_history (tx_id, submitter, at, from_state, state, tx_hash, attempts)
		select tx_id, submitter, now(), 'EARLIER', 'EARLIER', $1, 0 from managed_tx`
	db.Run(t, earlier, "0xold")
	db.Run(t, earlier, nil)
	sendAll(t, db, alice)
	moveAll(t, db, alice, pends)
	db.Run(t, `update managed_tx set state = 'STUCK', sub_state = null, tx_hash = null`)
	db.Run(t, `update managed_tx set last_error = 'a reason'`)
	hash := value[string](t, db, `select tx_hash from tx_version`)
	const lines = `select string_agg(concat_ws(' ', state, tx_hash, reason), '; ' order by id) from `
	want := "QUEUED; EARLIER 0xold; EARLIER; SUBMITTED " + hash + "; TRACKING " + hash + "; STUCK; STUCK a reason"
	check.Same(t, "history", strings.Split(value[string](t, db, lines+`tx_history_full`), "; "), strings.Split(want, "; "))
	check.Equal(t, "submitters", value[string](t, db, `select string_agg(distinct submitter, ' ') from tx_history_full where submitter is not null`), string(alice))
	check.Equal(t, "rows without one", value[int](t, db, `select count(*) from tx_history_full where submitter is null`), 0)
	stored := "QUEUED; EARLIER 0xold; EARLIER; SUBMITTED " + hash + "; TRACKING; STUCK ; STUCK a reason"
	check.Same(t, "stored", strings.Split(value[string](t, db, lines+`tx_history`), "; "), strings.Split(stored, "; "))
}
