package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// A move that the table of transitions does not have is refused, and what stood
// beside it in the write is not written either.
func TestIllegalMoveWritesNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	tables := append([]string{"submitter_lease"}, written...)
	before := contents(t, db, tables...)
	for _, to := range []nonce.State{nonce.Tracking, nonce.Stuck, nonce.Protect, nonce.Confirmed, "LOST", ""} {
		illegal := remark(w.Queue[1], "illegal")
		illegal.To.State = to
		wr := everything(w)
		wr.Moves = append(wr.Moves, illegal)
		_, err := db.Write(t.Context(), wr)
		var refused nonce.ErrIllegalMove
		if !errors.As(err, &refused) || refused != (nonce.ErrIllegalMove{From: nonce.Queued, To: to}) {
			t.Errorf("QUEUED to %q: got %v, want it refused by name", to, err)
		}
	}
	if diff := cmp.Diff(before, contents(t, db, tables...)); diff != "" {
		t.Errorf("an illegal move wrote (-before +after):\n%s", diff)
	}
}

// Where the database refuses one part of a write, none of it is made.
func TestWriteIsOneTransaction(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, bob, 1)
	post(t, db, bob, "one")
	theirs := take(t, db, bob, "a/1")
	write(t, db, nonce.Write{Lease: theirs.Lease, Allocate: allocations(theirs, true)})
	w := twoQueued(t, db)
	tables := append([]string{"submitter_lease"}, written...)
	before := contents(t, db, tables...)
	wr := everything(w)
	taken := storetest.Signed(alice, wr.Allocate[0].Nonce, theirs.Queue[0].ID)
	wr.Allocate[0].Signed = &taken
	if _, err := db.Write(t.Context(), wr); violated(err) != "tx_version_pkey" {
		t.Errorf("a hash that is bound already: got %v, want it refused by tx_version_pkey", err)
	}
	if diff := cmp.Diff(before, contents(t, db, tables...)); diff != "" {
		t.Errorf("the refused write wrote (-before +after):\n%s", diff)
	}
}

// Bytes for a transaction that is not IN_FLIGHT fail the whole write.
func TestBytesForNothingHeldWriteNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	tables := append([]string{"submitter_lease"}, written...)
	before := contents(t, db, tables...)
	wr := everything(w)
	wr.Store = []nonce.Version{{Tx: wr.Allocate[0].Tx, From: nonce.InFlight, Kind: nonce.VersionOriginal, Signed: storetest.Signed(alice, 0, w.Queue[0].ID)}}
	if done, err := db.Write(t.Context(), wr); err == nil {
		t.Errorf("bytes for a QUEUED transaction: got %+v and no error", done)
	}
	if diff := cmp.Diff(before, contents(t, db, tables...)); diff != "" {
		t.Errorf("the failed write wrote (-before +after):\n%s", diff)
	}
}

// No version is stored beside a receipt: the nonce is consumed, and the mined version
// decides. The same bytes are stored for a transaction that has none.
func TestNoVersionIsStoredBesideAReceipt(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 2)
	post(t, db, alice, "mined")
	post(t, db, alice, "pending")
	w := take(t, db, alice, "a/1")
	write(t, db, nonce.Write{Lease: w.Lease, Allocate: allocations(w, true), Release: nonce.GiveBack})
	w = take(t, db, alice, "a/2")
	mined, pending := w.Unsettled[0], w.Unsettled[1]
	mined.State, mined.Sub, pending.State, pending.Sub = nonce.Tracking, nonce.Included, nonce.Tracking, nonce.Pending
	mined.Receipt = &nonce.Receipt{TxHash: mined.Hash(), BlockNumber: 1, BlockHash: nonce.Hash{1}, Succeeded: true}
	mined.Confirmations = []nonce.Header{{Number: 1, Hash: nonce.Hash{1}}}
	write(t, db, nonce.Write{Lease: w.Lease, Moves: []nonce.Move{{From: nonce.Submitted, To: mined}, {From: nonce.Submitted, To: pending}}})
	before := contents(t, db, written...)
	if done, err := db.Write(t.Context(), nonce.Write{Lease: w.Lease, Store: []nonce.Version{placeholderFor(mined)}}); err == nil {
		t.Errorf("a version beside a receipt: got %+v and no error", done)
	}
	if diff := cmp.Diff(before, contents(t, db, written...)); diff != "" {
		t.Errorf("the failed write wrote (-before +after):\n%s", diff)
	}
	write(t, db, nonce.Write{Lease: w.Lease, Store: []nonce.Version{placeholderFor(pending)}})
}

// placeholderFor is a signed placeholder for x's nonce.
func placeholderFor(x nonce.Tx) nonce.Version {
	s := nonce.Signed{Hash: nonce.Hash{0xff, byte(*x.Nonce)}, Raw: storetest.Bytes(x.Submitter.ChainID(), *x.Nonce, x.Submitter.Address(), 0, "")}
	return nonce.Version{Tx: x, From: x.State, Kind: nonce.VersionPlaceholder, Signed: s}
}

