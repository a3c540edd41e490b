package migrations

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Grants assigns rights on our tables to roles. The roles must exist on the server.
type Grants struct {
	// Functions maps a role to the functions that log in as it. The role gets these functions' rights
	// and loses all others. See [EveryFunction].
	Functions map[string][]string
	Readers   []string // roles of people who investigate alerts: they read rows and all sessions' activity
}

// ErrNoSessions reports that everything was granted except the view of other roles' sessions, which
// the granting role may not give. Readers can see that these sessions exist but not what they do.
var ErrNoSessions = errors.New("readers cannot see what others' sessions do: have pg_read_all_stats granted to them")

// ErrTemporaryTables reports that everything was granted, but that functions can still make temporary
// tables. The granting role may not forbid that.
var ErrTemporaryTables = errors.New("functions may make temporary tables, which go before ours in what triggers read: have the database's owner revoke TEMPORARY on it from PUBLIC and from them")

// Grant replaces the roles' rights by the given ones. If it grants functions their rights, only the
// database's owner can make temporary tables in it from then on. A temporary table would otherwise
// replace ours of the same name in what the database's own functions read. Call it again after a
// migration that adds objects.
func Grant(ctx context.Context, databaseURL string, to Grants, how ...Option) error {
	if len(to.Functions)+len(to.Readers) == 0 {
		return nil
	}
	return withConnection(ctx, "grant", databaseURL, how, func(conn *pgx.Conn) error { return to.give(ctx, conn) })
}

func (to Grants) give(ctx context.Context, conn *pgx.Conn) error {
	statements, err := to.statements(ctx, conn)
	if err != nil {
		return err
	}
	functions := slices.Sorted(maps.Keys(to.Functions))
	if _, err := conn.Exec(ctx, strings.Join(statements, ";")); err != nil { // one transaction
		return fmt.Errorf("to %s: %w", names(slices.Concat(functions, to.Readers)), err)
	}
	temporary := forbidTemporary(ctx, conn, functions)
	if temporary != nil && !errors.Is(temporary, ErrTemporaryTables) {
		return temporary
	}
	sessions := showSessions(ctx, conn, to.Readers)
	if sessions != nil && !errors.Is(sessions, ErrNoSessions) {
		return sessions
	}
	return errors.Join(temporary, sessions)
}

// statements returns the statements that give every role its rights.
func (to Grants) statements(ctx context.Context, conn *pgx.Conn) (statements []string, err error) {
	all, err := grantable(ctx, conn)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("the database has no tables yet: migrate it first")
	}
	tables := names(all)
	if len(to.Functions) > 0 {
		if statements, err = ofTheirOwner(ctx, conn); err != nil {
			return nil, err
		}
	}
	for _, role := range slices.Sorted(maps.Keys(to.Functions)) {
		rights, err := rightsOf(to.Functions[role])
		if err != nil {
			return nil, fmt.Errorf("to %s: %w", role, err)
		}
		statements = append(statements, exactly(role, tables, rights)...)
	}
	if len(to.Readers) > 0 {
		readers := names(to.Readers)
		statements = append(statements, "grant select on "+tables+" to "+readers, "grant usage on schema public to "+readers)
	}
	return statements, nil
}

// ofTheirOwner returns statements that revoke from public the functions that run with their owner's
// rights.
func ofTheirOwner(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `
select 'revoke execute on function ' || oid::regprocedure || ' from public'
  from pg_proc
 where pronamespace = 'public'::regnamespace and prosecdef
 order by 1`) // its error is that of the rows
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// forbidTemporary revokes temporary tables and then reads the result, since Postgres answers a revoke
// without permission with a warning, not an error.
func forbidTemporary(ctx context.Context, conn *pgx.Conn, functions []string) error {
	if len(functions) == 0 {
		return nil
	}
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	_, err := conn.Exec(ctx, "revoke temporary on database "+database+" from public, "+names(functions))
	if pg, ok := errors.AsType[*pgconn.PgError](err); err != nil && !(ok && pg.Code == insufficientPrivilege) {
		return fmt.Errorf("revoke temporary tables from %s: %w", names(functions), err)
	}
	var may []string
	err = conn.QueryRow(ctx, `
select coalesce(array_agg(role), '{}')
  from unnest($1::text[]) as role
 where has_database_privilege(role, current_database(), 'TEMPORARY')`, functions).Scan(&may)
	if err != nil {
		return fmt.Errorf("ask who may make temporary tables: %w", err)
	}
	if len(may) > 0 {
		return fmt.Errorf("%w: %s", ErrTemporaryTables, names(may))
	}
	return nil
}

