package store_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The life of a transaction reads as little where its submitter has 25,000 finished
// ones as where it is the submitter's first, whatever the planner thinks of the
// average submitter.
func TestCostIsFlat(t *testing.T) {
	t.Parallel()
	db := grown(t)
	db.Store.Close()
	heavy := numbered(0)
	db.Run(t, `update submitter set max_in_flight = $2 where submitter = $1`, heavy, 100)
	expectFewReads(t, db, heavy, 100, 60)
}

// The same holds where each submitter has one finished transaction, so that the planner expects one row
// of any submitter, and one submitter has a long queue.
func TestCostIsFlatBesideSubmittersOfOneTransaction(t *testing.T) {
	t.Parallel()
	db := storetest.NewClone(t)
	for _, statement := range []string{`set session_replication_role = replica`, oneEach, `set session_replication_role = origin`} {
		db.Run(t, statement)
	}
	heavy := numbered(1_000_000)
	db.Register(t, heavy, 100)
	for range 2 { // the plans are made while nothing waits
		db.Run(t, `analyze`)
		expectFewReads(t, db, heavy, 100, 60)
	}
}

// The same holds for one submitter that has all of the table, once autovacuum has analyzed its first 60 rows.
// A statement that reads all transactions of the submitter for each transaction reads 600 and more. On a busy machine the moves take more
// sessions, and each session reads the queue once: that is 30 to 60 for each transaction.
func TestCostIsFlatForOneSubmitterWithAll(t *testing.T) {
	t.Parallel()
	db := storetest.NewClone(t)
	heavy := numbered(1)
	db.Register(t, heavy, 5000)
	postMany(t, db, heavy, 60)
	for range 2 {
		db.Run(t, `analyze`)
		expectFewReads(t, db, heavy, 600, 150)
	}
}

// expectFewReads moves n transactions of the submitter, and those that waited, to CONFIRMED, and fails the test where all statements together read
// more than most index entries for each transaction.
func expectFewReads(t *testing.T, db storetest.Bundle, heavy txmanager.Submitter, n, most int) {
	t.Helper()
	reads := func() int {
		return value[int](t, db, `select sum(idx_tup_read)::int from pg_stat_user_indexes where relname in ('managed_tx', 'tx_version')`)
	}
	updated := updates(t, db, "n_tup_upd")
	before := reads()
	options := storetest.Options(db.URL, storetest.Rules)
	s := check.Value(store.Open(t.Context(), options))(t)
	for i := range n {
		request := fmt.Sprint("new-", before, "-", i)
		check.OK(t)(s.Create(t.Context(), intent(heavy, request), 10*n))
		check.OK(t)(s.Pool().Exec(t.Context(), store.HotStatements["recordByRequest"], heavy, request, operator.AllNames(), true))
	}
	taken := check.Value(s.Acquire(t.Context(), heavy, "a/1", true))(t)
	done, err := s.Commit(t.Context(), txmanager.Commit{Lease: taken.State.Lease, Allocations: allocations(taken.State, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	if err != nil || done.Allocated < n {
		t.Fatalf("allocate: got %+v, %v", done, err)
	}
	s.Close()
	moveAllApart(t, db, heavy, pends)
	moveAllApart(t, db, heavy, confirmedIn("", block(7, 1)))
	storetest.Await(t, "all updates are in the statistics", func() bool { return updates(t, db, "n_tup_upd") == updated+3*done.Allocated })
	if got := reads() - before; got > done.Allocated*most {
		t.Errorf("index entries read for %d transactions: got %d, want %d at most", done.Allocated, got, done.Allocated*most)
	}
}

// oneEach is 20,000 submitters with a finished transaction each.
const oneEach = `
with old as (
  select 'eip155:1337:0x' || lpad(to_hex(i), 40, '0') as submitter, i from generate_series(0, 19999) as i
), known as (
  insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by)
  select submitter, 'local', 0, 1, '{*,shop}', 'test' from old
), leased as (
  insert into submitter_lease (submitter, owner_node, fencing_token, expires_at, updated_at)
  select submitter, '', 9, now(), now() from old
), counted as (
  insert into submitter_nonce_cursor (submitter, next_nonce) select submitter, 1 from old
)
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, tx_hash, state,
  first_submit_at, last_submit_at, submit_attempts, receipt, confirmations, confirmed_at, fencing_token)
select overlay(tx_id_at(now() - i * interval '1 hour')::text placing right(md5(i::text), 12) from 25)::uuid, submitter,
       'old-' || i, 'shop', sha256(i::text::bytea), 0, '0x' || md5(i::text) || md5((-i)::text), 'CONFIRMED', now(), now(), 1,
       jsonb_build_object('txHash', '0x' || md5(i::text) || md5((-i)::text), 'blockNumber', i, 'blockHash', '0x' || md5(i::text) || md5(i::text), 'succeeded', true),
       '[]', now(), 9
  from old`
