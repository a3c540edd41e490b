package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A foreign transaction is stored as it was read, under the fence. The last reading of a nonce
// stays.
func TestForeignTransactionsAreKept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	db.Run(t, openIncident, alice)
	foreign := func(n uint64, to *txmanager.Address, hash byte) txmanager.ForeignTransaction {
		f := txmanager.ForeignTransaction{Nonce: n, Incident: 1, Succeeded: n == 2, Receipt: []byte(`{"status": "0x1"}`), Tx: txmanager.ConsumingTx{
			Hash: txmanager.Hash{hash}, BlockNumber: 7, BlockHash: txmanager.Hash{9}, Node: "node-1", To: to, ValueWei: "1000000000000000000000", Data: []byte{1, 2}}}
		f.CallDigest = f.Tx.CallDigest()
		return f
	}
	first := []txmanager.ForeignTransaction{foreign(1, nil, 1), foreign(2, new(eip155.Address([20]byte{5})), 2), foreign(4, nil, 4)}
	first[2].Tx.Data = nil // too long
	w := take(t, db, alice, "a/1")
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, first, nil))
	later := foreign(1, new(eip155.Address([20]byte{6})), 5)
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{later}, nil))
	err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign(3, new(txmanager.Address("0x00000000000000000000000000000000000000C3")), 3)}, nil)
	check.Equal(t, "refuses an address that is not canonical", storetest.Violated(err), "foreign_is_of_the_chain")
	for _, r := range []struct {
		from, below uint64
		want        []txmanager.ForeignTransaction
	}{
		{0, 5, []txmanager.ForeignTransaction{later, first[1], first[2]}},
		{2, 4, []txmanager.ForeignTransaction{first[1]}},
		{5, 9, nil},
	} {
		got := check.Value(db.ForeignTransactions(t.Context(), alice, r.from, r.below))(t)
		check.Same(t, fmt.Sprintf("from %d below %d", r.from, r.below), got, r.want, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(txmanager.ForeignTransaction{}, "ReadAt"))
		for _, f := range got {
			if time.Since(f.ReadAt) > time.Hour {
				t.Errorf("nonce %d: read at %v, want now", f.Nonce, f.ReadAt)
			}
		}
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseAnyway})
	check.Err(t, "without the lease", lease.ErrFenced)(db.StoreForeignTransactions(t.Context(), w.Lease, first, nil))
}

// A release has used a foreign transaction, and intents are held by the digest of its call.
// After a reorg below finality another transaction in its place changes neither: the reading
// is refused. The same transaction in another block is stored.
func TestADecidedForeignTransactionStaysTheSame(t *testing.T) {
	t.Parallel()
	db := registered(t, 8, alice)
	lost(t, db, alice, nil, 5, 6)
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	w := take(t, db, alice, "a/1")
	before := check.Value(db.ForeignTransactions(t.Context(), alice, 0, 9))(t)
	if len(before) != 2 {
		t.Fatalf("foreign transactions: got %v, want two", before)
	}
	other, moved := before[0], before[1]
	other.Incident, other.Tx = 2, calls(7)
	other.Tx.Hash, other.Tx.BlockHash, other.CallDigest = txmanager.Hash{7}, txmanager.Hash{8}, calls(7).CallDigest()
	moved.Incident, moved.Tx.BlockNumber = 2, 99
	for _, all := range [][]txmanager.ForeignTransaction{{other}, {moved, other}} {
		if err := db.StoreForeignTransactions(t.Context(), w.Lease, all, nil); !errors.Is(err, txmanager.ErrForeignChanged) || !errors.Is(err, txmanager.ErrNoQuorum) {
			t.Errorf("another transaction at nonce 0: got %v, want it refused", err)
		}
	}
	check.Err(t, "another transaction, found in blocks", txmanager.ErrForeignChanged)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{other}, &txmanager.ForeignScan{Incident: 2, Begun: true}))
	check.Same(t, "what is stored", check.Value(db.ForeignTransactions(t.Context(), alice, 0, 9))(t), before)
	check.Err(t, "the same in another block", nil)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{moved}, nil))
	check.Equal(t, "open rows with the digest of their transactions", value[int](t, db, `select count(*) from foreign_hold h join foreign_transaction f using (submitter, nonce) where h.call_digest = f.call_digest`), 2)
	db.Run(t, `update protect_incident set closed_at = now(), closed_by = 'ann', mode = 'resume', reason = 'r' where incident = 2`)
	if a, held := mustCreate(t, db, worth(alice, "five", 5)); !held {
		t.Errorf("an intent with the call that was judged: got %+v not held", a)
	}
}

