package pgproxy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// act is one of the store's transactions, about to be made and to get no answer.
type act struct {
	fragment string // part of one of its statements
	do       func() error
	done     func() bool // reads the effect from the database

	// resolve queries through the proxy and continues. committed is the real result.
	resolve func(committed bool)
}

// acts prepare one act each, without the proxy.
var acts = map[string]func(scene) act{"create": create, "take": take, "again": again, "write": write}

// comparesAndSets are the acts of TestH15ACASWithoutAnAnswerIsReadBack.
var comparesAndSets = map[string]func(scene) act{
	"a cancel, asked again":              cancelAskedAgain,
	"a cancel, overtaken":                cancelOvertaken,
	"an allocation, then a cancel":       allocationThenCancel,
	"an allocation, then the next owner": allocationThenNextOwner,
}

// cutKinds are the ways to lose the answer to a commit, and whether the commit has happened.
var cutKinds = map[pgproxy.Kind]bool{
	pgproxy.CutBeforeCommit: false, pgproxy.CutAfterCommit: true, pgproxy.CutMidReply: true,
}

// A client that loses its connection around a commit gets an error. It finds out the result by a query.
func TestCutAroundCommitIsResolvedByAsking(t *testing.T) {
	t.Parallel()
	for name, begin := range acts {
		for kind := range cutKinds {
			for _, warm := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/warm %t", name, kind, warm), func(t *testing.T) {
					t.Parallel()
					cutOnce(t, begin, kind, warm)
				})
			}
		}
	}
}

// H15: a compare-and-set without an answer must be read back. If the caller assumed either result, an
// intent could run under FAILED, or be reported cancelled and run.
func TestH15ACASWithoutAnAnswerIsReadBack(t *testing.T) {
	t.Parallel()
	for name, begin := range comparesAndSets {
		for kind := range cutKinds {
			t.Run(fmt.Sprintf("%s/%v", name, kind), func(t *testing.T) {
				t.Parallel()
				cutOnce(t, begin, kind, false)
			})
		}
	}
}

// cutOnce makes one act that is cut. A warm connection has prepared every statement before, so that it
// sends only the statements' names.
func cutOnce(t *testing.T, begin func(scene) act, kind pgproxy.Kind, warm bool) {
	sc := newScene(t, 1, nil)
	act := begin(sc)
	if warm {
		warmUp(sc)
	}
	before := sc.proxy.Counts()
	sc.proxy.Arm(pgproxy.Fault{Kind: kind, Match: pgproxy.Containing(act.fragment)})

	if err := act.do(); err == nil {
		t.Fatal("the act that was cut: got no error, want one: its answer is not known")
	}
	after := sc.proxy.Counts()
	check.Equal(t, "hits", after.Hits[kind], 1)
	committed := cutKinds[kind]
	if got := after.Commits - before.Commits; got == 1 != committed {
		t.Errorf("commits that the proxy saw: got %d, want committed %t", got, committed)
	}
	check.Equal(t, "committed", act.done(), committed)
	act.resolve(committed)
	check.Equal(t, "hits after the retry", sc.proxy.Counts().Hits[kind], 1)
}

// create is repeated: the stored transaction answers once, whatever the id of the repetition.
func create(sc scene) act {
	in := intent("r1")
	return act{
		fragment: "insert into managed_tx",
		do:       func() error { return errOf(sc.store.Create(sc.Context(), in, 10)) },
		done:     func() bool { return sc.row(in.TxID) != "" },
		resolve: func(committed bool) {
			other := intent("r1")
			want := other.TxID
			if committed {
				want = in.TxID
			}
			for range 2 {
				got, err := sc.store.Create(sc.Context(), other, 10)
				if err != nil || got.TxID != want || got.New == committed || !got.Queued {
					sc.Errorf("create again: got %+v, %v; want transaction %s, new %t", got, err, want, !committed)
				}
			}
			check.Equal(sc, "transactions", sc.txs(), 1)
		},
	}
}

