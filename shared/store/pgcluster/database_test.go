package pgcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
)

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
	c := check.Value(Shared())(t)
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
	check.Equal(t, "builds", builds.Load(), 1)
	seen := map[string]bool{}
	for name := range names {
		seen[name] = true
		conn := connect(t, c.URL(name))
		execute(t, conn, "insert into seeded values (2)")
		check.Equal(t, fmt.Sprintf("rows in %s", name), scan[int](t, conn, "select count(*) from seeded"), 2)
	}
	check.Equal(t, "names", len(seen), clones)
}

func TestDropRemovesADatabaseInUse(t *testing.T) {
	t.Parallel()
	c := check.Value(Shared())(t)
	name, drop, err := c.Clone(t.Context(), "template1")
	check.OK(t)(err)
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
	c := check.Value(Shared())(t)
	failure := errors.New("half way")
	template := unused("retried")
	err := c.Template(t.Context(), template, func(ctx context.Context, url string) error {
		return errors.Join(oneRow(ctx, url), failure)
	})
	check.Err(t, "first build", failure)(err)
	check.Err(t, "second build", nil)(c.Template(t.Context(), template, oneRow))
}

func TestTemplateIsClosedToConnections(t *testing.T) {
	t.Parallel()
	c := check.Value(Shared())(t)
	template := unused("closed")
	check.OK(t)(c.Template(t.Context(), template, oneRow))
	if conn, err := pgx.Connect(t.Context(), c.URL(template)); err == nil {
		_ = conn.Close(t.Context())
		t.Error("connect to a finished template: got no error")
	}
}

// A server with a clock library follows SetClock in both directions.
func TestSetClockMovesTheServersClock(t *testing.T) {
	t.Parallel()
	library := FindClockLibrary()
	if library == "" {
		t.Skip("libfaketime is not installed: apt-get install libfaketime")
	}
	c := launch(t, Options{ClockLibrary: library})
	conn := connect(t, c.URL("postgres"))
	for _, offset := range []time.Duration{time.Hour, -time.Hour, 0} {
		check.OK(t)(c.SetClock(offset))
		var ahead time.Duration
		for began := time.Now(); ; {
			if ahead = time.Until(scan[time.Time](t, conn, `select clock_timestamp()`)); (ahead - offset).Abs() < time.Minute {
				break
			}
			if time.Since(began) > 30*time.Second {
				t.Fatalf("clock set to %v: got %v after 30 s", offset, ahead)
			}
		}
	}
}

// A cluster without a clock library refuses SetClock.
func TestSetClockNeedsTheLibrary(t *testing.T) {
	t.Parallel()
	check.Err(t, "set the clock", errFixedClock)(check.Value(Shared())(t).SetClock(time.Second))
}