// The progress of reading blocks is stored with their transactions, in one commit under the
// fence. A former token stores neither. Another PROTECT incident begins anew.
func TestForeignReadingIsKept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	db.Run(t, openIncident, alice)
	reading := func(incident int) txmanager.ForeignScan {
		t.Helper()
		return check.Value(db.ForeignScan(t.Context(), alice, incident, 9))(t)
	}
	first := reading(1)
	if first.Begun || first.TerminalBlock != nil || time.Since(first.Registered) > time.Hour {
		t.Errorf("before: got %+v, want none, and when the submitter was registered", first)
	}
	found := []txmanager.ForeignTransaction{{Nonce: 8, Incident: 1, Succeeded: true, Receipt: []byte(`{}`),
		Tx: txmanager.ConsumingTx{Hash: txmanager.Hash{1}, BlockNumber: 7, BlockHash: txmanager.Hash{9}, Node: "node-1", ValueWei: "1"}}}
	now := time.Now().Truncate(time.Microsecond)
	kept := txmanager.ForeignScan{Incident: 1, Begun: true, Start: 5, Block: 90, Final: 100}
	ends := kept
	ends.Block, ends.Again, ends.Passes, ends.EndedAt = 100, new(uint64(3)), 2, &now
	w := take(t, db, alice, "a/1")
	for i, want := range []txmanager.ForeignScan{kept, ends, kept} {
		check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, found[:1-min(i, 1)], &want))
		got := reading(1)
		check.Same(t, fmt.Sprintf("stored %d", i), got, want, cmpopts.IgnoreFields(txmanager.ForeignScan{}, "TerminalBlock", "Registered", "MovedAt"))
		if got.TerminalBlock == nil || *got.TerminalBlock != 7 || got.MovedAt.Before(first.MovedAt) || time.Since(got.MovedAt) > time.Hour {
			t.Errorf("stored %d: got settled at block %v, moved at %s; want block 7, now", i, got.TerminalBlock, got.MovedAt)
		}
	}
	if got := reading(2); got.Begun || got.Block != 0 {
		t.Errorf("of another incident: got %+v, want none", got)
	}

	next := take(t, db, alice, "a/1")
	beyond, more := kept, []txmanager.ForeignTransaction{found[0]}
	beyond.Block, more[0].Nonce = 99, 9
	check.Err(t, "under a stale token", lease.ErrFenced)(db.StoreForeignTransactions(t.Context(), w.Lease, more, &beyond))
	check.Equal(t, "the block of the reading, under a stale token", reading(1).Block, 90)
	check.Equal(t, "under a stale token", len(check.Value(db.ForeignTransactions(t.Context(), alice, 0, 99))(t)), 1)
	if err := db.StoreForeignTransactions(t.Context(), next.Lease, more, &beyond); err != nil || reading(1).Block != 99 {
		t.Errorf("under the token in force: got %v, block %d; want block 99", err, reading(1).Block)
	}
}

// The reading begins at the last nonce whose transaction is known: one of ours that is
// final, or a foreign one.
func TestForeignReadingBeginsAtTheLastSettledNonce(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	for i, request := range []string{"a", "b"} {
		post(t, db, alice, request)
		finish(t, db, block(uint64(7+10*i), 1))
	}
	db.Run(t, openIncident, alice)
	w := take(t, db, alice, "a/1")
	foreign := txmanager.ForeignTransaction{Nonce: 4, Incident: 1, Receipt: []byte(`{}`),
		Tx: txmanager.ConsumingTx{Hash: txmanager.Hash{1}, BlockNumber: 30, BlockHash: txmanager.Hash{9}, Node: "node-1", ValueWei: "1"}}
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign}, nil))
	for from, want := range map[uint64]uint64{0: 0, 1: 7, 2: 17, 4: 17, 5: 30, 9: 30} {
		r, err := db.ForeignScan(t.Context(), alice, 1, from)
		if err != nil || (r.TerminalBlock == nil) != (want == 0) || want != 0 && *r.TerminalBlock != want {
			t.Errorf("for nonces from %d on: got %+v, %v; want block %d", from, r, err, want)
		}
	}
}

