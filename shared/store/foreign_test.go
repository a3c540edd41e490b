package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
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
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, first))
	later := foreign(1, new(eip155.Address([20]byte{6})), 5)
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{later}))
	err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign(3, new(txmanager.Address("0x00000000000000000000000000000000000000C3")), 3)})
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
	check.Err(t, "without the lease", lease.ErrFenced)(db.StoreForeignTransactions(t.Context(), w.Lease, first))
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
		if err := db.StoreForeignTransactions(t.Context(), w.Lease, all); !errors.Is(err, txmanager.ErrForeignChanged) || !errors.Is(err, txmanager.ErrNoQuorum) {
			t.Errorf("another transaction at nonce 0: got %v, want it refused", err)
		}
	}
	check.Err(t, "another transaction, found in blocks", txmanager.ErrForeignChanged)(db.StoreForeignScan(t.Context(), w.Lease, []txmanager.ForeignTransaction{other}, txmanager.ForeignScan{Incident: 2, Begun: true}))
	check.Same(t, "what is stored", check.Value(db.ForeignTransactions(t.Context(), alice, 0, 9))(t), before)
	check.Err(t, "the same in another block", nil)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{moved}))
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
		check.OK(t)(db.StoreForeignScan(t.Context(), w.Lease, found[:1-min(i, 1)], want))
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
	check.Err(t, "under a stale token", lease.ErrFenced)(db.StoreForeignScan(t.Context(), w.Lease, more, beyond))
	check.Equal(t, "the block of the reading, under a stale token", reading(1).Block, 90)
	check.Equal(t, "under a stale token", len(check.Value(db.ForeignTransactions(t.Context(), alice, 0, 99))(t)), 1)
	if err := db.StoreForeignScan(t.Context(), next.Lease, more, beyond); err != nil || reading(1).Block != 99 {
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
	check.OK(t)(db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign}))
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
	tx.State, tx.Sub = txmanager.Confirmed, ""
	tx.Receipt = &txmanager.Receipt{TxHash: tx.Hash(), BlockNumber: in.Number, BlockHash: in.Hash, Succeeded: true, Document: []byte(`{}`)}
	tx.Confirmations = []txmanager.Header{in}
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
