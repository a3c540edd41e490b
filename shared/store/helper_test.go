package store_test

import (
	"fmt"
	"math/big"
	"testing"

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

// numbers are the first n of many submitters.
func numbers(n int) (subs []txmanager.Submitter) {
	for i := range n {
		subs = append(subs, numbered(i))
	}
	return subs
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
func reopened(t testing.TB, db storetest.Bundle, change func(*store.Options)) storetest.Bundle {
	t.Helper()
	o := storetest.Options(db.URL, storetest.Rules)
	change(&o)
	db.Store = storetest.Open(t, o)
	return db
}

// postAll stores an intent for each request.
func postAll(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, requests ...string) {
	t.Helper()
	for _, request := range requests {
		post(t, db, sub, request)
	}
}

// intents are n of sub, whose requests are the prefix and a number.
func intents(sub txmanager.Submitter, prefix string, n int) (all []store.Intent) {
	for i := range n {
		all = append(all, intent(sub, fmt.Sprint(prefix, i)))
	}
	return all
}

// postMany stores n intents, whose requests are numbers.
func postMany(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, n int) {
	t.Helper()
	for _, in := range intents(sub, "", n) {
		create(t, db, in)
	}
}

// sendAll binds as many intents of sub as its window has room for, signed, and releases the lease.
func sendAll(t testing.TB, db storetest.Bundle, sub txmanager.Submitter) {
	t.Helper()
	w := take(t, db, sub, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
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
	return check.Value(db.Commit(t.Context(), w))(t)
}

// moveAll makes one change to each open transaction of sub, of which there must be one, and releases the lease. The
// node that it records has accepted each that becomes PENDING.
func moveAll(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, change func(*txmanager.Tx)) {
	t.Helper()
	w := take(t, db, sub, "a/1")
	if len(w.Open) == 0 {
		t.Fatalf("%s: got nothing open", sub)
	}
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

// moveAllApart is [moveAll] by a separate store, whose sessions report their statistics when they end.
func moveAllApart(t testing.TB, db storetest.Bundle, sub txmanager.Submitter, change func(*txmanager.Tx)) {
	t.Helper()
	other := reopened(t, db, func(*store.Options) {})
	defer other.Store.Close()
	moveAll(t, other, sub, change)
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