// finish ends the head of alice's queue in the block.
func finish(t *testing.T, db storetest.Bundle, in txmanager.Header) txmanager.Tx {
	t.Helper()
	sendAll(t, db, alice)
	w := take(t, db, alice, "a/1")
	tx := w.Open[0]
	from := tx.State
	confirmedIn(`{}`, in)(&tx)
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: from, To: tx}}, LeaseEnd: txmanager.ReleaseUnlessRerun,
		Cursor: txmanager.CursorChange{FinalHead: in.Number, FinalBlocks: append(w.FinalBlocks, in)}})
	return tx
}

// The last final blocks come back with the work, and what ended in one of them is
// found by it.
func TestFinalBlocksAndWhatEndedInThem(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	postAll(t, db, alice, "a", "b", "c")
	blocks := []txmanager.Header{block(7, 1), block(9, 2), block(12, 3)}
	var ended []txmanager.Tx
	for _, b := range blocks {
		ended = append(ended, finish(t, db, b))
	}
	w := take(t, db, alice, "a/2")
	check.Same(t, "final blocks", w.FinalBlocks, blocks)
	check.Equal(t, "final head", w.FinalHead, 12)
	got, err := db.FinalTransactions(t.Context(), alice, []txmanager.Hash{blocks[0].Hash, blocks[2].Hash, {9}})
	if err != nil || len(got) != 2 || got[0].Nonce != 0 || got[1].Nonce != 2 || got[1].Hash != ended[2].Hash() || len(got[0].Raw) == 0 || !got[0].Succeeded {
		t.Errorf("finals of two blocks: got %+v, %v; want nonces 0 and 2 with their bytes", got, err)
	}
	for from, want := range map[uint64][]txmanager.Header{0: blocks[2:], 12: blocks[2:], 13: {}} {
		check.Same(t, fmt.Sprint("highest final blocks from ", from), check.Value(db.FinalBlocks(t.Context(), alice.Namespace(), alice.ChainID(), from))(t), want)
	}
	check.Equal(t, "of another chain", len(check.Value(db.FinalBlocks(t.Context(), alice.Namespace(), 1, 0))(t)), 0)
	check.Equal(t, "of another namespace", len(check.Value(db.FinalBlocks(t.Context(), "mem", alice.ChainID(), 0))(t)), 0)
	for b, want := range map[txmanager.Header]int{blocks[2]: 1, blocks[1]: 0, block(12, 9): 0} {
		check.Equal(t, fmt.Sprintf("whose highest final block is %d %s", b.Number, b.Hash), len(check.Value(db.FinalIn(t.Context(), b))(t)), want)
	}
}

// A submitter in PROTECT stays under watch. Its separate list of the sweep has it if its watch
// task was lost, or if a final transaction must be restored.
func TestLostWatchInProtectIsSwept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	for _, sub := range []txmanager.Submitter{alice, bob} {
		post(t, db, sub, "r")
		sendAll(t, db, sub)
	}
	db.Run(t, `update managed_tx set next_check_at = clock_timestamp() - interval '1 hour', next_resubmit_at = clock_timestamp() - interval '1 hour'`)
	db.Run(t, openIncident, alice)
	wantProtected(t, db, "in PROTECT and unwatched", 10, alice)
	db.Run(t, `update managed_tx set next_check_at = clock_timestamp() + interval '1 hour'`)
	wantProtected(t, db, "in PROTECT and watched", 10)
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"why": "REORG"}')`, bob)
	wantProtected(t, db, "a final block has fallen", 10, bob)
}

// wantProtected checks which submitters in PROTECT a sweep takes, at most so many.
func wantProtected(t *testing.T, db storetest.Bundle, when string, limit int, want ...txmanager.Submitter) {
	t.Helper()
	check.Same(t, when, check.Value(db.OverdueProtected(t.Context(), time.Second, limit))(t), want, cmpopts.EquateEmpty())
}

