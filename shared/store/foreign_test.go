package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A foreign transaction is stored as it was read, under the fence. The last reading of a nonce
// stays.
func TestForeignTransactionsAreKept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	run(t, db, openIncident, alice)
	foreign := func(n uint64, to *txmanager.Address, hash byte) txmanager.ForeignTransaction {
		f := txmanager.ForeignTransaction{Nonce: n, Incident: 1, Succeeded: n == 2, Receipt: []byte(`{"status": "0x1"}`), Tx: txmanager.ConsumingTx{
			Hash: txmanager.Hash{hash}, BlockNumber: 7, BlockHash: txmanager.Hash{9}, Node: "node-1", To: to, ValueWei: "1000000000000000000000", Data: []byte{1, 2}}}
		f.CallDigest = f.Tx.CallDigest()
		return f
	}
	first := []txmanager.ForeignTransaction{foreign(1, nil, 1), foreign(2, &txmanager.Address{5}, 2), foreign(4, nil, 4)}
	first[2].Tx.Data = nil // too long
	w := take(t, db, alice, "a/1")
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, first); err != nil {
		t.Fatal(err)
	}
	later := foreign(1, &txmanager.Address{6}, 5)
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{later}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		from, below uint64
		want        []txmanager.ForeignTransaction
	}{
		{0, 5, []txmanager.ForeignTransaction{later, first[1], first[2]}},
		{2, 4, []txmanager.ForeignTransaction{first[1]}},
		{5, 9, nil},
	} {
		got, err := db.ForeignTransactions(t.Context(), alice, r.from, r.below)
		if diff := cmp.Diff(r.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(txmanager.ForeignTransaction{}, "ReadAt")); err != nil || diff != "" {
			t.Errorf("from %d below %d: %v (-want +got)\n%s", r.from, r.below, err, diff)
		}
		for _, f := range got {
			if time.Since(f.ReadAt) > time.Hour {
				t.Errorf("nonce %d: read at %v, want now", f.Nonce, f.ReadAt)
			}
		}
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.ReleaseAnyway})
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, first); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("without the lease: got %v, want it fenced", err)
	}
}

// A release has used a foreign transaction, and intents are held by the digest of its call.
// After a reorg below finality another transaction in its place changes neither: the reading
// is refused. The same transaction in another block is stored.
func TestAJudgedForeignTransactionStaysTheSame(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	lost(t, db, alice, nil, 5, 6)
	run(t, db, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	w := take(t, db, alice, "a/1")
	before, err := db.ForeignTransactions(t.Context(), alice, 0, 9)
	if err != nil || len(before) != 2 {
		t.Fatalf("got %v, %v; want two", before, err)
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
	if err := db.StoreForeignScan(t.Context(), w.Lease, []txmanager.ForeignTransaction{other}, txmanager.ForeignScan{Incident: 2, Begun: true}); !errors.Is(err, txmanager.ErrForeignChanged) {
		t.Errorf("another transaction, found in blocks: got %v, want it refused", err)
	}
	after, err := db.ForeignTransactions(t.Context(), alice, 0, 9)
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("what is stored, %v (-before +after):\n%s", err, diff)
	}
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{moved}); err != nil {
		t.Errorf("the same in another block: got %v, want it taken", err)
	}
	if n := value[int](t, db, `select count(*) from foreign_hold h join foreign_transaction f using (submitter, nonce) where h.call_digest = f.call_digest`); n != 2 {
		t.Errorf("open rows with the digest of their transactions: got %d, want 2", n)
	}
	run(t, db, `update protect_incident set closed_at = now(), closed_by = 'ann', mode = 'resume', reason = 'r' where incident = 2`)
	if a, held := mustCreate(t, db, worth(alice, "five", 5)); !held {
		t.Errorf("an intent with the call that was judged: got %+v not held", a)
	}
}

// The progress of reading blocks is stored with their transactions, in one commit under the
// fence. A former token stores neither. Another PROTECT incident begins anew.
func TestForeignReadingIsKept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	run(t, db, openIncident, alice)
	reading := func(incident int) txmanager.ForeignScan {
		t.Helper()
		r, err := db.ForeignScan(t.Context(), alice, incident, 9)
		if err != nil {
			t.Fatal(err)
		}
		return r
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
		if err := db.StoreForeignScan(t.Context(), w.Lease, found[:1-min(i, 1)], want); err != nil {
			t.Fatal(err)
		}
		got := reading(1)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(txmanager.ForeignScan{}, "TerminalBlock", "Registered", "MovedAt")); diff != "" {
			t.Errorf("stored %d (-want +got):\n%s", i, diff)
		}
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
	if err := db.StoreForeignScan(t.Context(), w.Lease, more, beyond); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("under a stale token: got %v, want it fenced", err)
	}
	if got := reading(1); got.Block != 90 {
		t.Errorf("under a stale token: got the reading at block %d, want it where it was, at 90", got.Block)
	}
	if all, err := db.ForeignTransactions(t.Context(), alice, 0, 99); err != nil || len(all) != 1 {
		t.Errorf("under a stale token: got %+v, %v, want the first alone", all, err)
	}
	if err := db.StoreForeignScan(t.Context(), next.Lease, more, beyond); err != nil || reading(1).Block != 99 {
		t.Errorf("under the token in force: got %v, block %d; want block 99", err, reading(1).Block)
	}
}

// The reading begins at the last nonce whose transaction is known: one of ours that is
// final, or a foreign one.
func TestForeignReadingBeginsAtTheLastSettledNonce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	for i, request := range []string{"a", "b"} {
		post(t, db, alice, request)
		finish(t, db, blockOf(uint64(7+10*i), 1))
	}
	run(t, db, openIncident, alice)
	w := take(t, db, alice, "a/1")
	foreign := txmanager.ForeignTransaction{Nonce: 4, Incident: 1, Receipt: []byte(`{}`),
		Tx: txmanager.ConsumingTx{Hash: txmanager.Hash{1}, BlockNumber: 30, BlockHash: txmanager.Hash{9}, Node: "node-1", ValueWei: "1"}}
	if err := db.StoreForeignTransactions(t.Context(), w.Lease, []txmanager.ForeignTransaction{foreign}); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[uint64]uint64{0: 0, 1: 7, 2: 17, 4: 17, 5: 30, 9: 30} {
		r, err := db.ForeignScan(t.Context(), alice, 1, from)
		if err != nil || (r.TerminalBlock == nil) != (want == 0) || want != 0 && *r.TerminalBlock != want {
			t.Errorf("for nonces from %d on: got %+v, %v; want block %d", from, r, err, want)
		}
	}
}
