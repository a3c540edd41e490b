package store_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// calls is what the intents of these tests call, with a value of their own.
func calls(value int) txmanager.ConsumingTx {
	to, _ := eip155.ParseAddress("0x00000000000000000000000000000000000000b0")
	return txmanager.ConsumingTx{To: &to, ValueWei: fmt.Sprint(value), Node: "node"}
}

// worth is an intent that calls the same with that value.
func worth(sub txmanager.Submitter, requestID string, value int) store.Intent {
	in := intent(sub, requestID)
	in.Payload = fmt.Appendf(nil, `{"to":"0x00000000000000000000000000000000000000b0","value":"%d"}`, value)
	return in
}

// handled is an intent whose call only its handler knows.
func handled(sub txmanager.Submitter, requestID string) store.Intent {
	in := intent(sub, requestID)
	in.Handler, in.Payload = "pays", []byte(`{"order":1}`)
	return in
}

// lost makes nonces from 0 on ones that foreign transactions consumed, with these values,
// and releases the submitter; the nonces of named were named requests.
func lost(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, named map[uint64]string, values ...int) {
	t.Helper()
	db.Run(t, openIncident, sub)
	w := take(t, db, sub, "release/1")
	var all []txmanager.ForeignTransaction
	for n, value := range values {
		taker := calls(value)
		taker.Hash = txmanager.Hash{byte(n + 1), byte(value)}
		all = append(all, txmanager.ForeignTransaction{Nonce: uint64(n), Incident: 1, Tx: taker, CallDigest: taker.CallDigest(), Succeeded: true, Receipt: []byte(`{}`)})
	}
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, all))
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &txmanager.ReleaseRequest{
		Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "restored", Count: uint64(len(values)), Requests: named,
	}}})
}

// mustCreate stores an intent, and says whether it is held.
func mustCreate(t *testing.T, db storetest.Bundle, in store.Intent) (a store.StoredIntent, held bool) {
	t.Helper()
	a = create(t, db, in)
	held = value[bool](t, db, `select held from managed_tx where tx_id = $1`, a.TxID)
	if held && a.Queued {
		t.Errorf("%s: got it held and queued", in.RequestID)
	}
	return a, held
}

// isHeld stores an intent, and says whether it is held.
func isHeld(t *testing.T, db storetest.Bundle, in store.Intent) bool {
	t.Helper()
	_, held := mustCreate(t, db, in)
	return held
}

// A foreign transaction whose request is unknown holds one new intent with its call, and no
// other. A repeated post does not let it proceed.
func TestForeignTransactionHoldsOneMatchingIntent(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 5, 7)

	want := []struct {
		in   store.Intent
		held bool
	}{
		{worth(alice, "first of 5", 5), true}, {worth(alice, "another value", 6), false}, {worth(alice, "second of 5", 5), true},
		{worth(alice, "third of 5", 5), false}, {worth(alice, "of 7", 7), true},
	}
	ids := map[string]string{}
	for _, w := range want {
		a, held := mustCreate(t, db, w.in)
		if ids[w.in.RequestID] = a.TxID; held != w.held || !a.New {
			t.Errorf("%s: got held %v, new %v; want held %v, new", w.in.RequestID, held, a.New, w.held)
		}
		w.in.TxID = uuid.NewString() // as every post has
		if again, still := mustCreate(t, db, w.in); again.TxID != a.TxID || again.New || still != w.held {
			t.Errorf("%s, posted again: got %+v, held %v; want held %v", w.in.RequestID, again, still, w.held)
		}
	}
	check.Equal(t, "sub-state", subState(t, db, ids["of 7"]), "HELD")
	holds, err := db.OpenHolds(t.Context(), alice, -1, 10)
	if err != nil || len(holds) != 3 || holds[0].RequestID == nil || *holds[0].RequestID != "first of 5" ||
		*holds[1].RequestID != "second of 5" || *holds[2].TxID != ids["of 7"] {
		t.Errorf("open: got %+v, %v", holds, err)
	}
	check.Same(t, "the queue", inQueue(take(t, db, alice, "a/1")), []string{"another value", "third of 5"})
}

// What a release named holds nothing.
func TestNamedNonceHoldsNothing(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, map[uint64]string{0: "known"}, 5, 6)
	check.Equal(t, "held with the call of a nonce that was named", isHeld(t, db, worth(alice, "as the named one", 5)), false)
	check.Equal(t, "held with the call of a nonce that was not named", isHeld(t, db, worth(alice, "as the other", 6)), true)
}

