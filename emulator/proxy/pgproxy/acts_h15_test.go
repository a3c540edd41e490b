package pgproxy_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// cutKinds are the ways to lose the answer to a commit, and whether the commit has happened.
var cutKinds = map[pgproxy.Kind]bool{
	pgproxy.CutBeforeCommit: false, pgproxy.CutAfterCommit: true, pgproxy.CutMidReply: true,
}

// H15: a compare-and-set without an answer must be read back. If the caller assumed either result, an
// intent could run under FAILED, or be reported cancelled and run.
func TestH15ACASWithoutAnAnswerIsReadBack(t *testing.T) {
	t.Parallel()
	for name, trace := range map[string]func(scene, pgproxy.Kind, bool){
		"a cancel, asked again":              cancelAskedAgain,
		"a cancel, overtaken":                cancelOvertaken,
		"an allocation, then a cancel":       allocationThenCancel,
		"an allocation, then the next owner": allocationThenNextOwner,
	} {
		for kind, committed := range cutKinds {
			t.Run(fmt.Sprintf("%s/%v", name, kind), func(t *testing.T) {
				t.Parallel()
				trace(newScene(t, 1, nil), kind, committed)
			})
		}
	}
}

// queuedOne posts one intent and returns its txId.
func queuedOne(sc scene) string {
	sc.Helper()
	in := intent("r1")
	check.OK(sc)(sc.direct.Create(sc.Context(), in, 10))
	return in.TxID
}

// cancelOf returns a cancel by the intent's caller.
func cancelOf(txID string) store.Decision {
	return store.Decision{TxID: txID, By: store.Viewer{Caller: "test"}, Action: txmanager.ActionCancel, Reason: "asked by test"}
}

// cut makes an act that gets no answer, and checks its effect in the database.
func (sc scene) cut(kind pgproxy.Kind, fragment string, act func() error, done func() bool, want bool) {
	sc.Helper()
	sc.proxy.Arm(pgproxy.Fault{Kind: kind, Match: pgproxy.Containing(fragment)})
	if err := act(); err == nil {
		sc.Fatal("the act that was cut: got no error, want one: its answer is not known")
	}
	if hits := sc.proxy.Counts().Hits[kind]; hits != 1 {
		sc.Fatalf("hits: got %d, want 1", hits)
	}
	if got := done(); got != want {
		sc.Fatalf("committed: got %t, want %t", got, want)
	}
}

// cutCancel loses the answer to a cancel.
func (sc scene) cutCancel(kind pgproxy.Kind, txID string, committed bool) {
	sc.Helper()
	sc.cut(kind, "insert into tx_decision", func() error {
		_, err := sc.store.RecordDecision(sc.Context(), cancelOf(txID))
		return err
	}, func() bool { return sc.row(txID) == "FAILED CANCELLED" }, committed)
}

// cutAllocation loses the answer to an allocation by owner a/1, and returns the commit it was part of.
func (sc scene) cutAllocation(kind pgproxy.Kind, txID string, committed bool) txmanager.Commit {
	sc.Helper()
	held, err := sc.direct.Acquire(sc.Context(), alice, "a/1", true)
	if err != nil || !held.Held {
		sc.Fatalf("take: got %+v, %v; want it held", held, err)
	}
	write := allocation(held.State)
	sc.cut(kind, "with want as", func() error {
		_, err := sc.store.Commit(sc.Context(), write)
		return err
	}, func() bool { return sc.row(txID) == "SUBMITTED 0" }, committed)
	return write
}

func (sc scene) row(txID string) string {
	sc.Helper()
	return value[string](sc, sc.conn, `select concat_ws(' ', state, sub_state, nonce) from managed_tx where tx_id = $1`, txID)
}

// decided repeats the cancel twice through the proxy, and checks the answers.
func (sc scene) decided(txID string, want txmanager.State, sub txmanager.SubState, ordered txmanager.Action) {
	sc.Helper()
	for range 2 {
		got, err := sc.store.RecordDecision(sc.Context(), cancelOf(txID))
		if err != nil || got.State != want || got.SubState != sub || got.RequestedAction != ordered {
			sc.Errorf("cancel again: got %+v, %v; want %s %s, order %q", got, err, want, sub, ordered)
		}
	}
	if n := value[int](sc, sc.conn, `select count(*) from tx_decision where tx_id = $1`, txID); n != 1 {
		sc.Errorf("decisions on record: got %d, want 1 however often it was asked", n)
	}
}

