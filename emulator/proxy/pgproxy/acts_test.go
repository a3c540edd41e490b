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

// act is one of the store's transactions, with the way to find out its result.
type act struct {
	fragment string // part of a statement of this act

	// begin prepares the act without the proxy.
	begin func(scene) attempt
}

// attempt is an act about to be made.
type attempt struct {
	do   func(scene) error
	done func(scene) bool // reads the effect from the database

	// resolve queries through the proxy and continues. committed is the real result.
	resolve func(sc scene, committed bool)
}

var acts = map[string]act{
	"create": {"insert into managed_tx", beginCreate},
	"take":   {"insert into submitter_lease", beginTake},
	"again":  {"insert into submitter_lease", beginAgain},
	"write":  {"require_lease", beginWrite},
}

// Create is repeated: the stored transaction answers once, whatever the id of the repetition.
func beginCreate(sc scene) attempt {
	in := intent("r1")
	return attempt{
		do: func(sc scene) error {
			_, err := sc.store.Create(sc.Context(), in, 10)
			return err
		},
		done: func(sc scene) bool {
			return value[bool](sc, sc.conn, `select exists (select from managed_tx where tx_id = $1)`, in.TxID)
		},
		resolve: func(sc scene, committed bool) {
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

func token(sc scene) int64 {
	return value[int64](sc, sc.conn, `select coalesce(max(fencing_token), 0) from submitter_lease where owner_node = 'a/1'`)
}

// takeAgain acquires the lease as its owner: it gets the next token without a wait.
func takeAgain(sc scene) txmanager.SubmitterState {
	before := token(sc)
	got, err := sc.store.Acquire(sc.Context(), alice, "a/1", true)
	if err != nil || !got.Held || got.State.Lease.Token != before+1 {
		sc.Fatalf("take again: held %t under token %d, %v; want token %d", got.Held, got.State.Lease.Token, err, before+1)
	}
	return got.State
}

func beginTake(scene) attempt {
	return attempt{
		do: func(sc scene) error {
			_, err := sc.store.Acquire(sc.Context(), alice, "a/1", true)
			return err
		},
		done:    func(sc scene) bool { return token(sc) == 1 },
		resolve: func(sc scene, _ bool) { takeAgain(sc) },
	}
}

// A commit with the old lease is fenced if the iteration began. The owner acquires the lease again.
func beginAgain(sc scene) attempt {
	held, err := sc.direct.Acquire(sc.Context(), alice, "a/1", true)
	if err != nil {
		sc.Fatal(err)
	}
	again := func(sc scene) error {
		_, err := sc.store.BeginIteration(sc.Context(), held.State.Lease, true)
		return err
	}
	return attempt{
		do:   again,
		done: func(sc scene) bool { return token(sc) == 2 },
		resolve: func(sc scene, committed bool) {
			if err := again(sc); errors.Is(err, lease.ErrFenced) != committed || !committed && err != nil {
				sc.Errorf("again: got %v, want fenced %t", err, committed)
			}
			takeAgain(sc)
		},
	}
}

// A repeated commit binds no nonce twice, and the next load shows the stored state.
func beginWrite(sc scene) attempt {
	check.OK(sc)(sc.direct.Create(sc.Context(), intent("r1"), 10))
	held, err := sc.direct.Acquire(sc.Context(), alice, "a/1", true)
	if err != nil {
		sc.Fatal(err)
	}
	write := allocation(held.State)
	return attempt{
		do: func(sc scene) error {
			_, err := sc.store.Commit(sc.Context(), write)
			return err
		},
		done: func(sc scene) bool {
			return value[bool](sc, sc.conn, `select exists (select from tx_version where submitter = $1)`, alice)
		},
		resolve: func(sc scene, committed bool) {
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
			if got := value[string](sc, sc.conn, `select next_nonce || ' ' || count(*)
				from submitter_nonce_cursor join tx_version using (submitter) where submitter = $1 group by next_nonce`, alice); got != "1 1" {
				sc.Errorf("next nonce and versions: got %s, want 1 1", got)
			}
		},
	}
}

// A client that loses its connection around a commit gets an error. It finds out the result by a query.
func TestCutAroundCommitIsResolvedByAsking(t *testing.T) {
	t.Parallel()
	cuts := []pgproxy.Kind{pgproxy.CutBeforeCommit, pgproxy.CutAfterCommit, pgproxy.CutMidReply}
	for name, act := range acts {
		for _, kind := range cuts {
			for _, warm := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/warm %t", name, kind, warm), func(t *testing.T) {
					t.Parallel()
					cutOnce(t, act, kind, warm)
				})
			}
		}
	}
}

// cutOnce makes one act that is cut. A warm connection has prepared every statement before, so that it
// sends only the statements' names.
func cutOnce(t *testing.T, act act, kind pgproxy.Kind, warm bool) {
	sc := newScene(t, 1, nil)
	attempt := act.begin(sc)
	if warm {
		warmUp(sc)
	}
	before := sc.proxy.Counts()
	sc.proxy.Arm(pgproxy.Fault{Kind: kind, Match: pgproxy.Containing(act.fragment)})

	if err := attempt.do(sc); err == nil {
		t.Error("the act that was cut: got no error")
	}
	after := sc.proxy.Counts()
	check.Equal(t, "hits", after.Hits[kind], 1)
	committed := kind != pgproxy.CutBeforeCommit
	if got := after.Commits - before.Commits; got == 1 != committed {
		t.Errorf("commits that the proxy saw: got %d, want committed %t", got, committed)
	}
	check.Equal(t, "committed", attempt.done(sc), committed)
	attempt.resolve(sc, committed)
	check.Equal(t, "hits after the retry", sc.proxy.Counts().Hits[kind], 1)
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
		measure("create", func() error { _, err := sc.store.Create(sc.Context(), in, 10); return err })
		measure("take", func() error {
			taken, err := sc.store.Acquire(sc.Context(), bob, "b/1", true)
			w = taken.State
			return err
		})
		measure("again", func() (err error) { w, err = sc.store.BeginIteration(sc.Context(), w.Lease, true); return err })
		measure("write", func() error { _, err := sc.store.Commit(sc.Context(), allocation(w)); return err })
		measure("query", func() error {
			_, err := sc.store.Tx(sc.Context(), in.TxID, store.Viewer{Operator: true})
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
