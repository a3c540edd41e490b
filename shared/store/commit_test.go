package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Where the store or the database refuses one part of a write, none of it is made.
func TestRefusedWriteWritesNothing(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, bob)
	post(t, db, bob, "one")
	sendAll(t, db, bob)
	theirs := take(t, db, bob, "a/1").Open[0]
	w := twoQueued(t, db)
	tables := append([]string{"submitter_lease"}, written...)
	before := contents(t, db, tables...)
	for _, to := range []txmanager.State{txmanager.Tracking, txmanager.Stuck, txmanager.Protect, txmanager.Confirmed, "LOST", ""} {
		illegal := remark(w.Queue[1], "illegal")
		illegal.To.State = to
		wr := everything(w)
		wr.Transitions = append(wr.Transitions, illegal)
		check.Err(t, fmt.Sprintf("QUEUED to %q", to), txmanager.IllegalTransitionError{From: txmanager.Queued, To: to})(db.Commit(t.Context(), wr))
	}
	wr := everything(w)
	taken := storetest.Signed(alice, wr.Allocations[0].Nonce, theirs.ID)
	wr.Allocations[0].Signed = &taken
	check.Equal(t, "a hash that is bound already", storetest.Violated(db.Commit(t.Context(), wr)), "tx_version_pkey")
	wr = everything(w)
	wr.Versions = []txmanager.Version{{Tx: wr.Allocations[0].Tx, From: txmanager.InFlight, Kind: txmanager.VersionOriginal, Signed: storetest.Signed(alice, 0, w.Queue[0].ID)}}
	if done, err := db.Commit(t.Context(), wr); err == nil {
		t.Errorf("bytes for a transaction that is not IN_FLIGHT: got %+v and no error", done)
	}
	check.Same(t, "a refused write wrote", contents(t, db, tables...), before)
}

// No version is stored beside a receipt: the nonce is consumed, and the mined version
// decides. The same bytes are stored for a transaction that has none.
func TestNoVersionIsStoredBesideAReceipt(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice)
	postAll(t, db, alice, "mined", "pending")
	sendAll(t, db, alice)
	w := take(t, db, alice, "a/2")
	mined, pending := w.Open[0], w.Open[1]
	inBlocks(true, block(1, 1))(&mined)
	pends(&pending)
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: mined}, {From: txmanager.Submitted, To: pending}}})
	before := contents(t, db, written...)
	if done, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Versions: []txmanager.Version{placeholderFor(mined)}}); err == nil {
		t.Errorf("a version beside a receipt: got %+v and no error", done)
	}
	check.Same(t, "the failed write wrote", contents(t, db, written...), before)
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
	db := registered(t, 1, alice)
	db.Run(t, openIncident, alice)
	w := take(t, db, alice, "a/1")
	leave := func(incident int) error {
		_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Cursor: txmanager.CursorChange{CloseIncident: &txmanager.ReleaseRequest{Incident: incident, Mode: txmanager.Resume, By: "op", Reason: "seen"}}})
		return err
	}
	for _, incident := range []int{0, 2} {
		check.Err(t, fmt.Sprintf("release of incident %d while 1 is open", incident), txmanager.ErrIncidentClosed)(leave(incident))
	}
	check.Equal(t, "open incidents after it", value[int](t, db, `select count(*) from protect_incident where submitter = $1 and closed_at is null`, alice), 1)
	check.Err(t, "release of incident 1", nil)(leave(1))
}

// The lease of one submitter is no right to move another's transactions, or to bind nonces and bytes to them.
func TestWriteChangesOnlyItsOwnSubmitter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	db.Register(t, bob, 1)
	post(t, db, bob, "one")
	theirs := take(t, db, bob, "b/1")
	before := contents(t, db, "managed_tx", "tx_version")
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{remark(theirs.Queue[0], "by a stranger")}})
	check.Equal(t, "moved", done.Transitioned, 0)
	check.Equal(t, "allocated", write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(theirs, true)}).Allocated, 0)
	check.Same(t, "another submitter's transaction was written", contents(t, db, "managed_tx", "tx_version"), before)
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
	check.Equal(t, "incidents", value[string](t, db, incidents), "1 first true")
	check.Equal(t, "cursor shows", value[string](t, db, `select in_flight_state from submitter_nonce_cursor`), "PROTECT")
	next, err := db.BeginIteration(t.Context(), w.Lease, true)
	if err != nil || !next.Protected {
		t.Fatalf("next look: got protected %v, %v; want it protected", next.Protected, err)
	}
	db.Run(t, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'`)
	write(t, db, txmanager.Commit{Lease: next.Lease, Cursor: txmanager.CursorChange{OpenIncident: &txmanager.Violation{Description: "third"}}})
	check.Equal(t, "incidents after the first was closed", value[string](t, db, incidents), "1 first false, 2 third true")
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
		w = check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
		check.Same(t, fmt.Sprintf("step %d: held back since", i), w.HeldBackSince, step.want)
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
		w = check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
		check.Same(t, fmt.Sprintf("step %d: suspicion", i), w.SuspectedViolation, step.suspicion)
		check.Equal(t, fmt.Sprintf("step %d: head", i), w.FinalHead, step.head)
	}
}

