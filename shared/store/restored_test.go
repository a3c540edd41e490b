package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H8: a database that was restored from a backup runs on another timeline. It is
// noticed before any row is believed: every submitter is in PROTECT, creates are
// refused, "not found" is no answer, and only a named person accepts it.
func TestH08RestoredDatabase(t *testing.T) {
	t.Parallel()
	db, cluster := ownCluster(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	kept := post(t, db, alice, "kept")
	recoverElsewhere(t, db, cluster)

	await(t, "a new intent is refused, once connections from before the restart are gone", func() bool {
		_, err := db.Create(t.Context(), intent(alice, "new"), 10)
		if err == nil {
			t.Fatal("a new intent in a restored database: got it accepted")
		}
		return errors.Is(err, store.ErrProtected)
	})
	if again, err := db.Create(t.Context(), intent(alice, "kept"), 10); err != nil || again.TxID != kept.TxID {
		t.Errorf("what is stored: got %+v, %v; want its txId", again, err)
	}
	who := store.Viewer{Caller: "shop"}
	if _, err := db.TxByRequest(t.Context(), alice, "lost", who); !errors.Is(err, store.ErrInDoubt) {
		t.Errorf("a request that may be lost: got %v, want in doubt", err)
	}
	if w := take(t, db, bob, "a/1"); !w.Protected {
		t.Error("a tenure in a foreign database: got it unprotected")
	}
	if open := value[int](t, db, `select count(*) from protect_incident where closed_at is null`); open != 2 {
		t.Errorf("submitters in PROTECT: got %d, want both", open)
	}

	before := value[string](t, db, `select epoch from database_identity`)
	if err := db.AcceptDatabase(t.Context(), "operator", "restored after the outage, reconciled"); err != nil {
		t.Fatalf("accept: %v", err)
	}
	if err := db.AcceptDatabase(t.Context(), "operator", "again"); !errors.Is(err, store.ErrDatabaseAccepted) {
		t.Errorf("accept again: got %v, want nothing to accept", err)
	}
	if open := value[int](t, db, `select count(*) from protect_incident where closed_at is null`); open != 2 {
		t.Errorf("submitters in PROTECT once the database is accepted: got %d, want both: each is released by itself", open)
	}
	if after := value[string](t, db, `select epoch from database_identity`); after == before {
		t.Error("the epoch: got the old one, want another, so that no name is met again")
	}
}

// ownCluster is a migrated database in a separate cluster, which may be restarted.
func ownCluster(t *testing.T) (storetest.Bundle, *pgcluster.Cluster) {
	t.Helper()
	cluster, err := pgcluster.Start(t.Context(), pgcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	return storetest.NewIn(t, cluster), cluster
}

// recoverElsewhere makes the cluster recover from its write-ahead log as after a restore, and
// end on a new timeline.
func recoverElsewhere(t *testing.T, db storetest.Bundle, cluster *pgcluster.Cluster) {
	t.Helper()
	run(t, db, `alter system set restore_command = 'false'`)
	run(t, db, `copy (select '') to program 'cat > recovery.signal'`)
	if err := cluster.Restart(t.Context(), false); err != nil {
		t.Fatalf("restart into recovery: %v", err)
	}
	db.DB.Reset()
	fresh, err := pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for recovering := true; recovering; {
		if err := fresh.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&recovering); err != nil && ctx.Err() != nil {
			t.Fatalf("the recovery never ended: %v", err)
		}
	}
	var ours bool
	if err := fresh.QueryRow(t.Context(), `select is_accepted_database()`).Scan(&ours); err != nil || ours {
		t.Fatalf("after the recovery: got authority %v, %v; want another timeline", ours, err)
	}
}

// Only its callers and operators learn that a submitter is registered or in PROTECT. After a
// restore, while any submitter waits for its release, no caller gets "not found": the list of
// callers may be older than the caller.
func TestDoubtIsShownToCallersOnly(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	db.Register(t, bob, 1)
	const unregistered = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000000ff")
	for statement, args := range map[string][]any{
		`update submitter set callers = '{shop}'`:                                           nil,
		`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`: {alice},
	} {
		if _, err := db.DB.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	stranger, operator := store.Viewer{Caller: "email:stranger@elsewhere.example"}, store.Viewer{Caller: "email:ann@fencepost.example", Operator: true}
	asks := func(when string, want map[txmanager.Submitter][3]error) {
		t.Helper()
		for s, each := range want {
			for i, who := range []store.Viewer{shop, stranger, operator} {
				if _, err := db.TxByRequest(t.Context(), s, "none", who); !errors.Is(err, each[i]) {
					t.Errorf("%s, %s, asked by %s: got %v, want %v", when, s, who.Caller, err, each[i])
				}
			}
		}
	}
	none, doubt := store.ErrNotFound, store.ErrInDoubt
	asks("in PROTECT", map[txmanager.Submitter][3]error{alice: {doubt, none, doubt}, bob: {none, none, none}, unregistered: {none, none, none}})
	if err := migrations.Distrust(t.Context(), db.URL, "a copy"); err != nil {
		t.Fatal(err)
	}
	asks("restored", map[txmanager.Submitter][3]error{alice: {doubt, doubt, doubt}, bob: {doubt, doubt, doubt}, unregistered: {doubt, doubt, doubt}})
	if err := db.AcceptDatabase(t.Context(), "operator", "reconciled"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []txmanager.Submitter{alice, bob} {
		asks("accepted", map[txmanager.Submitter][3]error{s: {doubt, doubt, doubt}, unregistered: {doubt, doubt, none}})
		if _, err := db.DB.Exec(t.Context(), `update protect_incident set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'found whole' where submitter = $1 and closed_at is null`, s); err != nil {
			t.Fatal(err)
		}
	}
	asks("released", map[txmanager.Submitter][3]error{alice: {none, none, none}, bob: {none, none, none}, unregistered: {none, none, none}})
}