// Many intents in one round trip, and many at once, are held by as many nonces as there
// are, and by no more.
func TestForeignTransactionsHoldAmongMany(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice, bob)
	lost(t, db, alice, nil, 5, 5, 5)
	var all []store.Intent
	for i := range 5 {
		all = append(all, worth(alice, fmt.Sprint("batch-", i), 5), worth(bob, fmt.Sprint("batch-", i), 5))
	}
	results, err := db.CreateAll(t.Context(), all[:4], 100)
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Fatalf("create all: got %+v, %v", results, err)
	}
	var waiting []<-chan storetest.Outcome[store.StoredIntent]
	for _, in := range all[4:] {
		waiting = append(waiting, storetest.Start(func() (store.StoredIntent, error) { return db.Create(t.Context(), in, 100) }))
	}
	for _, c := range waiting {
		if o := <-c; o.Err != nil {
			t.Errorf("create: %v", o.Err)
		}
	}
	check.Equal(t, "held", value[int](t, db, `select count(*) from managed_tx where held and submitter = $1`, alice), 3)
	check.Equal(t, "held by a nonce each", value[int](t, db, `select count(*) from managed_tx m join foreign_hold h using (tx_id) where m.held_for = 'CALL'`), 3)
	check.Equal(t, "held of another submitter", value[int](t, db, `select count(*) from managed_tx where held and submitter = $1`, bob), 0)
}

// A written-off nonce lets its intent proceed, once, with a record. The last one also lets
// those with an unknown call proceed.
func TestWriteOffLetsIntentsProceed(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 6)
	five, held := mustCreate(t, db, worth(alice, "five", 5))
	unknown, alsoHeld := mustCreate(t, db, handled(alice, "unknown"))
	if !held || !alsoHeld {
		t.Fatalf("held: got %v and %v, want both", held, alsoHeld)
	}
	check.Err(t, "proceed", store.ErrHeldForForeign)(db.Proceed(t.Context(), five.TxID, "ann", "wanted"))
	check.Equal(t, "proceed all", check.Value(db.ProceedAll(t.Context(), alice, unknown.TxID, "ann", "wanted", 10))(t), (store.ProceededAll{Beside: 2, Token: 1}))
	zero := uint64(0)
	d := store.HoldDecision{Submitter: alice, Nonce: &zero, Limit: 1, By: "ann", Reason: "a person's own payment"}
	check.Equal(t, "write off", check.Value(db.WriteOff(t.Context(), d))(t), (store.WriteOffResult{WrittenOff: 1, Proceeded: 1, Remaining: 1, Token: 1}))
	check.Equal(t, "the intent of the call", subState(t, db, five.TxID), "")
	check.Equal(t, "the intent whose call is not known", subState(t, db, unknown.TxID), "HELD")
	check.Err(t, "write off again", store.ErrNoHold)(db.WriteOff(t.Context(), d))
	d.Nonce = nil
	check.Equal(t, "write off the rest", check.Value(db.WriteOff(t.Context(), d))(t), (store.WriteOffResult{WrittenOff: 1, Proceeded: 1, Token: 1}))
	check.Equal(t, "the intent whose call is not known", subState(t, db, unknown.TxID), "")
	check.Equal(t, "decisions on record", value[int](t, db, `select count(*) from tx_decision where action = 'PROCEED' and by = 'ann' and reason = $1`, d.Reason), 2)
	check.Equal(t, "a later intent with the call: held", isHeld(t, db, worth(alice, "later", 5)), false)
}

// An operator lets a single intent with an unknown call proceed.
func TestIntentOfAHandlerIsLetGoOnByItself(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5)
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	if out, err := db.Proceed(t.Context(), unknown.TxID, "ann", "a new order"); err != nil || out.SubState != "" || !out.Recorded {
		t.Errorf("proceed: got %+v, %v", out, err)
	}
}