func take(sc scene) act {
	return act{
		fragment: "insert into submitter_lease",
		do:       func() error { return errOf(sc.store.Acquire(sc.Context(), alice, "a/1", true)) },
		done:     func() bool { return token(sc) == 1 },
		resolve:  func(bool) { takeAgain(sc) },
	}
}

// again: a commit with the old lease is fenced if the iteration began. The owner acquires the lease again.
func again(sc scene) act {
	held := sc.take(sc.direct.Store, "a/1")
	again := func() error { return errOf(sc.store.BeginIteration(sc.Context(), held.Lease, true)) }
	return act{
		fragment: "insert into submitter_lease",
		do:       again,
		done:     func() bool { return token(sc) == 2 },
		resolve: func(committed bool) {
			if err := again(); errors.Is(err, lease.ErrFenced) != committed || !committed && err != nil {
				sc.Errorf("again: got %v, want fenced %t", err, committed)
			}
			takeAgain(sc)
		},
	}
}

// write: a repeated commit binds no nonce twice, and the next load shows the stored state.
func write(sc scene) act {
	return allocate(sc, func(_ string, write txmanager.Commit, committed bool) {
		w := takeAgain(sc)
		if got := len(w.Open) == 1 && len(w.Queue) == 0; got != committed {
			sc.Fatalf("loaded: %d unsettled and %d queued; want bound %t", len(w.Open), len(w.Queue), committed)
		}
		write.Lease = w.Lease
		want := 1
		if committed {
			want = 0
		}
		if got, err := sc.store.Commit(sc.Context(), write); err != nil || got.Allocated != want {
			sc.Errorf("write again: allocated %d, %v; want %d", got.Allocated, err, want)
		}
		check.Equal(sc, "next nonce and versions", value[string](sc, sc.conn, `select next_nonce || ' ' || count(*)
			from submitter_nonce_cursor join tx_version using (submitter) where submitter = $1 group by next_nonce`, alice), "1 1")
	})
}

// allocate is the commit by which owner a/1 allocates a nonce to the one intent.
func allocate(sc scene, resolve func(txID string, write txmanager.Commit, committed bool)) act {
	sc.Helper()
	txID := queuedOne(sc)
	write := allocation(sc.take(sc.direct.Store, "a/1"))
	return act{
		fragment: "with want as",
		do:       func() error { return errOf(sc.store.Commit(sc.Context(), write)) },
		done:     func() bool { return sc.row(txID) == "SUBMITTED 0" },
		resolve:  func(committed bool) { resolve(txID, write, committed) },
	}
}

// cancel is a cancel by the intent's caller.
func cancel(sc scene, txID string, resolve func(committed bool)) act {
	return act{
		fragment: "insert into tx_decision",
		do:       func() error { return errOf(sc.store.RecordDecision(sc.Context(), cancelOf(txID))) },
		done:     func() bool { return sc.row(txID) == "FAILED CANCELLED" },
		resolve:  resolve,
	}
}

func cancelOf(txID string) store.Decision {
	return store.Decision{TxID: txID, By: store.Viewer{Caller: "test"}, Action: txmanager.ActionCancel, Reason: "asked by test"}
}

// queuedOne posts one intent and returns its txId.
func queuedOne(sc scene) string {
	sc.Helper()
	in := intent("r1")
	check.OK(sc)(sc.direct.Create(sc.Context(), in, 10))
	return in.TxID
}

func token(sc scene) int64 {
	return value[int64](sc, sc.conn, `select coalesce(max(fencing_token), 0) from submitter_lease where owner_node = 'a/1'`)
}

// take acquires the lease.
func (sc scene) take(s *store.Store, owner string) txmanager.SubmitterState {
	sc.Helper()
	got, err := s.Acquire(sc.Context(), alice, owner, true)
	if err != nil || !got.Held {
		sc.Fatalf("take by %s: got %+v, %v; want it held", owner, got, err)
	}
	return got.State
}

