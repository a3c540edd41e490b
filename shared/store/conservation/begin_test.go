package conservation_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A run continues from the current checkpoint, or from a full run of the last hour. It does not
// continue from an old one, nor in another database.
func TestRunsContinueFromTheCurrentCheckpoint(t *testing.T) {
	t.Parallel()
	const copied = `insert into conservation_checkpoint (generation, epoch, cursors, begun_at, over) overriding system value
		select %s, epoch, cursors, clock_timestamp() - %s, false from conservation_checkpoint where is_current`
	for name, c := range map[string]struct {
		prepare string
		full    bool
		want    string
	}{
		"an incremental run":                          {`select 1`, false, "1 false"},
		"a full one":                                  {`select 1`, true, "2 true"},
		"a full one, after another that stopped":      {fmt.Sprintf(copied, "7", "interval '59 minutes'"), true, "7 true"},
		"a full one, after one that stopped long ago": {fmt.Sprintf(copied, "7", "interval '61 minutes'"), true, "2 true"},
		"a full one, beside one that is over":         {fmt.Sprintf(copied, "0", "interval '1 minute'"), true, "2 true"},
		"an incremental run on what is over":          {`update conservation_checkpoint set over = true`, false, "2 true"},
		"the next, after a full one that stopped":     {`update conservation_checkpoint set over = true; ` + fmt.Sprintf(copied, "7", "interval '1 minute'"), false, "7 true"},
		"a full one, after one that is over":          {fmt.Sprintf(copied, "7", "interval '1 minute'") + `; update conservation_checkpoint set over = true where generation = 7`, true, "2 true"},
		"a full one, after one that a process of before began": {
			`insert into conservation_checkpoint (generation, epoch, cursors) overriding system value select 7, epoch, '{"SPOT": "3"}' from conservation_checkpoint`, true, "2 true"},
		"an incremental run in another database": {`update database_identity set epoch = '00000000'`, false, "2 true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.check(false)
			if _, err := w.main.DB.Exec(t.Context(), c.prepare); err != nil {
				t.Fatal(err)
			}
			at, err := w.Book.Begin(t.Context(), c.full)
			if got := fmt.Sprint(at.Generation, at.Full); err != nil || got != c.want {
				t.Errorf("got generation %s, error %v; want %s", got, err, c.want)
			}
		})
	}
}

// A full run deletes the previous generation, and supersedes runs that use it.
func TestFullRunReplacesTheGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.check(false)
	before, err := w.Book.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, w.main, newScale+`, 'SPOT', 1, 2`+fromHere)
	w.check(true)
	for table, want := range map[string]int{"conservation_checkpoint": 1, "conservation_sum": 1, "conservation_request": 1, "conservation_scale": 0} {
		if n := value[int](t, w.main, `select count(distinct generation) from `+table); n != want {
			t.Errorf("generations in %s: got %d, want %d", table, n, want)
		}
	}
	if _, err := w.Book.Store(t.Context(), conservation.Step{From: before}); err == nil {
		t.Error("a step of the generation that is over: got no error")
	}
	if _, err := w.Book.Sums(t.Context(), before, transfer.Funding); err == nil {
		t.Error("sums of the generation that is over: got no error")
	}
}

// Before a generation is deleted, runs that read it are superseded: half of its sums would look like
// violations.
func TestReadersOfADeletedGenerationAreSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.check(false)
	before, err := w.Book.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := w.main.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `select from conservation_sum for update`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.Check(t.Context(), true)
		done <- err
	}()
	for blocked := false; !blocked; {
		blocked = value[bool](t, w.main, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	}
	if _, err := w.Book.Sums(t.Context(), before, transfer.Funding); !errors.Is(err, conservation.ErrSuperseded) {
		t.Errorf("sums that are being thrown away: got %v, want ErrSuperseded", err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The functions' database role, which alters no table, has all necessary rights.
func TestFunctionsRoleHasAllRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	role, password := "function_"+rand.Text()[:8], rand.Text()
	for _, statement := range []string{`create role "%s" login password '` + password + `'`,
		`grant select, insert, update, delete on all tables in schema public to "%s"`, `grant usage on all sequences in schema public to "%s"`} {
		if _, err := w.main.DB.Exec(t.Context(), fmt.Sprintf(statement, role)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := w.main.DB.Exec(context.Background(), fmt.Sprintf(`drop owned by "%[1]s"; drop role "%[1]s"`, role)); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(w.main.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	db, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	w.funding = funding.New(db)
	w.Book, w.Funding = book.New(db), w.funding.Journal()
	w.history()
	w.clean()
	w.steal(alice, gold, 1)
	if r := w.check(false); len(r.Fresh) != 1 || w.halts() != 1 {
		t.Errorf("got %v and %d halts, want one of each", r.Found, w.halts())
	}
}