func showSessions(ctx context.Context, conn *pgx.Conn, readers []string) error {
	if len(readers) == 0 {
		return nil
	}
	_, err := conn.Exec(ctx, "grant pg_read_all_stats to "+names(readers))
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == insufficientPrivilege {
		return fmt.Errorf("%w: %s", ErrNoSessions, pg.Message)
	}
	if err != nil {
		return fmt.Errorf("to %s: %w", names(readers), err)
	}
	return nil
}

// insufficientPrivilege is Postgres' error code for a missing right.
const insufficientPrivilege = "42501"

// grantable returns our tables and views, each partitioned table as one.
func grantable(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `
select relname
  from pg_class
 where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v') and not relispartition and relname <> 'goose_db_version'
 order by relname`) // its error is that of the rows
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// names quotes and joins the names of roles or tables.
func names(all []string) string {
	quoted := make([]string, len(all))
	for i, name := range all {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// grantsFile lists each function's rights beyond reading, by function and object, as Postgres' GRANT
// spells them. It has each function of terraform/functions.json. The additional entry "hooks" is for a
// Go program that reserves nonces (docs/hooks.md).
//
//go:embed grants.json
var grantsFile []byte

// EveryFunction stands for all functions. It is for a process that serves all of them with one role,
// as on a developer's machine.
const EveryFunction = "all"

// byFunction returns the file's content: rights by function and object.
var byFunction = sync.OnceValues(func() (map[string]map[string][]string, error) {
	rights := make(map[string]map[string][]string)
	if err := json.Unmarshal(grantsFile, &rights); err != nil {
		return nil, fmt.Errorf("grants.json: %w", err)
	}
	return rights, nil
})

// ErrNoFunction reports a function name that does not exist.
var ErrNoFunction = errors.New("no function has this name")

// Functions returns the functions' names and "hooks", without [EveryFunction].
func Functions() ([]string, error) {
	rights, err := byFunction()
	return slices.Sorted(maps.Keys(rights)), err
}

// rightsOf returns the rights by object of a role that the functions log in as.
func rightsOf(functions []string) (map[string][]string, error) {
	all, err := byFunction()
	if err != nil {
		return nil, err
	}
	if slices.Contains(functions, EveryFunction) {
		functions = slices.Collect(maps.Keys(all))
	}
	union := make(map[string][]string)
	for _, function := range functions {
		own, there := all[function]
		if !there {
			return nil, fmt.Errorf("%w: %q; the functions are %s, and %s for a role that serves every function", ErrNoFunction, function, strings.Join(slices.Sorted(maps.Keys(all)), ", "), EveryFunction)
		}
		for object, rights := range own {
			union[object] = append(union[object], rights...)
		}
	}
	for object, rights := range union {
		slices.Sort(rights)
		union[object] = slices.Compact(rights)
	}
	return union, nil
}

// exactly returns the statements that leave a role with these rights and no others. The role can also
// read the tables and the sequences' last values.
func exactly(role, tables string, rights map[string][]string) (statements []string) {
	to := pgx.Identifier{role}.Sanitize()
	statements = append(statements,
		"revoke all on all tables in schema public from "+to,
		"revoke all on all sequences in schema public from "+to,
		"revoke all on all routines in schema public from "+to,
		"grant usage on schema public to "+to,
		"grant select on all sequences in schema public to "+to,
		"grant select on "+tables+" to "+to)
	for _, object := range slices.Sorted(maps.Keys(rights)) {
		statements = append(statements, "grant "+strings.Join(rights[object], ", ")+" on "+object+" to "+to)
	}
	return statements
}
