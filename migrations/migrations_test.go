package migrations

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
)

// empty returns the URL of a new empty database.
func empty(t *testing.T) string {
	t.Helper()
	cluster := check.Value(pgcluster.Shared())(t)
	name, drop, err := cluster.Clone(t.Context(), "template1")
	check.OK(t)(err)
	t.Cleanup(drop)
	return cluster.URL(name)
}

// count returns the number that a query finds.
func count(t *testing.T, databaseURL, query string) (n int) {
	t.Helper()
	check.OK(t)(dial(t, databaseURL).QueryRow(t.Context(), query).Scan(&n))
	return n
}

// migrated returns the URL of a new migrated database, and a connection to it.
func migrated(t *testing.T) (databaseURL string, conn *pgx.Conn) {
	t.Helper()
	databaseURL = empty(t)
	apply(t, databaseURL, files, len(embedded(t)))
	return databaseURL, dial(t, databaseURL)
}

// apply runs up and checks how many migrations it applied.
func apply(t *testing.T, databaseURL string, from fs.FS, want int) {
	t.Helper()
	got := check.Value(up(t.Context(), databaseURL, slog.New(slog.DiscardHandler), from))(t)
	check.Equal(t, "applied", got, want)
}

// embedded returns the names of the embedded files.
func embedded(t *testing.T) []string {
	t.Helper()
	return check.Value(fs.Glob(files, "*"))(t)
}

// dial returns a connection that ends with the test.
func dial(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), databaseURL))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// do executes a statement.
func do(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	check.OK(t)(conn.Exec(t.Context(), statement))
}

