package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func blockOf(number uint64, mark byte) txmanager.Header {
	return txmanager.Header{Number: number, Hash: txmanager.Hash{0: mark, 31: byte(number)}}
}

// finish ends the head of alice's queue in the block.
func finish(t *testing.T, db storetest.Bundle, in txmanager.Header) txmanager.Tx {
	t.Helper()
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1]})
	w, err := db.BeginIteration(t.Context(), w.Lease, true)
	if err != nil {
		t.Fatal(err)
	}
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
	db := storetest.New(t)
	db.Register(t, alice, 1)
	for _, request := range []string{"a", "b", "c"} {
		post(t, db, alice, request)
	}
	blocks := []txmanager.Header{blockOf(7, 1), blockOf(9, 2), blockOf(12, 3)}
	var ended []txmanager.Tx
	for _, b := range blocks {
		ended = append(ended, finish(t, db, b))
	}
	w := take(t, db, alice, "a/2")
	if diff := cmp.Diff(blocks, w.FinalBlocks); diff != "" || w.FinalHead != 12 {
		t.Errorf("final head %d, blocks (-want +got):\n%s", w.FinalHead, diff)
	}
	got, err := db.FinalTransactions(t.Context(), alice, []txmanager.Hash{blocks[0].Hash, blocks[2].Hash, {9}})
	if err != nil || len(got) != 2 || got[0].Nonce != 0 || got[1].Nonce != 2 || got[1].Hash != ended[2].Hash() || len(got[0].Raw) == 0 || !got[0].Succeeded {
		t.Errorf("finals of two blocks: got %+v, %v; want nonces 0 and 2 with their bytes", got, err)
	}
	for from, want := range map[uint64][]txmanager.Header{0: blocks[2:], 12: blocks[2:], 13: {}} {
		list, err := db.FinalBlocks(t.Context(), alice.ChainID(), from)
		if diff := cmp.Diff(want, list); err != nil || diff != "" {
			t.Errorf("highest final blocks from %d: %v (-want +got):\n%s", from, err, diff)
		}
	}
	if list, err := db.FinalBlocks(t.Context(), 1, 0); err != nil || len(list) != 0 {
		t.Errorf("of another chain: got %v, %v; want none", list, err)
	}
	for b, want := range map[txmanager.Header]int{blocks[2]: 1, blocks[1]: 0, blockOf(12, 9): 0} {
		if who, err := db.FinalIn(t.Context(), b); err != nil || len(who) != want {
			t.Errorf("whose highest final block is %d %s: got %v, %v; want %d", b.Number, b.Hash, who, err, want)
		}
	}
}

// A submitter in PROTECT stays under watch. Its separate list of the sweep has it if its watch
// task was lost, or if a final transaction must be restored.
func TestLostWatchInProtectIsSwept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for _, sub := range []txmanager.Submitter{alice, bob} {
		db.Register(t, sub, 1)
		post(t, db, sub, "r")
		w := take(t, db, sub, "a/1")
		write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	}
	run(t, db, `update managed_tx set next_check_at = clock_timestamp() - interval '1 hour', next_resubmit_at = clock_timestamp() - interval '1 hour'`)
	run(t, db, openIncident, alice)
	got, err := db.OverdueProtected(t.Context(), time.Second, 10)
	if diff := cmp.Diff([]txmanager.Submitter{alice}, got); err != nil || diff != "" {
		t.Errorf("in PROTECT and unwatched: %v (-want +got):\n%s", err, diff)
	}
	run(t, db, `update managed_tx set next_check_at = clock_timestamp() + interval '1 hour'`)
	if got, err := db.OverdueProtected(t.Context(), time.Second, 10); err != nil || len(got) != 0 {
		t.Errorf("in PROTECT and watched: got %v, %v; want none", got, err)
	}
	run(t, db, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"why": "REORG"}')`, bob)
	if got, err := db.OverdueProtected(t.Context(), time.Second, 10); err != nil || len(got) != 1 || got[0] != bob {
		t.Errorf("a final block has fallen: got %v, %v; want %s", got, err, bob)
	}
}

// A submitter in PROTECT without open transactions is checked once a minute, to read the
// foreign transactions that its release needs. Those whose watch task was lost come first, and
// it delays none of them.
func TestIdleSubmitterInProtectIsSwept(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	swept := func(when string, limit int, want ...txmanager.Submitter) {
		t.Helper()
		got, err := db.OverdueProtected(t.Context(), time.Second, limit)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	swept("not in PROTECT", 10)
	run(t, db, openIncident, alice)
	swept("in PROTECT with nothing open", 10, alice)
	swept("within the same minute", 10)
	run(t, db, `update submitter set swept_at = clock_timestamp() - interval '61 seconds' where submitter = $1`, alice)
	run(t, db, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"why": "REORG"}')`, bob)
	run(t, db, `update submitter set swept_at = clock_timestamp() where submitter = $1`, bob)
	swept("one that has lost its watch, and room for one", 1, bob)
	run(t, db, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'op', reason = 'r', mode = 'resume'`)
	swept("released", 10)
}