// Every change of a transaction is kept with its token. A write that only plans the next check
// is none, and so is a request that is posted again.
func TestHistoryKeepsEveryChange(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	postAll(t, db, alice, "r", "r", "r")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	w = check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
	tracked := w.Open[0]
	pends(&tracked)
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: tracked}}})
	tracked.NextCheckAt = &w.Now
	write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Tracking, To: tracked}}})
	const changes = `
select string_agg(concat_ws(' ', coalesce(from_state, '-'), state, sub_state, nonce, attempts, fencing_token), '; ' order by id)
  from tx_history`
	want := "- QUEUED 0; QUEUED SUBMITTED 0 1 1; SUBMITTED TRACKING PENDING 0 1 2"
	check.Same(t, "history", strings.Split(value[string](t, db, changes), "; "), strings.Split(want, "; "))
}

// An allocation that meets a cancel binds an unbroken run of nonces, moves the
// cursor by as many, and leaves the rest of the queue without a nonce.
func TestH05BulkAllocationBesideCancel(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		queued, cancelled int
		rollback          bool // the cancel does not happen after all
		withBytes         bool
		bound             int
	}{
		"in the middle":                {queued: 3, cancelled: 1, bound: 1},
		"in the middle, with bytes":    {queued: 3, cancelled: 1, withBytes: true, bound: 1},
		"the first":                    {queued: 3, cancelled: 0, bound: 0},
		"the last, with bytes":         {queued: 3, cancelled: 2, withBytes: true, bound: 2},
		"the only one":                 {queued: 1, cancelled: 0, bound: 0},
		"the only one, with bytes":     {queued: 1, cancelled: 0, withBytes: true, bound: 0},
		"a cancel that is rolled back": {queued: 3, cancelled: 1, rollback: true, withBytes: true, bound: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 3, alice)
			postMany(t, db, alice, test.queued)
			w := take(t, db, alice, "a/1")
			canceller := db.Holding(t, cancel, w.Queue[test.cancelled].ID)
			writing := storetest.Blocked(t, db, "with want as", func() (txmanager.CommitResult, error) {
				return db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, test.withBytes)})
			})
			end, left := "commit", test.queued-1
			if test.rollback {
				end, left = "rollback", test.queued
			}
			canceller.Do(end)
			if done := <-writing; done.Err != nil || done.Got.Allocated != test.bound {
				t.Fatalf("allocate: got %+v, %v; want %d allocated", done.Got, done.Err, test.bound)
			}
			checkRun(t, db, test.bound, test.withBytes)

			// The remaining intents get the nonces that follow.
			next := check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
			write(t, db, txmanager.Commit{Lease: next.Lease, Allocations: allocations(next, test.withBytes)})
			checkRun(t, db, left, test.withBytes)
		})
	}
}

// checkRun checks that alice's nonces are 0 … bound-1 in the order of the queue, and that no
// other row holds one.
func checkRun(t *testing.T, db storetest.Bundle, bound int, withBytes bool) {
	t.Helper()
	want := []int{}
	for n := range bound {
		want = append(want, n)
	}
	check.Same(t, "nonces in the order of the queue", value[[]int](t, db, `select array(select nonce from managed_tx where nonce is not null order by seq)`), want)
	check.Equal(t, "next nonce", value[int](t, db, `select next_nonce from submitter_nonce_cursor`), bound)
	shown := value[string](t, db, `select in_flight_state || coalesce(' ' || in_flight_nonce, '') from submitter_nonce_cursor`)
	check.Equal(t, "cursor shows", shown, map[bool]string{true: "IN_FLIGHT 0", false: "IDLE"}[bound > 0])
	state, versions := "IN_FLIGHT", 0
	if withBytes {
		state, versions = "SUBMITTED", bound
	}
	check.Equal(t, state, value[int](t, db, `select count(*) from managed_tx where nonce is not null and state = $1`, state), bound)
	check.Equal(t, "stored versions", value[int](t, db, `select count(*) from tx_version`), versions)
	check.Equal(t, "rows without a nonce that are neither QUEUED nor cancelled", value[int](t, db, `select count(*) from managed_tx where nonce is null and state not in ('QUEUED', 'FAILED')`), 0)
}

