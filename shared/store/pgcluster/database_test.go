package pgcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// sharedCluster returns the cluster of this test process.
func sharedCluster(t *testing.T) *Cluster {
	t.Helper()
	c, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// oneRow builds a template with a table of one row and leaves its connection
// open, as a pool that is closed late would.
func oneRow(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create table seeded as select 1 as n")
	return err
}

// unused returns a name for a template that no run of a test has built.
func unused(purpose string) string {
	return purpose + "_" + rand.Text()[:8]
}

func TestClonesOfOneTemplateInParallel(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	template := unused("parallel")
	var builds atomic.Int32
	build := func(ctx context.Context, url string) error {
		builds.Add(1)
		return oneRow(ctx, url)
	}
	const clones = 12
	names := make(chan string, clones)
	var group sync.WaitGroup
	for range clones {
		group.Go(func() {
			if err := c.Template(t.Context(), template, build); err != nil {
				t.Error(err)
				return
			}
			name, drop, err := c.Clone(t.Context(), template)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(drop)
			names <- name
		})
	}
	group.Wait()
	close(names)
	if got := builds.Load(); got != 1 {
		t.Errorf("builds: got %d, want 1", got)
	}
	seen := map[string]bool{}
	for name := range names {
		seen[name] = true
		conn := connect(t, c.URL(name))
		execute(t, conn, "insert into seeded values (2)")
		if got := scan[int](t, conn, "select count(*) from seeded"); got != 2 {
			t.Errorf("rows in %s: got %d, want 2", name, got)
		}
	}
	if len(seen) != clones {
		t.Errorf("names: got %d different, want %d", len(seen), clones)
	}
}

func TestDropRemovesADatabaseInUse(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	name, drop, err := c.Clone(t.Context(), "template1")
	if err != nil {
		t.Fatal(err)
	}
	connect(t, c.URL(name))
	drop()
	drop()
	conn := connect(t, c.URL("postgres"))
	if scan[bool](t, conn, "select exists (select from pg_database where datname = '"+name+"')") {
		t.Errorf("database %s: got it still there, want it dropped", name)
	}
}

func TestTemplateIsBuiltAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	failure := errors.New("half way")
	template := unused("retried")
	err := c.Template(t.Context(), template, func(ctx context.Context, url string) error {
		return errors.Join(oneRow(ctx, url), failure)
	})
	if !errors.Is(err, failure) {
		t.Fatalf("first build: got %v, want %v", err, failure)
	}
	if err := c.Template(t.Context(), template, oneRow); err != nil {
		t.Errorf("second build: got %v, want it to start from an empty database", err)
	}
}

func TestTemplateIsClosedToConnections(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	template := unused("closed")
	if err := c.Template(t.Context(), template, oneRow); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), c.URL(template)); err == nil {
		_ = conn.Close(t.Context())
		t.Error("connect to a finished template: got no error")
	}
}
