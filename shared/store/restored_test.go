package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
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
	if open := value[int](t, db, `select count(*) from protect_episode where closed_at is null`); open != 2 {
		t.Errorf("submitters in PROTECT: got %d, want both", open)
	}

	before := value[string](t, db, `select epoch from authority`)
	if err := db.AcceptAuthority(t.Context(), "operator", "restored after the outage, reconciled"); err != nil {
		t.Fatalf("accept: %v", err)
	}
	if err := db.AcceptAuthority(t.Context(), "operator", "again"); !errors.Is(err, store.ErrIsAuthority) {
		t.Errorf("accept again: got %v, want nothing to accept", err)
	}
	if open := value[int](t, db, `select count(*) from protect_episode where closed_at is null`); open != 2 {
		t.Errorf("submitters in PROTECT once the database is accepted: got %d, want both: each is released by itself", open)
	}
	if after := value[string](t, db, `select epoch from authority`); after == before {
		t.Error("the epoch: got the old one, want another, so that no name is met again")
	}
}

// ownCluster is a migrated database in a cluster of its own, which may be
// restarted.
func ownCluster(t *testing.T) (storetest.Bundle, *pgcluster.Cluster) {
	t.Helper()
	cluster, err := pgcluster.Start(t.Context(), pgcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	return storetest.NewIn(t, cluster), cluster
}

// recoverElsewhere makes the cluster recover from its write-ahead log as after a
// restore: it ends on a timeline of its own.
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
	if err := fresh.QueryRow(t.Context(), `select is_authority()`).Scan(&ours); err != nil || ours {
		t.Fatalf("after the recovery: got authority %v, %v; want another timeline", ours, err)
	}
}