// A cursor that was changed by hand allocates nothing: the constraint refuses any nonce but
// the last bound + 1.
func TestAllocationAfterTheCursorWasMovedByHand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		bound  int
		cursor int
		want   string
	}{
		"ahead, nothing bound": {bound: 0, cursor: 5, want: "follows_the_last_nonce"},
		"ahead":                {bound: 2, cursor: 3, want: "follows_the_last_nonce"},
		"back":                 {bound: 2, cursor: 1, want: "one_tx_per_nonce"},
		"back to the start":    {bound: 2, cursor: 0, want: "one_tx_per_nonce"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 10, alice)
			postMany(t, db, alice, test.bound)
			sendAll(t, db, alice)
			post(t, db, alice, "next")
			db.Run(t, `alter table submitter_nonce_cursor disable trigger guard_cursor_update`)
			db.Run(t, `update submitter_nonce_cursor set in_flight_state = 'IDLE', in_flight_nonce = null, in_flight_tx_id = null, next_nonce = $1`, test.cursor)
			w := take(t, db, alice, "a/1")
			before := contents(t, db, written...)
			check.Equal(t, "allocate", storetest.Violated(db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})), test.want)
			check.Same(t, "the refused allocation wrote", contents(t, db, written...), before)
		})
	}
}

// Nothing is allocated while a PROTECT incident is open, even if the holder had loaded the
// state before.
func TestNoAllocationInProtect(t *testing.T) {
	t.Parallel()
	db := registered(t, 3, alice)
	post(t, db, alice, "one")
	w := take(t, db, alice, "a/1")
	db.Run(t, openIncident, alice)
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)})
	check.Equal(t, "allocated", done.Allocated, 0)
	got := value[string](t, db, `select c.in_flight_state || ' ' || c.next_nonce || ' ' || m.state from submitter_nonce_cursor c join managed_tx m using (submitter)`)
	check.Equal(t, "cursor and row", got, "PROTECT 0 QUEUED")
}

// everything is a write that uses each part of a fenced write: w has two or
// more queued, of which the first is moved and the second allocated.
func everything(w txmanager.SubmitterState) txmanager.Commit {
	rest := w
	rest.Queue = w.Queue[1:2]
	return txmanager.Commit{
		Lease: w.Lease, Transitions: []txmanager.Transition{remark(w.Queue[0], "waits")}, Allocations: allocations(rest, true),
		Cursor:   txmanager.CursorChange{FinalHead: 7, Suspect: &txmanager.Violation{Description: "test"}},
		LeaseEnd: txmanager.ReleaseUnlessRerun,
	}
}

// Without the lease a write returns ErrFenced and writes nothing. With it, a row that another
// session moved lowers the count and is no error.
func TestH19FencedIsNotAMovedRow(t *testing.T) {
	t.Parallel()
	const ofAlice = `update submitter_lease set `
	lost := map[string]string{
		"taken over":             ofAlice + `owner_node = 'b/1', fencing_token = fencing_token + 1`,
		"taken by another owner": ofAlice + `owner_node = 'b/1'`,
		"under a newer token":    ofAlice + `fencing_token = fencing_token + 1`,
		"released":               ofAlice + `owner_node = ''`,
		"run out":                ofAlice + `expires_at = clock_timestamp()`,
		"never there at all":     `truncate submitter_lease`,
	}
	for name, how := range lost {
		t.Run("fenced: "+name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			w := twoQueued(t, db)
			db.Run(t, how)
			tables := append([]string{"submitter_lease"}, written...)
			before := contents(t, db, tables...)
			for kind, wr := range map[string]txmanager.Commit{
				"everything": everything(w),
				"release":    {Lease: w.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun},
				"abandon":    {Lease: w.Lease, LeaseEnd: txmanager.ReleaseAnyway},
			} {
				if done, err := db.Commit(t.Context(), wr); !errors.Is(err, lease.ErrFenced) || done != (txmanager.CommitResult{}) {
					t.Errorf("write %s: got %+v, %v; want nothing and %v", kind, done, err, lease.ErrFenced)
				}
			}
			check.Err(t, "renew", lease.ErrFenced)(db.Renew(t.Context(), w.Lease))
			check.Err(t, "go round again", lease.ErrFenced)(db.BeginIteration(t.Context(), w.Lease, true))
			check.Same(t, "a fenced write wrote", contents(t, db, tables...), before)
		})
	}
	t.Run("moved before", movedBefore)
	t.Run("moved meanwhile", movedMeanwhile)
}

