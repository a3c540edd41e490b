package store_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// heldByCopy checks that an intent is held as the queue of a restored copy is.
func heldByCopy(t *testing.T, db storetest.Bundle, txID string) bool {
	t.Helper()
	return value[bool](t, db, `select held and held_for is null and coalesce(last_error like 'held: the database was restored%', false) from managed_tx where tx_id = $1`, txID)
}

// An intent that was held beside a foreign transaction at a further restore may have run after
// that backup, or been cancelled. The end of that hold does not let it proceed. Only its
// caller or an operator does, as for the rest of the copy's queue.
func TestAHoldOfBeforeARestoreLetsNothingGoOn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	lost(t, db, alice, nil, 5, 6)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	six, _ := mustCreate(t, db, worth(alice, "six", 6))
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	other, _ := mustCreate(t, db, handled(alice, "other"))
	acceptRestored(t, db)
	later, held := mustCreate(t, db, handled(alice, "posted after the restore"))
	if !held {
		t.Fatal("what was posted after the restore is not held")
	}

	zero, one := uint64(0), uint64(1)
	d := store.HoldDecision{Submitter: alice, Nonce: &zero, Limit: 1, By: "ann", Reason: "as the log has it"}
	if out, err := db.WriteOff(t.Context(), d); err != nil || out.WrittenOff != 1 || out.Proceeded != 0 {
		t.Errorf("write off: got %+v, %v; want nothing let go on", out, err)
	}
	d.Nonce = &one
	if _, err := db.MatchHold(t.Context(), d, unknown.TxID); err != nil {
		t.Fatal(err)
	}
	for name, txID := range map[string]string{"five": five.TxID, "six": six.TxID, "other": other.TxID} {
		if !heldByCopy(t, db, txID) {
			t.Errorf("%s: got it let go on, want it held as the copy's queue is", name)
		}
	}
	if got := subState(t, db, later.TxID); got != "" {
		t.Errorf("posted after the restore: got %q, want it let go on", got)
	}
	again := worth(alice, "five", 5)
	again.TxID = uuid.NewString()
	if a, err := db.Create(t.Context(), again, 100); err != nil || a.TxID != five.TxID || !a.Queued {
		t.Errorf("posted again by its caller: got %+v, %v; want it let go on", a, err)
	}
	out, err := db.RecordDecision(t.Context(), store.Decision{TxID: six.TxID, By: store.Viewer{Caller: "ann", Operator: true}, Action: txmanager.ActionCancel, Reason: "cancelled after the backup"})
	if err != nil || out.SubState != txmanager.Cancelled {
		t.Errorf("cancel: got %+v, %v; want it cancelled", out, err)
	}
	if n := value[int](t, db, `select count(*) from tx_decision where action = 'PROCEED'`); n != 2 {
		t.Errorf("let go on, on record: got %d, want 2", n)
	}
}

// A payout that was held beside a foreign transaction at a further restore is in doubt. It
// proceeds only once an operator has stated that it was not paid.
func TestAHoldOfBeforeARestoreLetsNoPayoutGoOn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	payerOf(t, db, alice)
	lost(t, db, alice, nil, 5, 6, 7)
	payouts := make(map[int]string)
	for value, reqID := range map[int]string{5: "01ARZ3NDEKTSV4RRFFQ69G5FA5", 6: "01ARZ3NDEKTSV4RRFFQ69G5FA6", 7: "01ARZ3NDEKTSV4RRFFQ69G5FA7"} {
		in := worth(alice, reqID, value)
		in.Caller = store.PayoutCaller
		a, held := mustCreate(t, db, in)
		if payouts[value] = a.TxID; !held {
			t.Fatalf("payout of %d is not held", value)
		}
	}
	acceptRestored(t, db)
	run(t, db, `alter table payout_statement drop constraint statement_of_a_transfer`)
	state := func(reqID string, refund bool) {
		run(t, db, `insert into payout_statement (req_id, of_confirmed, paid, refund, nonces_below, other_payments, by, reason, change, acted_at)
			select $1, false, false, $2, 0, '{}', 'ann', 'r', max(id), clock_timestamp() from identity_change`, reqID, refund)
	}
	state("01ARZ3NDEKTSV4RRFFQ69G5FA6", false)
	state("01ARZ3NDEKTSV4RRFFQ69G5FA7", true)
	through := uint64(2)
	d := store.HoldDecision{Submitter: alice, Through: &through, Limit: 10, By: "ann", Reason: "as the log has it"}
	if out, err := db.WriteOff(t.Context(), d); err != nil || out.WrittenOff != 3 || out.Proceeded != 1 {
		t.Errorf("write off: got %+v, %v; want the one let go on that was stated not paid, to be paid", out, err)
	}
	if !heldByCopy(t, db, payouts[5]) || !heldByCopy(t, db, payouts[7]) {
		t.Error("a payout in doubt, or one to be given back, was let go on")
	}
	if got := value[bool](t, db, `select held from managed_tx where tx_id = $1`, payouts[6]); got {
		t.Error("the payout that was not paid and is to be paid: got it held")
	}
}

// A request that a release names for another nonce is none of the foreign transaction
// that it was held for: that one holds the next intent with its call.
func TestANamedRequestLeavesItsHoldFree(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	lost(t, db, alice, nil, 5)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	foreign := nameIn(t, db, "five", five.TxID)
	if got := value[string](t, db, `select state || '/' || sub_state || ' ' || recorded_nonce from managed_tx where tx_id = $1`, five.TxID); got != "CONFIRMED/RECORDED 1" {
		t.Fatalf("the named request: got %s", got)
	}
	lostToo, held := mustCreate(t, db, worth(alice, "lost too", 5))
	if !held {
		t.Error("another request with the call of nonce 0: got it not held")
	}
	zero := uint64(0)
	if p, err := db.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: &zero, By: "ann", Reason: "r"}, lostToo.TxID); err != nil || p.SubState != txmanager.RecordedOnChain {
		t.Errorf("match: got %+v, %v", p, err)
	}
	if foreign != nil {
		t.Error(foreign)
	}
}

// A match that commits while a release is evaluated takes the request from it. The release of
// another nonce by that name then changes nothing.
func TestAReleaseNamesNothingThatWasMatchedMeanwhile(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	lost(t, db, alice, nil, 5)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	zero := uint64(0)
	if _, err := db.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: &zero, By: "ann", Reason: "r"}, five.TxID); err != nil {
		t.Fatal(err)
	}
	if err := nameIn(t, db, "five", five.TxID); err == nil || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("release: got %v, want it refused whole", err)
	}
	if n := value[int](t, db, `select count(*) from protect_incident where closed_at is null`); n != 1 {
		t.Errorf("open incidents: got %d, want the one", n)
	}
}

// nameIn has a second incident of alice released, in which nonce 1 was named the request.
func nameIn(t *testing.T, db storetest.Bundle, requestID, txID string) error {
	t.Helper()
	run(t, db, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	w := take(t, db, alice, "release/2")
	taker := calls(5)
	taker.Hash = txmanager.Hash{9}
	foreign := txmanager.ForeignTransaction{Nonce: 1, Incident: 2, Tx: taker, CallDigest: taker.CallDigest(), Succeeded: true, Receipt: []byte(`{}`)}
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign}); err != nil {
		t.Fatal(err)
	}
	_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &txmanager.ReleaseRequest{
		Incident: 2, Mode: txmanager.Resync, By: "ann", Reason: "another incident", Count: 2, Requests: map[uint64]string{1: requestID},
		EndedRequests: []txmanager.Naming{{Nonce: 1, RequestID: requestID, TxID: txID}},
	}}})
	return err
}
