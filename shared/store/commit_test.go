package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A move that the table of transitions does not have is refused, and what stood
// beside it in the write is not written either.
func TestIllegalMoveWritesNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	tables := append([]string{"submitter_lease"}, written...)
	before := contents(t, db, tables...)
	for _, to := range []txmanager.State{txmanager.Tracking, txmanager.Stuck, txmanager.Protect, txmanager.Confirmed, "LOST", ""} {
		illegal := remark(w.Queue[1], "illegal")
		illegal.To.State = to
		wr := everything(w)
		wr.Transitions = append(wr.Transitions, illegal)
		_, err := db.Commit(t.Context(), wr)
		var refused txmanager.IllegalTransitionError
		if !errors.As(err, &refused) || refused != (txmanager.IllegalTransitionError{From: txmanager.Queued, To: to}) {
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
	write(t, db, txmanager.Commit{Lease: theirs.Lease, Allocations: allocations(theirs, true)})
	w := twoQueued(t, db)
	tables := append([]string{"submitter_lease"}, written...)
	before := contents(t, db, tables...)
	wr := everything(w)
	taken := storetest.Signed(alice, wr.Allocations[0].Nonce, theirs.Queue[0].ID)
	wr.Allocations[0].Signed = &taken
	if _, err := db.Commit(t.Context(), wr); violated(err) != "tx_version_pkey" {
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
	wr.Versions = []txmanager.Version{{Tx: wr.Allocations[0].Tx, From: txmanager.InFlight, Kind: txmanager.VersionOriginal, Signed: storetest.Signed(alice, 0, w.Queue[0].ID)}}
	if done, err := db.Commit(t.Context(), wr); err == nil {
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
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	w = take(t, db, alice, "a/2")
	mined, pending := w.Open[0], w.Open[1]
	mined.State, mined.Sub, pending.State, pending.Sub = txmanager.Tracking, txmanager.Included, txmanager.Tracking, txmanager.Pending
	mined.Receipt = &txmanager.Receipt{TxHash: mined.Hash(), BlockNumber: 1, BlockHash: txmanager.Hash{1}, Succeeded: true}
	mined.Confirmations = []txmanager.Header{{Number: 1, Hash: txmanager.Hash{1}}}
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: mined}, {From: txmanager.Submitted, To: pending}}})
	before := contents(t, db, written...)
	if done, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Versions: []txmanager.Version{placeholderFor(mined)}}); err == nil {
		t.Errorf("a version beside a receipt: got %+v and no error", done)
	}
	if diff := cmp.Diff(before, contents(t, db, written...)); diff != "" {
		t.Errorf("the failed write wrote (-before +after):\n%s", diff)
	}
	write(t, db, txmanager.Commit{Lease: w.Lease, Versions: []txmanager.Version{placeholderFor(pending)}})
}

// placeholderFor is a signed placeholder for x's nonce.
func placeholderFor(x txmanager.Tx) txmanager.Version {
	s := txmanager.Signed{Hash: txmanager.Hash{0xff, byte(*x.Nonce)}, Raw: storetest.Bytes(x.Submitter.ChainID(), *x.Nonce, x.Submitter.Address(), 0, "")}
	return txmanager.Version{Tx: x, From: x.State, Kind: txmanager.VersionPlaceholder, Signed: s}
}

// A release names the PROTECT incident that the operator has seen. An incident
// with another number stays open.
func TestReleaseClosesOnlyTheIncidentThatItNames(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	run(t, db, openIncident, alice)
	w := take(t, db, alice, "a/1")
	leave := func(incident int) error {
		_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Cursor: txmanager.CursorChange{CloseIncident: &txmanager.ReleaseRequest{Incident: incident, Mode: txmanager.Resume, By: "op", Reason: "seen"}}})
		return err
	}
	for _, incident := range []int{0, 2} {
		if err := leave(incident); !errors.Is(err, txmanager.ErrIncidentClosed) {
			t.Errorf("release of incident %d while 1 is open: got %v, want ErrIncidentClosed", incident, err)
		}
	}
	if open := value[int](t, db, `select count(*) from protect_incident where submitter = $1 and closed_at is null`, alice); open != 1 {
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
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{remark(theirs.Queue[0], "by a stranger")}})
	if done.Transitioned != 0 {
		t.Errorf("moved: got %d, want 0", done.Transitioned)
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
	if done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(theirs, true)}); done.Allocated != 0 {
		t.Errorf("allocated: got %d, want 0", done.Allocated)
	}
	if diff := cmp.Diff(before, contents(t, db, "managed_tx", "tx_version")); diff != "" {
		t.Errorf("another submitter's transaction was bound (-before +after):\n%s", diff)
	}
}

