package store_test

import (
	"context"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const bob = txmanager.Submitter("eip155:1337:0x0000000000000000000000000000000000000b0b")

// numbered is one of many submitters.
func numbered(n int) txmanager.Submitter {
	return txmanager.Submitter(fmt.Sprintf("eip155:1337:0x%040x", n))
}

// registered is a new database with these submitters, each with that window.
func registered(t testing.TB, window int, subs ...txmanager.Submitter) storetest.Bundle {
	t.Helper()
	db := storetest.New(t)
	for _, sub := range subs {
		db.Register(t, sub, window)
	}
	return db
}

// reopened is db with another store, whose options differ by the change.
func reopened(t *testing.T, db storetest.Bundle, change func(*store.Options)) storetest.Bundle {
	t.Helper()
	o := storetest.Options(db.URL, storetest.Rules)
	change(&o)
	db.Store = storetest.Open(t, o)
	return db
}

// postAll stores an intent for each request.
func postAll(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, requests ...string) {
	t.Helper()
	for _, request := range requests {
		post(t, db, sub, request)
	}
}

// sendAll binds as many intents of sub as its window has room for, signed, and releases the lease.
func sendAll(t *testing.T, db storetest.Bundle, sub txmanager.Submitter) {
	t.Helper()
	w := take(t, db, sub, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
}

// rival is a separate connection to the test's database, without the store's limits: another
// process, or a person with psql.
type rival struct {
	t testing.TB
	*pgx.Conn
}

func connect(t testing.TB, db storetest.Bundle) rival {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), db.URL))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return rival{t, conn}
}

// do runs a statement that must succeed, and change at least one row if it
// changes any table.
func (r rival) do(statement string, args ...any) {
	r.t.Helper()
	tag, err := r.Exec(r.t.Context(), statement, args...)
	if err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
	if (tag.Update() || tag.Insert()) && tag.RowsAffected() == 0 {
		r.t.Fatalf("%s: changed no row", statement)
	}
}

// run is [rival.do] behind the store's back.
func run(t testing.TB, db storetest.Bundle, statement string, args ...any) {
	t.Helper()
	tag, err := db.DB.Exec(t.Context(), statement, args...)
	if err != nil || ((tag.Update() || tag.Insert()) && tag.RowsAffected() == 0) {
		t.Fatalf("%s: got %v, error %v; want rows changed", statement, tag, err)
	}
}

// value is the only value of a query.
func value[T any](t testing.TB, db storetest.Bundle, query string, args ...any) (v T) {
	t.Helper()
	if err := db.DB.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// contents is every row of the tables, as text.
func contents(t testing.TB, db storetest.Bundle, tables ...string) (all []string) {
	t.Helper()
	for _, table := range tables {
		all = append(all, value[[]string](t, db, `select array(select $1 || ': ' || to_jsonb(r)::text
			from `+pgx.Identifier{table}.Sanitize()+` r order by 1)`, table)...)
	}
	return all
}

// written are the tables that fenced writes change, but for the lease.
var written = []string{"managed_tx", "tx_version", "tx_document", "submitter_nonce_cursor", "protect_incident"}

// await polls until the condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		case <-tick.C:
		}
	}
}

// awaitBlocked waits until a statement of the store that contains the fragment waits for
// another session's lock.
func awaitBlocked(t testing.TB, db storetest.Bundle, fragment string) {
	t.Helper()
	await(t, "a statement with "+fragment+" waits for a lock", func() bool {
		return value[bool](t, db, `select exists (
			select from pg_stat_activity
			 where datname = current_database() and application_name = 'fencepost'
			   and wait_event_type = 'Lock' and position($1 in query) > 0)`, fragment)
	})
}

// outcome is what a call in the background came to.
type outcome[T any] struct {
	got T
	err error
}

// start makes a call in the background.
func start[T any](call func() (T, error)) <-chan outcome[T] {
	c := make(chan outcome[T], 1)
	go func() {
		got, err := call()
		c <- outcome[T]{got, err}
	}()
	return c
}

// allocations are for the whole queue of w, from the cursor on.
func allocations(w txmanager.SubmitterState, withBytes bool) []txmanager.Allocation {
	var all []txmanager.Allocation
	for i, q := range w.Queue {
		one := big.NewInt(1)
		q.Gas = &txmanager.GasParams{Gas: 21_000, FeeCapWei: one, TipCapWei: one, ValueWei: one}
		a := txmanager.Allocation{Tx: q, Nonce: w.NextNonce + uint64(i)}
		if withBytes {
			s := storetest.Signed(q.Submitter, a.Nonce, q.ID)
			a.Signed = &s
		}
		all = append(all, a)
	}
	return all
}

// write makes a fenced write that must succeed.
func write(t testing.TB, db storetest.Bundle, w txmanager.Commit) txmanager.CommitResult {
	t.Helper()
	done := check.Value(db.Commit(t.Context(), w))(t)
	return done
}

// withPayload is a statement that inserts into managed_tx, and the payloads of its rows.
func withPayload(insert string) string {
	return `with inserted as (` + insert + ` returning tx_id)
		insert into tx_document (tx_id, name, body) select tx_id, 'payload', '{}' from inserted`
}

// remark is a move of tx that changes nothing but the reason why it waits.
func remark(tx txmanager.Tx, reason string) txmanager.Transition {
	to := tx
	to.LastError = reason
	return txmanager.Transition{From: tx.State, To: to}
}

const cancel = `
update managed_tx set state = 'FAILED', sub_state = 'CANCELLED', updated_at = clock_timestamp()
 where tx_id = $1 and state = 'QUEUED'`

const openIncident = `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`