// takeAgain acquires the lease as its owner: it gets the next token without a wait.
func takeAgain(sc scene) txmanager.SubmitterState {
	sc.Helper()
	before := token(sc)
	got := sc.take(sc.store, "a/1")
	check.Equal(sc, "the token, taken again", got.Lease.Token, before+1)
	return got
}

// row returns state, sub-state and nonce of a transaction; "": there is none.
func (sc scene) row(txID string) string {
	sc.Helper()
	return value[string](sc, sc.conn, `select coalesce((select concat_ws(' ', state, sub_state, nonce) from managed_tx where tx_id = $1), '')`, txID)
}

// decided repeats the cancel twice through the proxy, and checks the answers.
func (sc scene) decided(txID string, want txmanager.State, sub txmanager.SubState, ordered txmanager.Action) {
	sc.Helper()
	for range 2 {
		got, err := sc.store.RecordDecision(sc.Context(), cancelOf(txID))
		if err != nil || got.State != want || got.SubState != sub || got.RequestedAction != ordered {
			sc.Errorf("cancel again: got %+v, %v; want %s %s, order %q", got, err, want, sub, ordered)
		}
	}
	check.Equal(sc, "decisions on record (1 however often it was asked)", value[int](sc, sc.conn, `select count(*) from tx_decision where tx_id = $1`, txID), 1)
}

func (sc scene) wantVersions(want int) {
	sc.Helper()
	check.Equal(sc, "signed versions stored", value[int](sc, sc.conn, `select count(*) from tx_version where submitter = $1`, alice), want)
}

// cancelAskedAgain: a query returns the stored state, and the same cancel completes.
func cancelAskedAgain(sc scene) act {
	txID := queuedOne(sc)
	return cancel(sc, txID, func(committed bool) {
		want := txmanager.Queued
		if committed {
			want = txmanager.Failed
		}
		if r, _, err := sc.store.TxWaiting(sc.Context(), txID, store.Viewer{Caller: "test"}); err != nil || r.State != want {
			sc.Errorf("read back: got %s, %v; want %s", r.State, err, want)
		}
		sc.decided(txID, txmanager.Failed, txmanager.Cancelled, "")
	})
}

// cancelOvertaken: before the caller repeats the cancel, a lease holder that had loaded the intent
// allocates it. Only one of the two has happened, and the caller gets that one.
func cancelOvertaken(sc scene) act {
	txID := queuedOne(sc)
	held := sc.take(sc.direct.Store, "a/1")
	return cancel(sc, txID, func(committed bool) {
		done, err := sc.direct.Commit(sc.Context(), allocation(held))
		if bound := done.Allocated == 1; err != nil || bound == committed {
			sc.Fatalf("allocate after the cancel: got %+v, %v; want bound %t", done, err, !committed)
		}
		if committed {
			sc.decided(txID, txmanager.Failed, txmanager.Cancelled, "")
			sc.wantVersions(0)
			return
		}
		sc.decided(txID, txmanager.Submitted, "", txmanager.ActionCancel)
		sc.wantVersions(1)
	})
}

// allocationThenCancel: the caller cancels while the lease holder does not know the result of its
// allocation. The holder reads back the state that the caller got.
func allocationThenCancel(sc scene) act {
	return allocate(sc, func(txID string, write txmanager.Commit, committed bool) {
		if committed {
			sc.decided(txID, txmanager.Submitted, "", txmanager.ActionCancel)
		} else {
			sc.decided(txID, txmanager.Failed, txmanager.Cancelled, "")
		}
		w := takeAgain(sc)
		if !committed {
			if len(w.Open)+len(w.Queue) != 0 || w.NextNonce != 0 {
				sc.Errorf("read back: got %d unsettled, %d queued, next nonce %d; want nothing to send, 0", len(w.Open), len(w.Queue), w.NextNonce)
			}
			write.Lease = w.Lease
			if got, err := sc.store.Commit(sc.Context(), write); err != nil || got.Allocated != 0 {
				sc.Errorf("the same write again: got %+v, %v; want nothing bound", got, err)
			}
			sc.wantVersions(0)
			return
		}
		if len(w.Open) != 1 || w.Open[0].RequestedAction != txmanager.ActionCancel || w.NextNonce != 1 {
			sc.Fatalf("read back: got %+v, next nonce %d; want one with the order, 1", w.Open, w.NextNonce)
		}
		sc.wantVersions(1)
	})
}