// The evidence of a PROTECT incident is written once, with the evaluation that found it, and
// shows until an operator closes the incident.
func TestWriteOpensProtectOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	for _, what := range []string{"first", "second"} {
		write(t, db, txmanager.Commit{Lease: w.Lease, Cursor: txmanager.CursorChange{OpenIncident: &txmanager.Violation{Description: what}}})
	}
	const incidents = `select coalesce(string_agg(incident || ' ' || (evidence ->> 'what') || ' ' || (closed_at is null), ', ' order by incident), '') from protect_incident`
	if got, want := value[string](t, db, incidents), "1 first true"; got != want {
		t.Errorf("incidents: got %s, want %s", got, want)
	}
	if got := value[string](t, db, `select in_flight_state from submitter_nonce_cursor`); got != "PROTECT" {
		t.Errorf("cursor shows: got %s, want PROTECT", got)
	}
	next, err := db.BeginIteration(t.Context(), w.Lease, true)
	if err != nil || !next.Protected {
		t.Fatalf("next look: got protected %v, %v; want it protected", next.Protected, err)
	}
	run(t, db, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	write(t, db, txmanager.Commit{Lease: next.Lease, Cursor: txmanager.CursorChange{OpenIncident: &txmanager.Violation{Description: "third"}}})
	if got, want := value[string](t, db, incidents), "1 first false, 2 third true"; got != want {
		t.Errorf("incidents after the first was closed: got %s, want %s", got, want)
	}
}

// Since when a caller's intents are held back outlives each commit that does not change it.
func TestHeldBackTimesAreKeptUntilChanged(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	since := map[string]time.Time{"email:a@fencepost.example": time.Date(2026, 11, 25, 1, 2, 3, 4000, time.UTC)}
	for i, step := range []struct{ change, want map[string]time.Time }{
		{since, since}, {nil, since}, {map[string]time.Time{}, map[string]time.Time{}},
	} {
		write(t, db, txmanager.Commit{Lease: w.Lease, Cursor: txmanager.CursorChange{HeldBackSince: step.change}})
		next, err := db.BeginIteration(t.Context(), w.Lease, true)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		w = next
		if diff := cmp.Diff(step.want, w.HeldBackSince); diff != "" {
			t.Errorf("step %d: held back since (-want +got):\n%s", i, diff)
		}
	}
}

// An observation about the account is kept until a later one changes it, and the highest final
// block never goes down.
func TestCursorKeepsWhatWasFound(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	seen := &txmanager.Violation{Description: "ahead", ExpectedNonce: 1, LatestCount: 2, Block: 9, BlockHash: txmanager.Hash{1}, Node: "n"}
	steps := []struct {
		change    txmanager.CursorChange
		suspicion *txmanager.Violation
		head      uint64
	}{
		{txmanager.CursorChange{Suspect: seen, FinalHead: 7}, seen, 7},
		{txmanager.CursorChange{FinalHead: 5}, seen, 7},
		{txmanager.CursorChange{FinalHead: 8, ClearSuspected: true}, nil, 8},
	}
	for i, step := range steps {
		write(t, db, txmanager.Commit{Lease: w.Lease, Cursor: step.change})
		next, err := db.BeginIteration(t.Context(), w.Lease, true)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		w = next
		if diff := cmp.Diff(step.suspicion, w.SuspectedViolation); diff != "" || w.FinalHead != step.head {
			t.Errorf("step %d: got head %d, want %d; suspicion (-want +got):\n%s", i, w.FinalHead, step.head, diff)
		}
	}
}
