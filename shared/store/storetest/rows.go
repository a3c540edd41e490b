package storetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Run runs a statement without the store. If it updates, inserts or deletes, it must do so with at least one row.
func (b Bundle) Run(t testing.TB, statement string, args ...any) {
	t.Helper()
	run(t, b.DB, statement, args)
}

func run(t testing.TB, db results.DB, statement string, args []any) {
	t.Helper()
	tag, err := db.Exec(t.Context(), statement, args...)
	if err != nil || ((tag.Update() || tag.Insert() || tag.Delete()) && tag.RowsAffected() == 0) {
		t.Fatalf("%s: got %v, error %v; want rows changed", statement, tag, err)
	}
}

// RunUnguarded is [Bundle.Run] while the triggers of the table are disabled.
func (b Bundle) RunUnguarded(t testing.TB, table, statement string, args ...any) {
	t.Helper()
	b.Run(t, `alter table `+table+` disable trigger user`)
	b.Run(t, statement, args...)
	b.Run(t, `alter table `+table+` enable trigger user`)
}

// Session is a separate connection to the test's database, without the store's limits: another
// process, or a person with psql.
type Session struct {
	t testing.TB
	*pgx.Conn
}

// Connect opens a session that ends with t.
func (b Bundle) Connect(t testing.TB) Session {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), b.URL))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return Session{t, conn}
}

// Holding is a session whose open transaction has run the statement.
func (b Bundle) Holding(t testing.TB, statement string, args ...any) Session {
	t.Helper()
	s := b.Connect(t)
	s.Do("begin")
	s.Do(statement, args...)
	return s
}

// Do is [Bundle.Run] in the session.
func (s Session) Do(statement string, args ...any) {
	s.t.Helper()
	run(s.t, s.Conn, statement, args)
}

// Await polls until the condition holds.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		case <-tick.C:
		}
	}
}

// AwaitBlocked waits until a statement of the store that contains the fragment waits for another session's lock.
func (b Bundle) AwaitBlocked(t testing.TB, fragment string) {
	t.Helper()
	Await(t, "a statement with "+fragment+" waits for a lock", func() (blocked bool) {
		err := b.DB.QueryRow(t.Context(), `select exists (
			select from pg_stat_activity
			 where datname = current_database() and application_name = 'fencepost'
			   and wait_event_type = 'Lock' and position($1 in query) > 0)`, fragment).Scan(&blocked)
		check.OK(t)(err)
		return blocked
	})
}

// Outcome is the result of a call in the background.
type Outcome[T any] struct {
	Got T
	Err error
}

// Start makes a call in the background.
func Start[T any](call func() (T, error)) <-chan Outcome[T] {
	ended := make(chan Outcome[T], 1)
	go func() {
		got, err := call()
		ended <- Outcome[T]{got, err}
	}()
	return ended
}

// Blocked makes a call in the background, and returns once its statement that contains the fragment waits for another
// session's lock.
func Blocked[T any](t testing.TB, b Bundle, fragment string, call func() (T, error)) <-chan Outcome[T] {
	t.Helper()
	ended := Start(call)
	b.AwaitBlocked(t, fragment)
	return ended
}

// Blocks returns the number of blocks that a statement reads in a session.
func Blocks(t testing.TB, session results.DB, statement string, args ...any) int {
	t.Helper()
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := session.QueryRow(t.Context(), `explain (analyze, buffers, timing off, format json) `+statement, args...).Scan(&plan); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// Explain returns the generic plan of a statement, with partitions by number.
func Explain(t testing.TB, conn *pgxpool.Conn, name, statement string) string {
	t.Helper()
	wantNone := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	hot := pgx.Identifier{"hot " + name}.Sanitize()
	statement, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), nil, statement, nil)
	wantNone(err)
	_, err = conn.Exec(t.Context(), `prepare `+hot+` as `+statement)
	wantNone(err)
	defer func() { _, _ = conn.Exec(t.Context(), `deallocate `+hot) }()
	var given string
	wantNone(conn.QueryRow(t.Context(), `
		select coalesce('(' || string_agg('null', ', ') || ')', '')
		  from pg_prepared_statements, unnest(parameter_types) where quote_ident(name) = $1`, hot).Scan(&given))
	lines, err := results.All(t.Context(), conn, pgx.RowTo[string], `explain (costs off) execute `+hot+given, pgx.QueryExecModeSimpleProtocol)
	wantNone(err)
	return byNumber(strings.Join(lines, "\n") + "\n")
}

var quarters = regexp.MustCompile(`_\d{4}q\d`)

// byNumber names the partitions of quarters in their order, since their quarters depend on the day.
func byNumber(plan string) string {
	inOrder := slices.Compact(slices.Sorted(slices.Values(quarters.FindAllString(plan, -1))))
	return quarters.ReplaceAllStringFunc(plan, func(quarter string) string {
		return fmt.Sprintf("_quarter%d", slices.Index(inOrder, quarter)+1)
	})
}

// ShowPlan compares the plan of a statement with its file in testdata/plans, if the same version of Postgres made that. If
// update is true, it writes the file.
func ShowPlan(t testing.TB, conn *pgxpool.Conn, name, plan string, update bool) {
	t.Helper()
	version, _, _ := strings.Cut(conn.Conn().PgConn().ParameterStatus("server_version"), ".")
	file, heading := filepath.Join("testdata", "plans", name+".txt"), "Postgres "+version+"\n\n"
	if update {
		check.OK(t)(os.WriteFile(file, []byte(heading+plan), 0o644))
		return
	}
	want := check.Value(os.ReadFile(file))(t)
	if !strings.HasPrefix(string(want), strings.TrimSuffix(heading, "\n")) {
		t.Logf("%s is of another version than Postgres %s: not compared", file, version)
		return
	}
	check.Same(t, file, heading+plan, string(want))
}