// An intent held beside a foreign transaction may have run, so a cancel does not return
// CANCELLED.
func TestWhatMayHaveRunIsNotCancelled(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5)
	held, _ := mustCreate(t, db, worth(alice, "five", 5))
	for _, v := range []store.Viewer{shop, operator} {
		out, err := decide(t, db, held.TxID, v, txmanager.ActionCancel)
		if err != nil || out.State != txmanager.Queued || out.Recorded {
			t.Errorf("cancel by %+v: got %+v, %v; want it untouched", v, out, err)
		}
	}
	db.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	post := intent(bob, "one")
	db.Run(t, `insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by) values ($1, 'local', 0, 1, '{*}', 'test')`, bob)
	db.Run(t, withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values ($1, $2, 'one', 'shop', sha256('x'))`), post.TxID, bob)
	check.OK(t)(db.AcceptDatabase(t.Context(), "ann", "restored"))
	check.Equal(t, "cancel by the caller before the release", check.Value(decide(t, db, post.TxID, shop, txmanager.ActionCancel))(t).State, txmanager.Queued)
	check.Equal(t, "cancel by an operator before the release", cancelledAs(t, db, post.TxID, operator), "FAILED/CANCELLED")
}

// A submitter with a policy is held to both.
func TestHeldIntentOfALimitedSubmitterCounts(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	db.Run(t, `insert into submitter_policy (submitter, max_per_minute) values ($1, 2)`, alice)
	lost(t, db, alice, nil, 5)
	check.Equal(t, "the first: held", isHeld(t, db, worth(alice, "five", 5)), true)
	check.Equal(t, "the second: held", isHeld(t, db, worth(alice, "six", 6)), false)
	if _, err := db.Create(t.Context(), worth(alice, "seven", 7), 100); err == nil {
		t.Error("the third in a minute: got it accepted, want it refused by the policy")
	}
}

// A match ends the held intent for good, as the foreign transaction ended. An intent with
// another call, or one not held for it, is refused.
func TestMatchEndsTheIntent(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 6, 7)
	db.Run(t, `update foreign_transaction set succeeded = false where nonce = 1`)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	six, _ := mustCreate(t, db, worth(alice, "six", 6))
	seven, _ := mustCreate(t, db, worth(alice, "seven", 7))
	free, _ := mustCreate(t, db, worth(alice, "free", 5))
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	match := func(n uint64, txID string) (store.Proceeded, error) {
		return db.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: &n, By: "ann", Reason: "the caller's log"}, txID)
	}
	for _, c := range []struct {
		nonce uint64
		txID  string
		want  error
	}{
		{1, five.TxID, store.ErrNotMatching}, {0, free.TxID, store.ErrNotMatching}, {9, five.TxID, store.ErrNoHold}, {0, uuid.NewString(), store.ErrNotFound},
	} {
		check.Err(t, fmt.Sprintf("match %s with nonce %d", c.txID, c.nonce), c.want)(match(c.nonce, c.txID))
	}
	for _, c := range []struct {
		nonce uint64
		txID  string
		state txmanager.State
		sub   txmanager.SubState
	}{
		{0, five.TxID, txmanager.Confirmed, "RECORDED"}, {1, six.TxID, txmanager.Failed, txmanager.Reverted}, {2, unknown.TxID, txmanager.Confirmed, "RECORDED"},
	} {
		if p, err := match(c.nonce, c.txID); err != nil || p.State != c.state || p.SubState != c.sub {
			t.Errorf("match with nonce %d: got %+v, %v; want %s/%s", c.nonce, p, err, c.state, c.sub)
		}
		r, err := db.Tx(t.Context(), c.txID, shop)
		if err != nil || r.TxHash == nil || *r.TxHash != (txmanager.Hash{byte(c.nonce + 1), byte(c.nonce + 5)}).String() || r.Receipt == nil {
			t.Errorf("the end: got %+v, %v; want the foreign transaction's hash and receipt", r, err)
		}
		check.Err(t, "match again", store.ErrNoHold)(match(c.nonce, c.txID))
	}
	check.Equal(t, "the intent in whose place another was matched", subState(t, db, seven.TxID), "")
	check.Same(t, "the queue", inQueue(take(t, db, alice, "a/1")), []string{"seven", "free"})
}

// Of two foreign transactions that do the same one is written off: the intent that was
// held for it may be the other, and is held for that.
func TestWhatMayBeAnotherForeignTransactionStaysHeld(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 5, 5)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	holds := func() int {
		return value[int](t, db, `select coalesce(max(nonce), -1) from foreign_hold where tx_id = $1 and ended_at is null`, five.TxID)
	}
	zero, one := uint64(0), uint64(1)
	d := store.HoldDecision{Submitter: alice, Nonce: &zero, Limit: 1, By: "ann", Reason: "a person's own payment"}
	check.Equal(t, "write off", check.Value(db.WriteOff(t.Context(), d))(t), (store.WriteOffResult{WrittenOff: 1, Remaining: 2, Token: 1}))
	check.Equal(t, "the intent", subState(t, db, five.TxID), "HELD")
	check.Equal(t, "the nonce for which it is held", holds(), 1)
	d.Nonce = &one
	check.OK(t)(db.MatchHold(t.Context(), d, unknown.TxID))
	check.Equal(t, "the intent in whose place another was matched", subState(t, db, five.TxID), "HELD")
	check.Equal(t, "the nonce for which it is held then", holds(), 2)
	d.Nonce = nil
	check.Equal(t, "write off the rest", check.Value(db.WriteOff(t.Context(), d))(t), (store.WriteOffResult{WrittenOff: 1, Proceeded: 1, Token: 1}))
}

// What a release named stays named: a later release, which says nothing of it, does not
// leave it open.
func TestNamedNonceHoldsNothingAfterALaterRelease(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	db.Run(t, openIncident, alice)
	w := take(t, db, alice, "release/1")
	five := calls(5)
	five.Hash = txmanager.Hash{1}
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{{Incident: 1, Tx: five, CallDigest: five.CallDigest(), Succeeded: true, Receipt: []byte(`{}`)}}))
	named := txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "restored", Count: 1, Requests: map[uint64]string{0: "known"}, EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "known"}}}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &named}})
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	w = take(t, db, alice, "release/2")
	again := txmanager.ReleaseRequest{Incident: 2, Mode: txmanager.Resync, By: "ann", Reason: "another incident", Count: 1}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &again}})
	check.Equal(t, "an intent with the call of the named request: held", isHeld(t, db, worth(alice, "a new one", 5)), false)
}