// allocationThenNextOwner: the lease holder has ended. The next one sends the stored transaction, or binds
// the same nonce, and no other.
func allocationThenNextOwner(sc scene) act {
	return allocate(sc, func(txID string, lost txmanager.Commit, committed bool) {
		do(sc, sc.conn, `update submitter_lease set expires_at = clock_timestamp() - interval '1 min' where submitter = $1`, alice)
		w := sc.take(sc.store, "b/1")
		if !committed {
			if len(w.Open) != 0 || len(w.Queue) != 1 || w.NextNonce != 0 {
				sc.Fatalf("read back: got %d unsettled, %d queued, next nonce %d; want it queued, 0", len(w.Open), len(w.Queue), w.NextNonce)
			}
			if got, err := sc.store.Commit(sc.Context(), allocation(w)); err != nil || got.Allocated != 1 {
				sc.Fatalf("allocate anew: got %+v, %v; want it bound", got, err)
			}
		} else if len(w.Open) != 1 || w.Open[0].Hash() != lost.Allocations[0].Signed.Hash || w.NextNonce != 1 {
			sc.Fatalf("read back: got %+v, next nonce %d; want the bytes that were stored, 1", w.Open, w.NextNonce)
		}
		check.Equal(sc, "the transaction", sc.row(txID), "SUBMITTED 0")
		sc.wantVersions(1)
	})
}

// warmUp runs every act on the scene's one connection, for another submitter, and returns the counts of
// each.
func warmUp(sc scene) map[string]pgproxy.Counts {
	sc.Helper()
	const bob = txmanager.Submitter("eip155:1337:0x0000000000000000000000000000000000000b0b")
	sc.direct.Register(sc, bob, 100)
	costs := map[string]pgproxy.Counts{}
	measure := func(name string, act func() error) {
		before := sc.proxy.Counts()
		if err := act(); err != nil {
			sc.Fatalf("%s: %v", name, err)
		}
		after := sc.proxy.Counts()
		costs[name] = pgproxy.Counts{RoundTrips: after.RoundTrips - before.RoundTrips, Commits: after.Commits - before.Commits}
	}
	for range 2 {
		in := intent(uuid.NewString())
		in.Submitter = bob
		var w txmanager.SubmitterState
		measure("create", func() error { return errOf(sc.store.Create(sc.Context(), in, 10)) })
		measure("take", func() error {
			taken, err := sc.store.Acquire(sc.Context(), bob, "b/1", true)
			w = taken.State
			return err
		})
		measure("again", func() (err error) { w, err = sc.store.BeginIteration(sc.Context(), w.Lease, true); return err })
		measure("write", func() error { return errOf(sc.store.Commit(sc.Context(), allocation(w))) })
		measure("query", func() error {
			_, _, err := sc.store.TxWaiting(sc.Context(), in.TxID, store.Viewer{Operator: true})
			return err
		})
	}
	return costs
}

// The proxy counts the round trips and commits of each act.
func TestCountsRoundTripsAndCommits(t *testing.T) {
	t.Parallel()
	one := pgproxy.Counts{RoundTrips: 1, Commits: 1}
	want := map[string]pgproxy.Counts{"create": one, "take": one, "again": one, "write": one, "query": {RoundTrips: 1}}
	check.Same(t, "costs with every statement prepared", warmUp(newScene(t, 1, nil)), want)
}
