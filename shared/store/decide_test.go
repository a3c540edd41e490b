package store_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var (
	shop     = store.Viewer{Caller: "shop"}
	stranger = store.Viewer{Caller: "stranger"}
	operator = store.Viewer{Caller: "ann", Operator: true}
)

// decide decides about the transaction and returns the stored state.
func decide(t *testing.T, db storetest.Bundle, txID string, by store.Viewer, action txmanager.Action) (store.DecisionResult, error) {
	t.Helper()
	return db.RecordDecision(t.Context(), store.Decision{TxID: txID, By: by, Action: action, Reason: "because"})
}

// cancelledAs has the viewer cancel the transaction, and returns its state and sub-state then.
func cancelledAs(t *testing.T, db storetest.Bundle, txID string, by store.Viewer) string {
	t.Helper()
	d := check.Value(decide(t, db, txID, by, txmanager.ActionCancel))(t)
	return fmt.Sprintf("%s/%s", d.State, d.SubState)
}

// A queued intent is cancelled at once. For one with a nonce the requested action is stored
// once, and the holder's own writes keep it.
func TestDecideCancel(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	held, queued := post(t, db, alice, "held"), post(t, db, alice, "queued")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1]})
	loaded := check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)

	check.Err(t, "by a stranger", store.ErrNotFound)(decide(t, db, queued.TxID, stranger, txmanager.ActionCancel))
	for range 2 {
		check.Equal(t, "in the queue", check.Value(decide(t, db, queued.TxID, shop, txmanager.ActionCancel))(t).SubState, txmanager.Cancelled)
		if d, err := decide(t, db, held.TxID, shop, txmanager.ActionCancel); err != nil || d.RequestedAction != txmanager.ActionCancel || d.Token != 2 {
			t.Errorf("with a nonce: got %+v, %v; want the order, token 2", d, err)
		}
	}
	check.Equal(t, "decisions on record", value[int](t, db, `select count(*) from tx_decision`), 2)
	stale := loaded.Open[0] // loaded before the order
	stale.State, stale.Sub = txmanager.Tracking, txmanager.Pending
	write(t, db, txmanager.Commit{Lease: loaded.Lease, Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: stale}}})
	check.Equal(t, "the order after a write that did not know of it", value[string](t, db, `select requested_action from managed_tx where tx_id = $1`, held.TxID), "CANCEL")
}

// An operator's decision replaces a caller's cancel. A transaction that is final, queued, or
// without bytes leaves nothing to decide.
func TestDecideByOperator(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	sent, bare, queued := post(t, db, alice, "sent"), post(t, db, alice, "bare"), post(t, db, alice, "queued")
	w := take(t, db, alice, "a/1")
	all := allocations(w, true)[:2]
	all[1].Signed = nil
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all})

	check.OK(t)(decide(t, db, sent.TxID, shop, txmanager.ActionCancel))
	check.Equal(t, "after a cancel", check.Value(decide(t, db, sent.TxID, operator, txmanager.ActionPlaceholder))(t).RequestedAction, txmanager.ActionPlaceholder)
	check.Equal(t, "wait", check.Value(decide(t, db, sent.TxID, operator, txmanager.ActionWait))(t).RequestedAction, txmanager.ActionPlaceholder)
	for name, c := range map[string]struct {
		txID   string
		action txmanager.Action
	}{
		"nothing to send again": {bare.TxID, txmanager.ActionRebroadcast}, "nothing to replace": {bare.TxID, txmanager.ActionReplace},
		"in the queue": {queued.TxID, txmanager.ActionPlaceholder},
	} {
		check.Err(t, name, store.ErrTooLate)(decide(t, db, c.txID, operator, c.action))
	}
}

// A decision by code is written with its transition: the action if none is requested yet, and
// the record always.
func TestDecisionByCode(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	held := post(t, db, alice, "held")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	byCode := func(tx txmanager.Tx) txmanager.Transition {
		return txmanager.Transition{From: tx.State, To: tx, Decision: &txmanager.Decision{Action: txmanager.ActionReplace, By: "code", Reason: "too cheap"}}
	}
	loaded := check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
	write(t, db, txmanager.Commit{Lease: loaded.Lease, Transitions: []txmanager.Transition{byCode(loaded.Open[0])}})
	check.Equal(t, "ordered", value[string](t, db, `select requested_action from managed_tx where tx_id = $1`, held.TxID), "REPLACE")
	check.OK(t)(decide(t, db, held.TxID, operator, txmanager.ActionPlaceholder))
	write(t, db, txmanager.Commit{Lease: loaded.Lease, Transitions: []txmanager.Transition{byCode(loaded.Open[0])}})
	check.Equal(t, "ordered after an operator's order", value[string](t, db, `select requested_action from managed_tx where tx_id = $1`, held.TxID), "PLACEHOLDER")
	check.Equal(t, "decisions by code on record", value[int](t, db, `select count(*) from tx_decision where by = 'code' and reason = 'too cheap'`), 2)
}

// A queued intent of a submitter in PROTECT may have been carried out: by hand, or after the
// backup that the database comes from. Its caller's cancel returns that, and parks it: it does
// not run after the release. A release that names it ends it as carried out; otherwise the
// next cancel is definite. The same post revokes the cancel.
func TestCancelInProtectIsDecidedAfterTheRelease(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	ids := map[string]string{}
	for i, name := range []string{"named", "not named", "wanted again", "the operator's"} {
		a, _ := mustCreate(t, db, worth(alice, name, i+1))
		ids[name] = a.TxID
	}
	db.Run(t, openIncident, alice)
	for _, name := range []string{"named", "not named", "wanted again"} {
		for i := range 2 {
			got := check.Value(decide(t, db, ids[name], shop, txmanager.ActionCancel))(t)
			if got.State != txmanager.Queued || got.Recorded != (i == 0) {
				t.Errorf("cancel %s in PROTECT: got %+v, want it QUEUED, and recorded once", name, got)
			}
		}
		check.Equal(t, name, subState(t, db, ids[name]), "HELD")
	}
	check.Equal(t, "an operator's cancel in PROTECT", cancelledAs(t, db, ids["the operator's"], operator), "FAILED/CANCELLED")

	check.OK(t)(releases(t, db, alice, txmanager.ReleaseRequest{
		Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "paid by hand", Count: 1,
		Requests: map[uint64]string{0: "named"}, EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "named", TxID: ids["named"]}},
	}))
	again := worth(alice, "wanted again", 3)
	again.TxID = "00000000-0000-0000-0000-0000000000aa"
	check.Equal(t, "held, although posted again after its cancel", isHeld(t, db, again), false)
	check.Same(t, "the queue after the release", inQueue(take(t, db, alice, "a/1")), []string{"wanted again"})
	check.Equal(t, "cancel of what was named", cancelledAs(t, db, ids["named"], shop), "CONFIRMED/RECORDED")
	check.Equal(t, "cancel after the release", cancelledAs(t, db, ids["not named"], shop), "FAILED/CANCELLED")
}