// texts returns the result of a query of one column.
func texts(t *testing.T, conn *pgx.Conn, query string, arguments ...any) []string {
	t.Helper()
	rows := check.Value(conn.Query(t.Context(), query, arguments...))(t)
	return check.Value(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

// steps are two migrations, the second of which needs the first.
func steps() fstest.MapFS {
	return fstest.MapFS{
		"0001_first.sql":  {Data: []byte("-- +goose Up\ncreate table first (n int);\n")},
		"0002_second.sql": {Data: []byte("-- +goose Up\ninsert into first values (2);\n")},
	}
}

func TestFilesAreNumberedWithoutGaps(t *testing.T) {
	t.Parallel()
	names := embedded(t)
	if len(names) == 0 {
		t.Fatal("got no files")
	}
	form := regexp.MustCompile(`^\d{4}_[a-z0-9]+(_[a-z0-9]+)*\.sql$`)
	for i, name := range names {
		if number := fmt.Sprintf("%04d_", i+1); !form.MatchString(name) || !strings.HasPrefix(name, number) {
			t.Errorf("file %d: got %s, want %sname.sql", i+1, name, number)
		}
	}
}

// A file that is listed in released.sha256 never changes: a database that has it would not get the
// change. A file that is not listed comes after all that are.
func TestReleasedFilesNeverChange(t *testing.T) {
	t.Parallel()
	text := check.Value(os.ReadFile("released.sha256"))(t)
	names := embedded(t)
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		sum, name, _ := strings.Cut(line, "  ")
		if i >= len(names) || names[i] != name {
			t.Fatalf("released.sha256, line %d: got %q, want the files in order, without one that is missing", i+1, line)
		}
		content := check.Value(fs.ReadFile(files, name))(t)
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != sum {
			t.Errorf("%s: the file was changed after its release; put the change into a new file with the next number", name)
		}
	}
}

// A database without rows requires MACs from the start.
func TestNewDatabaseRequiresMACs(t *testing.T) {
	t.Parallel()
	databaseURL, _ := migrated(t)
	check.Equal(t, "rules that require MACs", count(t, databaseURL, `select count(*) from intent_mac_rule where required and intents_upto = 0`), 1)
}

// A later migration is applied to a database with rows while a transaction writes. It waits for the
// writer, and sees its row.
func TestLaterMigrationWaitsForAWriter(t *testing.T) {
	t.Parallel()
	databaseURL, conn := migrated(t)
	later := fstest.MapFS{"9999_later.sql": {Data: []byte(`-- +goose Up
lock table submitter in access exclusive mode;
create table later as select submitter from submitter;
`)}}
	for _, name := range embedded(t) {
		later[name] = &fstest.MapFile{Data: check.Value(fs.ReadFile(files, name))(t)}
	}
	writer := dial(t, databaseURL)
	const register = `insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by) values ('eip155:%d:0x00000000000000000000000000000000000000a1', 'local', 0, 9, '{sub:1}', 'test')`
	do(t, conn, fmt.Sprintf(register, 1))
	do(t, writer, `begin`)
	do(t, writer, fmt.Sprintf(register, 2))
	applied := make(chan error, 1)
	go func() {
		_, err := up(t.Context(), databaseURL, slog.New(slog.DiscardHandler), later)
		applied <- err
	}()
	for waits := ""; waits != "true"; {
		waits = texts(t, conn, `select (count(*) > 0)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)[0]
	}
	do(t, writer, `commit`)
	check.OK(t)(<-applied)
	check.Equal(t, "rows that the migration saw", count(t, databaseURL, `select count(*) from later`), 2)
}

func TestTwoJobsAtOnceBothSucceed(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	// goose's own table exists already, so that only the lock separates the jobs.
	apply(t, databaseURL, fstest.MapFS{"0001_first.sql": steps()["0001_first.sql"]}, 1)
	slow := steps()
	slow["0002_second.sql"].Data = append(slow["0002_second.sql"].Data, "select pg_sleep(0.5);\n"...)
	const jobs = 2
	var applied [jobs]int
	var group sync.WaitGroup
	for job := range jobs {
		group.Go(func() {
			var err error
			applied[job], err = up(t.Context(), databaseURL, slog.New(slog.DiscardHandler), slow)
			check.Err(t, "a job", nil)(err)
		})
	}
	group.Wait()
	check.Equal(t, "applied by both", applied[0]+applied[1], 1)
	check.Equal(t, "rows", count(t, databaseURL, "select count(*) from first"), 1)
}

func TestFailedMigrationLeavesTheOnesBefore(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	broken := steps()
	broken["0002_second.sql"].Data = []byte("-- +goose Up\ninsert into first values (7);\nselect 1/0;\n")
	var log bytes.Buffer
	applied, err := up(t.Context(), databaseURL, slog.New(slog.NewTextHandler(&log, nil)), broken)
	check.Equal(t, "applied", applied, 1)
	if err == nil || !strings.Contains(err.Error(), "apply migrations: 0002_second.sql: ") || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("error: got %v, want one that names the file and the cause", err)
	}
	if got := log.String(); !strings.Contains(got, "0001_first.sql") || strings.Contains(got, "0002_second.sql") {
		t.Errorf("log: got %q, want the first file and not the second", got)
	}
	check.Equal(t, "rows of the failed migration", count(t, databaseURL, "select count(*) from first"), 0)
	apply(t, databaseURL, steps(), 1)
}

func TestStatusTellsAppliedFromPending(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t) + "&timezone=Asia/Tokyo" // must not shift the times
	first := steps()
	delete(first, "0002_second.sql")
	apply(t, databaseURL, first, 1)
	got := check.Value(status(t.Context(), databaseURL, steps()))(t)
	want := []State{{Name: "0001_first.sql", AppliedAt: time.Now()}, {Name: "0002_second.sql"}}
	check.Same(t, "status", got, want, cmpopts.EquateApproxTime(time.Minute))
}

func TestErrorsKeepThePassword(t *testing.T) {
	t.Parallel()
	for _, databaseURL := range []string{
		"postgres://owner:s3cret@127.0.0.1:1/none?connect_timeout=5",
		"postgres://owner:s3cret@127.0.0.1:port/none",
	} {
		_, err := Up(t.Context(), databaseURL, slog.New(slog.DiscardHandler))
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("up at an unreachable database: got %v, want an error without the password", err)
		}
	}
}

// A database of a build with other migration numbers is refused, and nothing is applied. By numbers
// alone it would look complete.
func TestDatabaseOfAnEarlierBuildIsRefused(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	do(t, dial(t, databaseURL), `create function copy_grants(source text, target text, privileges text[]) returns void language sql as ''`)
	applied, err := up(t.Context(), databaseURL, slog.New(slog.DiscardHandler), files)
	if applied != 0 || !errors.Is(err, ErrEarlierNumbering) {
		t.Errorf("got %d applied, %v; want ErrEarlierNumbering", applied, err)
	}
}