// twoQueued is the work of a/1, who has just taken the lease of alice.
func twoQueued(t *testing.T, db storetest.Bundle) txmanager.SubmitterState {
	t.Helper()
	db.Register(t, alice, 2)
	postAll(t, db, alice, "one", "two")
	return take(t, db, alice, "a/1")
}

func movedBefore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	db.Run(t, cancel, w.Queue[0].ID)
	moves := []txmanager.Transition{remark(w.Queue[0], "waits"), remark(w.Queue[1], "waits")}
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Transitions: moves})
	check.Equal(t, "moved", done.Transitioned, 1)
	done = write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:1]})
	check.Equal(t, "allocated", done.Allocated, 0)
	checkCancelled(t, db, w)
}

func movedMeanwhile(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	w := twoQueued(t, db)
	other := db.Holding(t, cancel, w.Queue[0].ID)
	moves := []txmanager.Transition{remark(w.Queue[0], "waits"), remark(w.Queue[1], "waits")}
	writing := storetest.Blocked(t, db, "update managed_tx m", func() (txmanager.CommitResult, error) {
		return db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Transitions: moves})
	})
	other.Do("commit")
	if done := <-writing; done.Err != nil || done.Got.Transitioned != 1 {
		t.Errorf("move: got %+v, %v; want 1 of 2 moved", done.Got, done.Err)
	}
	checkCancelled(t, db, w)
}

// checkCancelled checks that the first stayed cancelled, the second was moved, and the lease
// is still held under the same token.
func checkCancelled(t *testing.T, db storetest.Bundle, w txmanager.SubmitterState) {
	t.Helper()
	const row = `select state || coalesce(' ' || last_error, '') from managed_tx where tx_id = $1`
	check.Equal(t, "the cancelled", value[string](t, db, row, w.Queue[0].ID), "FAILED")
	check.Equal(t, "the other", value[string](t, db, row, w.Queue[1].ID), "QUEUED waits")
	check.Err(t, "renew", nil)(db.Renew(t.Context(), w.Lease))
}

// A fenced write that meets a takeover comes wholly before it or not at all.
func TestFencedWriteMeetsTakeover(t *testing.T) {
	t.Parallel()
	t.Run("a takeover is under way", takeoverUnderWay)
	t.Run("a write is under way", writeUnderWay)
}

func takeoverUnderWay(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			w := twoQueued(t, db)
			before := contents(t, db, written...)
			taker := db.Holding(t, `update submitter_lease set owner_node = 'b/1', fencing_token = fencing_token + 1 where submitter = $1`, alice)
			writing := storetest.Blocked(t, db, "require_lease", func() (txmanager.CommitResult, error) { return db.Commit(t.Context(), everything(w)) })
			taker.Do(end)
			done := <-writing
			after := contents(t, db, written...)
			if end == "rollback" {
				if done.Err != nil || done.Got.Transitioned != 1 || !done.Got.Released || slices.Equal(before, after) {
					t.Errorf("write after a takeover that did not happen: got %+v, %v; want it done", done.Got, done.Err)
				}
				return
			}
			if !errors.Is(done.Err, lease.ErrFenced) {
				t.Errorf("write: got %+v, %v; want %v", done.Got, done.Err, lease.ErrFenced)
			}
			check.Same(t, "the fenced write wrote", after, before)
		})
	}
}

func writeUnderWay(t *testing.T) {
	t.Parallel()
	db := storetest.At(t, storetest.URL(t), lease.Rules{Duration: 500 * time.Millisecond, ClockSkewAllowance: time.Millisecond})
	w := twoQueued(t, db)
	writer := db.Holding(t, `select require_lease($1, $2, $3)`, w.Lease.Submitter, w.Lease.Owner, w.Lease.Token)
	writer.Do(`update managed_tx set last_error = 'written before the takeover' where tx_id = $1`, w.Queue[0].ID)
	storetest.Await(t, "the lease has run out", func() bool {
		return value[bool](t, db, `select expires_at + interval '1 ms' < clock_timestamp() from submitter_lease`)
	})
	taking := storetest.Blocked(t, db, "insert into submitter_lease", func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	writer.Do("commit")
	taken := <-taking
	wantHeld(t, "takeover", taken, 2)
	check.Equal(t, "what the taker loaded", taken.Got.State.Queue[0].LastError, "written before the takeover")
}