// A release names the PROTECT incident that the operator has seen. An incident
// with another number stays open.
func TestReleaseClosesOnlyTheIncidentThatItNames(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	run(t, db, openEpisode, alice)
	w := take(t, db, alice, "a/1")
	leave := func(episode int) error {
		_, err := db.Write(t.Context(), nonce.Write{Lease: w.Lease, Cursor: nonce.CursorChange{Leave: &nonce.Leave{Episode: episode, Mode: nonce.Resume, By: "op", Reason: "seen"}}})
		return err
	}
	for _, episode := range []int{0, 2} {
		if err := leave(episode); !errors.Is(err, nonce.ErrEpisodeClosed) {
			t.Errorf("release of incident %d while 1 is open: got %v, want ErrEpisodeClosed", episode, err)
		}
	}
	if open := value[int](t, db, `select count(*) from protect_episode where submitter = $1 and closed_at is null`, alice); open != 1 {
		t.Errorf("open incidents after it: got %d, want 1", open)
	}
	if err := leave(1); err != nil {
		t.Errorf("release of incident 1: %v", err)
	}
}

// The lease of one submitter is no right to move another's transactions.
func TestWriteMovesOnlyItsOwnSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	db.Register(t, bob, 1)
	post(t, db, bob, "one")
	theirs := take(t, db, bob, "b/1")
	before := contents(t, db, "managed_tx")
	done := write(t, db, nonce.Write{Lease: w.Lease, Moves: []nonce.Move{remark(theirs.Queue[0], "by a stranger")}})
	if done.Moved != 0 {
		t.Errorf("moved: got %d, want 0", done.Moved)
	}
	if diff := cmp.Diff(before, contents(t, db, "managed_tx")); diff != "" {
		t.Errorf("another submitter's transaction was written (-before +after):\n%s", diff)
	}
}

// Nonces and bytes under another submitter's lease bind nothing.
func TestAllocationBindsOnlyItsOwnSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	db.Register(t, bob, 1)
	post(t, db, bob, "one")
	theirs := take(t, db, bob, "b/1")
	before := contents(t, db, "managed_tx", "tx_version")
	if done := write(t, db, nonce.Write{Lease: w.Lease, Allocate: allocations(theirs, true)}); done.Allocated != 0 {
		t.Errorf("allocated: got %d, want 0", done.Allocated)
	}
	if diff := cmp.Diff(before, contents(t, db, "managed_tx", "tx_version")); diff != "" {
		t.Errorf("another submitter's transaction was bound (-before +after):\n%s", diff)
	}
}

// What an open episode stands for is written with the judgement that found it,
// once, and shows until a human closes it.
func TestWriteOpensProtectOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	for _, what := range []string{"first", "second"} {
		write(t, db, nonce.Write{Lease: w.Lease, Cursor: nonce.CursorChange{Protect: &nonce.Suspicion{What: what}}})
	}
	const episodes = `select coalesce(string_agg(episode || ' ' || (evidence ->> 'what') || ' ' || (closed_at is null), ', ' order by episode), '') from protect_episode`
	if got, want := value[string](t, db, episodes), "1 first true"; got != want {
		t.Errorf("episodes: got %s, want %s", got, want)
	}
	if got := value[string](t, db, `select in_flight_state from submitter_nonce_cursor`); got != "PROTECT" {
		t.Errorf("cursor shows: got %s, want PROTECT", got)
	}
	next, err := db.Again(t.Context(), w.Lease, true)
	if err != nil || !next.Protected {
		t.Fatalf("next look: got protected %v, %v; want it protected", next.Protected, err)
	}
	run(t, db, `update protect_episode set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	write(t, db, nonce.Write{Lease: next.Lease, Cursor: nonce.CursorChange{Protect: &nonce.Suspicion{What: "third"}}})
	if got, want := value[string](t, db, episodes), "1 first false, 2 third true"; got != want {
		t.Errorf("episodes after the first was closed: got %s, want %s", got, want)
	}
}

// What a look found out about the account is kept until a look says otherwise,
// and the highest final block never goes down.
func TestCursorKeepsWhatWasFound(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	seen := &nonce.Suspicion{What: "ahead", ExpectedNonce: 1, LatestCount: 2, Block: 9, BlockHash: nonce.Hash{1}, Node: "n"}
	steps := []struct {
		change    nonce.CursorChange
		suspicion *nonce.Suspicion
		head      uint64
	}{
		{nonce.CursorChange{Suspect: seen, FinalHead: 7}, seen, 7},
		{nonce.CursorChange{FinalHead: 5}, seen, 7},
		{nonce.CursorChange{FinalHead: 8, Trust: true}, nil, 8},
	}
	for i, step := range steps {
		write(t, db, nonce.Write{Lease: w.Lease, Cursor: step.change})
		next, err := db.Again(t.Context(), w.Lease, true)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		w = next
		if diff := cmp.Diff(step.suspicion, w.Suspicion); diff != "" || w.FinalHead != step.head {
			t.Errorf("step %d: got head %d, want %d; suspicion (-want +got):\n%s", i, w.FinalHead, step.head, diff)
		}
	}
}