// A submitter in PROTECT without open transactions is checked once a minute, to read the
// foreign transactions that its release needs. Those whose watch task was lost come first, and
// it delays none of them.
func TestIdleSubmitterInProtectIsSwept(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	wantProtected(t, db, "not in PROTECT", 10)
	db.Run(t, openIncident, alice)
	wantProtected(t, db, "in PROTECT with nothing open", 10, alice)
	wantProtected(t, db, "within the same minute", 10)
	db.Run(t, `update submitter set swept_at = clock_timestamp() - interval '61 seconds' where submitter = $1`, alice)
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"why": "REORG"}')`, bob)
	db.Run(t, `update submitter set swept_at = clock_timestamp() where submitter = $1`, bob)
	wantProtected(t, db, "one that has lost its watch, and room for one", 1, bob)
	db.Run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'op', reason = 'r', mode = 'resume'`)
	wantProtected(t, db, "released", 10)
}

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
	var all []txmanager.ForeignTransaction
	for n, value := range values {
		all = append(all, foreignAt(uint64(n), 1, value, txmanager.Hash{byte(n + 1), byte(value)}))
	}
	r := txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "restored", Count: uint64(len(values)), Requests: named}
	check.OK(t)(releases(t, db, sub, r, all...))
}

// foreignAt is the foreign transaction of that value that consumed a nonce of an incident.
func foreignAt(nonce uint64, incident, value int, hash txmanager.Hash) txmanager.ForeignTransaction {
	taker := calls(value)
	taker.Hash = hash
	return txmanager.ForeignTransaction{Nonce: nonce, Incident: incident, Tx: taker, CallDigest: taker.CallDigest(), Succeeded: true, Receipt: []byte(`{}`)}
}

// releases closes the incident of sub as an operator requests it, once these foreign transactions are stored.
func releases(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, r txmanager.ReleaseRequest, foreign ...txmanager.ForeignTransaction) error {
	t.Helper()
	w := take(t, db, sub, fmt.Sprint("release/", r.Incident))
	if len(foreign) > 0 {
		check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, foreign, nil))
	}
	closes := txmanager.CursorChange{ClearSuspected: true, CloseIncident: &r}
	_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: closes})
	return err
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
	lost(t, db, alice, nil, 5, 5, 7, 0)
	noValue := intent(alice, "no value")
	noValue.Payload = []byte(`{"to":"0x00000000000000000000000000000000000000b0"}`)

	want := []struct {
		in   store.Intent
		held bool
	}{
		{worth(alice, "first of 5", 5), true}, {worth(alice, "another value", 6), false}, {worth(alice, "second of 5", 5), true},
		{worth(alice, "third of 5", 5), false}, {worth(alice, "of 7", 7), true}, {noValue, true},
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
	if err != nil || len(holds) != 4 || holds[0].RequestID == nil || *holds[0].RequestID != "first of 5" ||
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
	d := store.HoldDecision{Submitter: alice, Nonce: new(uint64(0)), Limit: 1, By: "ann", Reason: "a person's own payment"}
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
		r, _, err := db.TxWaiting(t.Context(), c.txID, shop)
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
	d := store.HoldDecision{Submitter: alice, Nonce: new(uint64(0)), Limit: 1, By: "ann", Reason: "a person's own payment"}
	check.Equal(t, "write off", check.Value(db.WriteOff(t.Context(), d))(t), (store.WriteOffResult{WrittenOff: 1, Remaining: 2, Token: 1}))
	check.Equal(t, "the intent", subState(t, db, five.TxID), "HELD")
	check.Equal(t, "the nonce for which it is held", holds(), 1)
	d.Nonce = new(uint64(1))
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
	named := txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "restored", Count: 1, Requests: map[uint64]string{0: "known"}, EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "known"}}}
	check.OK(t)(releases(t, db, alice, named, foreignAt(0, 1, 5, txmanager.Hash{1})))
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	check.OK(t)(releases(t, db, alice, txmanager.ReleaseRequest{Incident: 2, Mode: txmanager.Resync, By: "ann", Reason: "another incident", Count: 1}))
	check.Equal(t, "an intent with the call of the named request: held", isHeld(t, db, worth(alice, "a new one", 5)), false)
}
