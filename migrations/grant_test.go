package migrations

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// What the functions' role may do with each table, and a reader's, is what is meant,
// also a second time; and neither owns anything.
func TestGrant(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	if _, err := Up(t.Context(), databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, databaseURL)
	functions, reader := fmt.Sprintf("create@p%d.iam", time.Now().UnixNano()), fmt.Sprintf("ann@p%d.example", time.Now().UnixNano())
	for _, role := range []string{functions, reader} {
		quoted := pgx.Identifier{role}.Sanitize()
		do(t, conn, `create role `+quoted)
		defer do(t, conn, fmt.Sprintf(`reset role; drop owned by %[1]s; drop role %[1]s`, quoted))
	}
	for range 2 {
		if err := Grant(t.Context(), databaseURL, Grants{Functions: []string{functions}, Readers: []string{reader}}); err != nil {
			t.Fatal(err)
		}
	}
	const rights = `
select relname || ' ' || array_to_string(array(
  select lower(p) from unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) as p where has_table_privilege($1, oid, p)), ',')
  from pg_class
 where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition`
	want := map[string][]string{}
	for _, table := range texts(t, conn, `select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition`) {
		may, reads := "select,insert,update", "select"
		switch table {
		case "goose_db_version":
			may, reads = "", ""
		case "tx_document", "tx_history", "transfer_history", "conservation_finding", "submitter_use", "submitter_fee", "submitter_change":
			may = "select,insert"
		case "authority_move", "intent_mac_rule":
			may = "select"
		case "authority_mark", "event_outbox", "event", "conservation_checkpoint", "conservation_sum", "conservation_request", "conservation_scale", "conservation_standing":
			may = "select,insert,update,delete"
		}
		want[functions], want[reader] = append(want[functions], table+" "+may), append(want[reader], table+" "+reads)
	}
	for role, lines := range want {
		if diff := cmp.Diff(lines, texts(t, conn, rights, role)); diff != "" {
			t.Errorf("rights of %s (-want +got):\n%s", role, diff)
		}
	}
	for role, want := range map[string]string{functions: "", reader: "pg_read_all_stats"} {
		got := texts(t, conn, `select g.rolname::text from pg_auth_members m join pg_roles g on g.oid = m.roleid join pg_roles r on r.oid = m.member where r.rolname = $1`, role)
		if strings.Join(got, ",") != want {
			t.Errorf("%s: got a member of %q, want of %q", role, got, want)
		}
	}
	do(t, conn, `set role `+pgx.Identifier{functions}.Sanitize())
	do(t, conn, `select keep_partitions()`)
	do(t, conn, `insert into tx_history (tx_id, submitter, at, state, attempts) values (gen_random_uuid(), 'eip155:1:0x00000000000000000000000000000000000000a1', now(), 'QUEUED', 0)`)
	for _, table := range []string{"table mine", "temporary table authority", "temporary table submitter_lease"} {
		if _, err := conn.Exec(t.Context(), `create `+table+` (id int)`); err == nil {
			t.Errorf("a %s of their own: got it made, want it refused", table)
		}
	}
}

// An owner who may not let readers see others' sessions gives them the rest, and says so.
func TestGrantWithoutSightOfSessions(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	if _, err := Up(t.Context(), databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, databaseURL)
	unique := time.Now().UnixNano()
	owner, reader := fmt.Sprintf("owner_%d", unique), fmt.Sprintf("bob@p%d.example", unique)
	do(t, conn, fmt.Sprintf(`create role %q login password 'secret-%d'`, owner, unique))
	do(t, conn, fmt.Sprintf(`create role %q`, reader))
	defer do(t, conn, fmt.Sprintf(`drop owned by %[1]q, %[2]q cascade; drop role %[1]q, %[2]q`, owner, reader))
	do(t, conn, fmt.Sprintf(`grant usage on schema public to %[1]q with grant option; grant select on all tables in schema public to %[1]q with grant option`, owner))
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(owner, fmt.Sprintf("secret-%d", unique))
	if err := Grant(t.Context(), u.String(), Grants{Readers: []string{reader}}); !errors.Is(err, ErrNoSessions) {
		t.Errorf("got %v, want ErrNoSessions", err)
	}
	if got := texts(t, conn, `select has_table_privilege($1, 'managed_tx', 'select')::text`, reader); got[0] != "true" {
		t.Error("rows: got none to read, want all")
	}
}

// An owner of the tables who does not own the database cannot forbid temporary tables:
// the functions get all the rest, and he is told.
func TestGrantWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	if _, err := Up(t.Context(), databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, databaseURL)
	unique := time.Now().UnixNano()
	owner, functions := fmt.Sprintf("owner_%d", unique), fmt.Sprintf("functions_%d", unique)
	do(t, conn, fmt.Sprintf(`create role %q login password 'secret-%d'`, owner, unique))
	do(t, conn, fmt.Sprintf(`create role %q`, functions))
	defer do(t, conn, fmt.Sprintf(`drop owned by %[1]q, %[2]q cascade; drop role %[1]q, %[2]q`, owner, functions))
	do(t, conn, fmt.Sprintf(`grant usage on schema public to %[1]q with grant option; grant all on all tables in schema public to %[1]q with grant option;
		grant all on all sequences in schema public to %[1]q with grant option`, owner))
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(owner, fmt.Sprintf("secret-%d", unique))
	if err := Grant(t.Context(), u.String(), Grants{Functions: []string{functions}}); !errors.Is(err, ErrTemporaryTables) {
		t.Errorf("got %v, want ErrTemporaryTables", err)
	}
	if got := texts(t, conn, `select has_table_privilege($1, 'managed_tx', 'insert')::text`, functions); got[0] != "true" {
		t.Error("rows: got none to write, want all")
	}
}

// A role that is not there is an error, and then nobody has got anything.
func TestGrantToNobody(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	if _, err := Up(t.Context(), databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := Grant(t.Context(), databaseURL, Grants{Functions: []string{"nobody"}}); err == nil {
		t.Error("got no error, want one")
	}
	if err := Grant(t.Context(), databaseURL, Grants{}); err != nil {
		t.Errorf("to none: got %v, want nothing done", err)
	}
}

// A role that may not ask the sequence is told nothing of the last intent, and not that
// there is none.
func TestLastIntentIsNullWhereTheRoleMayNotAsk(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	if _, err := Up(t.Context(), databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, databaseURL)
	role := pgx.Identifier{fmt.Sprintf("stranger%d", time.Now().UnixNano())}.Sanitize()
	do(t, conn, `create role `+role)
	defer do(t, conn, fmt.Sprintf(`reset role; drop owned by %[1]s; drop role %[1]s`, role))
	const ask = `select coalesce(last_intent_seq()::text, 'null')`
	if got := texts(t, conn, ask); got[0] != "0" {
		t.Errorf("the owner: got %s, want 0", got[0])
	}
	do(t, conn, `set role `+role)
	if got := texts(t, conn, ask); got[0] != "null" {
		t.Errorf("a role without rights: got %s, want null", got[0])
	}
}