// cancelAskedAgain: a query returns the stored state, and the same cancel completes.
func cancelAskedAgain(sc scene, kind pgproxy.Kind, committed bool) {
	txID := queuedOne(sc)
	sc.cutCancel(kind, txID, committed)
	want := txmanager.Queued
	if committed {
		want = txmanager.Failed
	}
	if r, err := sc.store.Tx(sc.Context(), txID, store.Viewer{Caller: "test"}); err != nil || r.State != want {
		sc.Errorf("read back: got %s, %v; want %s", r.State, err, want)
	}
	sc.decided(txID, txmanager.Failed, txmanager.Cancelled, "")
}

// cancelOvertaken: before the caller repeats the cancel, a lease holder that had loaded the intent
// allocates it. Only one of the two has happened, and the caller gets that one.
func cancelOvertaken(sc scene, kind pgproxy.Kind, committed bool) {
	txID := queuedOne(sc)
	held, err := sc.direct.Acquire(sc.Context(), alice, "a/1", true)
	if err != nil {
		sc.Fatal(err)
	}
	sc.cutCancel(kind, txID, committed)
	done, err := sc.direct.Commit(sc.Context(), allocation(held.State))
	if bound := done.Allocated == 1; err != nil || bound == committed {
		sc.Fatalf("allocate after the cancel: got %+v, %v; want bound %t", done, err, !committed)
	}
	if committed {
		sc.decided(txID, txmanager.Failed, txmanager.Cancelled, "")
		sc.wantVersions(0)
		return
	}
	sc.decided(txID, txmanager.Submitted, "", txmanager.ActionCancel)
	sc.wantVersions(1)
}

// allocationThenCancel: the caller cancels while the lease holder does not know the result of its
// allocation. The holder reads back the state that the caller got.
func allocationThenCancel(sc scene, kind pgproxy.Kind, committed bool) {
	txID := queuedOne(sc)
	write := sc.cutAllocation(kind, txID, committed)
	if committed {
		sc.decided(txID, txmanager.Submitted, "", txmanager.ActionCancel)
	} else {
		sc.decided(txID, txmanager.Failed, txmanager.Cancelled, "")
	}
	w := takeAgain(sc)
	if !committed {
		if len(w.Open)+len(w.Queue) != 0 || w.NextNonce != 0 {
			sc.Errorf("read back: got %d unsettled, %d queued, next nonce %d; want nothing to send, 0", len(w.Open), len(w.Queue), w.NextNonce)
		}
		write.Lease = w.Lease
		if got, err := sc.store.Commit(sc.Context(), write); err != nil || got.Allocated != 0 {
			sc.Errorf("the same write again: got %+v, %v; want nothing bound", got, err)
		}
		sc.wantVersions(0)
		return
	}
	if len(w.Open) != 1 || w.Open[0].RequestedAction != txmanager.ActionCancel || w.NextNonce != 1 {
		sc.Fatalf("read back: got %+v, next nonce %d; want one with the order, 1", w.Open, w.NextNonce)
	}
	sc.wantVersions(1)
}

// allocationThenNextOwner: the lease holder has ended. The next one sends the stored transaction, or binds
// the same nonce, and no other.
func allocationThenNextOwner(sc scene, kind pgproxy.Kind, committed bool) {
	txID := queuedOne(sc)
	lost := sc.cutAllocation(kind, txID, committed)
	do(sc, sc.conn, `update submitter_lease set expires_at = clock_timestamp() - interval '1 min' where submitter = $1`, alice)
	next, err := sc.store.Acquire(sc.Context(), alice, "b/1", true)
	if err != nil || !next.Held {
		sc.Fatalf("take by the next: got %+v, %v; want it held", next, err)
	}
	w := next.State
	if !committed {
		if len(w.Open) != 0 || len(w.Queue) != 1 || w.NextNonce != 0 {
			sc.Fatalf("read back: got %d unsettled, %d queued, next nonce %d; want it queued, 0", len(w.Open), len(w.Queue), w.NextNonce)
		}
		if got, err := sc.store.Commit(sc.Context(), allocation(w)); err != nil || got.Allocated != 1 {
			sc.Fatalf("allocate anew: got %+v, %v; want it bound", got, err)
		}
	} else if len(w.Open) != 1 || w.Open[0].Hash() != lost.Allocations[0].Signed.Hash || w.NextNonce != 1 {
		sc.Fatalf("read back: got %+v, next nonce %d; want the bytes that were stored, 1", w.Open, w.NextNonce)
	}
	if got := sc.row(txID); got != "SUBMITTED 0" {
		sc.Errorf("the transaction: got %s, want SUBMITTED 0", got)
	}
	sc.wantVersions(1)
}

func (sc scene) wantVersions(want int) {
	sc.Helper()
	check.Equal(sc, "signed versions stored", value[int](sc, sc.conn, `select count(*) from tx_version where submitter = $1`, alice), want)
}
