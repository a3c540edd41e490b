package migrations

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// Each role gets exactly its function's rights, whatever it had before, also at a second run. A role
// of all functions has all rights, a reader reads, and no role owns a table.
func TestGrant(t *testing.T) {
	t.Parallel()
	databaseURL, conn := migrated(t)
	functions := check.Value(Functions())(t)
	var roles []string
	role := func(name string) string {
		role := fmt.Sprintf("%s@p%d.iam", name, time.Now().UnixNano())
		do(t, conn, `create role `+pgx.Identifier{role}.Sanitize())
		roles = append(roles, role)
		return role
	}
	defer func() { do(t, conn, fmt.Sprintf(`reset role; drop owned by %[1]s; drop role %[1]s`, names(roles))) }()
	to := Grants{Functions: make(map[string][]string), Readers: []string{role("ann")}}
	for _, f := range append(functions, EveryFunction) {
		to.Functions[role(f)] = []string{f}
	}
	two := role("two")
	to.Functions[two] = []string{"query", "create"}
	for old := range to.Functions { // as every earlier release granted
		do(t, conn, `grant select, insert, update, delete on all tables in schema public to `+pgx.Identifier{old}.Sanitize())
		do(t, conn, `grant update (callers) on submitter to `+pgx.Identifier{old}.Sanitize())
		do(t, conn, `grant usage, update on all sequences in schema public to `+pgx.Identifier{old}.Sanitize())
	}
	for range 2 {
		check.OK(t)(Grant(t.Context(), databaseURL, to))
	}
	for role, of := range to.Functions {
		rights := check.Value(rightsOf(of))(t)
		check.Same(t, fmt.Sprintf("rights of %s", of), texts(t, conn, granted, role), wanted(t, conn, rights))
	}
	reader := to.Readers[0]
	var reads []string
	for _, line := range wanted(t, conn, nil) {
		if !strings.HasPrefix(line, "sequence") {
			reads = append(reads, line)
		}
	}
	check.Same(t, "rights of a reader", texts(t, conn, granted, reader), reads)
	for role, want := range map[string]string{two: "", reader: "pg_read_all_stats"} {
		got := texts(t, conn, `select g.rolname::text from pg_auth_members m join pg_roles g on g.oid = m.roleid join pg_roles r on r.oid = m.member where r.rolname = $1`, role)
		check.Equal(t, role+" is a member of", strings.Join(got, ","), want)
	}
	do(t, conn, `set role `+pgx.Identifier{two}.Sanitize())
	for _, table := range []string{"table mine", "temporary table database_identity", "temporary table submitter_lease"} {
		if _, err := conn.Exec(t.Context(), `create `+table+` (id int)`); err == nil {
			t.Errorf("a %s of their own: got it made, want it refused", table)
		}
	}
	if _, err := conn.Exec(t.Context(), `select ensure_partitions()`); err == nil {
		t.Error("a function that runs as the owner, called by who may not: got no error")
	}
}

// granted lists the rights that roles have by name on tables, their columns, sequences and functions.
const granted = `
with acl (object, acl) as (
  select case relkind when 'S' then 'sequence ' else '' end || relname, relacl from pg_class where relnamespace = 'public'::regnamespace
  union all
  select 'function ' || oid::regprocedure, proacl from pg_proc where pronamespace = 'public'::regnamespace
), granted (object, what) as (
  select object, lower(g.privilege_type)
    from acl, aclexplode(acl) g join pg_roles r on r.oid = g.grantee where r.rolname = $1
  union all
  select c.relname, lower(g.privilege_type) || ' (' || string_agg(attname, ', ' order by attname) || ')'
    from pg_attribute a join pg_class c on c.oid = a.attrelid, aclexplode(a.attacl) g join pg_roles r on r.oid = g.grantee
   where c.relnamespace = 'public'::regnamespace and r.rolname = $1
   group by c.relname, g.privilege_type
)
select object || ': ' || string_agg(what, ', ' order by what) from granted group by object order by object collate "C"`

// wanted returns the same lines for these rights and for what each function reads.
func wanted(t *testing.T, conn *pgx.Conn, rights map[string][]string) (lines []string) {
	t.Helper()
	all := make(map[string][]string)
	for object, list := range rights {
		all[object] = slices.Clone(list)
	}
	for _, object := range texts(t, conn, `
select case relkind when 'S' then 'sequence ' else '' end || relname
  from pg_class
 where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'S', 'v') and not relispartition
   and relname not like 'goose_db_version%' or relname = 'goose_db_version_id_seq'`) {
		all[object] = append(all[object], "select")
	}
	for object, list := range all {
		columns := make(map[string][]string) // the columns of several functions that share a role, by insert and update
		list = slices.DeleteFunc(list, func(right string) bool {
			verb, of, some := strings.Cut(right, " (")
			if some {
				columns[verb] = append(columns[verb], strings.Split(strings.TrimSuffix(of, ")"), ", ")...)
			}
			return some
		})
		for verb, names := range columns {
			slices.Sort(names)
			list = append(list, verb+" ("+strings.Join(slices.Compact(names), ", ")+")")
		}
		slices.Sort(list)
		lines = append(lines, object+": "+strings.Join(list, ", "))
	}
	slices.Sort(lines)
	return lines
}

// The rights name existing objects in one spelling, and each deployed function has its own rights.
func TestRightsAreOfWhatExists(t *testing.T) {
	t.Parallel()
	_, conn := migrated(t)
	text := check.Value(os.ReadFile("../terraform/functions.json"))(t)
	var deployed map[string]any
	check.OK(t)(json.Unmarshal(text, &deployed))
	deployed["hooks"] = nil // a program of the deployment's owner
	functions := check.Value(Functions())(t)
	check.Same(t, "functions of grants.json beside those of functions.json", functions, slices.Sorted(maps.Keys(deployed)))
	rights := check.Value(rightsOf([]string{EveryFunction}))(t)
	form := regexp.MustCompile(`^(insert|delete|usage|execute|(insert|update) \([a-z_]+(, [a-z_]+)*\))$`)
	objects := texts(t, conn, `
select case relkind when 'S' then 'sequence ' else '' end || relname from pg_class where relnamespace = 'public'::regnamespace
union all
select 'function ' || oid::regprocedure from pg_proc where pronamespace = 'public'::regnamespace`)
	for object, list := range rights {
		if !slices.Contains(objects, object) {
			t.Errorf("grants.json: %s does not exist", object)
		}
		for _, right := range list {
			if !form.MatchString(right) {
				t.Errorf("grants.json: %s: %q is not insert, delete, usage, execute, insert (columns) or update (columns)", object, right)
			}
		}
	}
}

// decisive lists the rights that decide about money and keys, as docs/deploy.md names them: an object,
// and the updated column or another right on it.
var decisive = map[string][2]string{
	"Add an intent or a payment":                                 {"managed_tx", "insert"},
	"Bind a nonce to an intent":                                  {"managed_tx", "nonce"},
	"Store signed bytes":                                         {"tx_version", "insert"},
	"Record receipts and ends":                                   {"managed_tx", "receipt"},
	"Take a submitter's lease":                                   {"submitter_lease", "owner_node"},
	"Register a submitter; change its callers, signer or status": {"submitter", "signer"},
	"Change a policy":                                            {"submitter_policy", "max_value_wei"},
	"Record an operator's change of a submitter":                 {"submitter_change", "by"},
	"Record a decision about a transaction":                      {"tx_decision", "by"},
	"Propose an act, or record a second operator's approval":     {"function approve_proposal(uuid,text,text[],text)", "execute"},
	"End PROTECT":                                                {"protect_incident", "closed_at"},
	"Accept a database":                                          {"database_identity", "accepted_by"},
	"Change money in Funding":                                    {"balances_tb", "available"},
	"Make accounts in Funding, and set their status":             {"balances_tb", "status"},
	"Change an asset":                                            {"assets_tb", "payout_submitter"},
	"Move a transfer":                                            {"transfers_tb", "state"},
	"Halt transfers":                                             {"transfer_halt", "insert"},
	"End a halt":                                                 {"transfer_halt", "resumed_at"},
	"Write the books of conservation":                            {"conservation_sum", "insert"},
	"Prepare a mark":                                             {"database_mark", "insert"},
	"Number events":                                              {"event", "insert"},
	"Drop old partitions and events":                             {"function ensure_partitions()", "execute"},
}

// docs/deploy.md names the functions that have the decisive rights, and no other function has them.
func TestDecisiveRightsAreOnThePage(t *testing.T) {
	t.Parallel()
	all := check.Value(byFunction())(t)
	page := check.Value(os.ReadFile("../docs/deploy.md"))(t)
	got := make(map[string]string)
	_, section, _ := strings.Cut(string(page), "\n### What each function may write in the database\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][^|]*) \| ([^|]*) \|$`).FindAllStringSubmatch(section, -1) {
		got[row[1]] = row[2]
	}
	want := make(map[string]string)
	for words, of := range decisive {
		var may []string
		for _, function := range slices.Sorted(maps.Keys(all)) {
			if slices.ContainsFunc(all[function][of[0]], func(right string) bool {
				return right == of[1] || regexp.MustCompile(`[( ]`+of[1]+`[,)]`).MatchString(right)
			}) {
				may = append(may, "`"+function+"`")
			}
		}
		want[words] = strings.Join(may, ", ")
	}
	check.Same(t, "docs/deploy.md beside grants.json", got, want)
}

// limitedOwner makes two roles: one that may log in and has the rights, and another one. It returns the URL for the first.
func limitedOwner(t *testing.T, databaseURL string, conn *pgx.Conn, rights ...string) (ownersURL, owner, other string) {
	t.Helper()
	unique := time.Now().UnixNano()
	owner, other = fmt.Sprintf("owner_%d", unique), fmt.Sprintf("other@p%d.example", unique)
	do(t, conn, fmt.Sprintf(`create role %q login password 'secret'; create role %q`, owner, other))
	for _, right := range rights {
		do(t, conn, fmt.Sprintf(`grant %s to %q with grant option`, right, owner))
	}
	u := check.Value(url.Parse(databaseURL))(t)
	u.User = url.UserPassword(owner, "secret")
	return u.String(), owner, other
}

// If the owner may not let readers see other roles' sessions, Grant gives them the rest and reports
// that.
func TestGrantWithoutSightOfSessions(t *testing.T) {
	t.Parallel()
	databaseURL, conn := migrated(t)
	ownersURL, owner, reader := limitedOwner(t, databaseURL, conn, "usage on schema public", "select on all tables in schema public")
	defer do(t, conn, fmt.Sprintf(`drop owned by %[1]q, %[2]q cascade; drop role %[1]q, %[2]q`, owner, reader))
	check.Err(t, "grant", ErrNoSessions)(Grant(t.Context(), ownersURL, Grants{Readers: []string{reader}}))
	check.Same(t, "may read rows", texts(t, conn, `select has_table_privilege($1, 'managed_tx', 'select')::text`, reader), []string{"true"})
}

// An owner of the tables who does not own the database cannot forbid temporary tables. Grant gives the
// functions all the rest and reports that.
func TestGrantWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	databaseURL, conn := migrated(t)
	ownersURL, owner, functions := limitedOwner(t, databaseURL, conn, "usage on schema public", "all on all tables in schema public",
		"all on all sequences in schema public", "all on all routines in schema public")
	defer do(t, conn, fmt.Sprintf(`set role %[1]q; revoke all on all tables in schema public from %[2]q; reset role; drop owned by %[2]q, %[1]q cascade; drop role %[1]q, %[2]q`, owner, functions))
	check.Err(t, "grant", ErrTemporaryTables)(Grant(t.Context(), ownersURL, Grants{Functions: map[string][]string{functions: {EveryFunction}}}))
	check.Same(t, "may write rows", texts(t, conn, `select has_table_privilege($1, 'managed_tx', 'insert')::text`, functions), []string{"true"})
}

// A missing role is an error, and no role gets a right.
func TestGrantToNobody(t *testing.T) {
	t.Parallel()
	databaseURL, _ := migrated(t)
	if err := Grant(t.Context(), databaseURL, Grants{Functions: map[string][]string{"nobody": {EveryFunction}}}); err == nil {
		t.Error("got no error, want one")
	}
	check.Err(t, "to none", nil)(Grant(t.Context(), databaseURL, Grants{}))
}

// A role that may not read the sequence gets null as the last intent, which differs from no intent.
func TestLastIntentIsNullWhereTheRoleMayNotAsk(t *testing.T) {
	t.Parallel()
	_, conn := migrated(t)
	role := pgx.Identifier{fmt.Sprintf("stranger%d", time.Now().UnixNano())}.Sanitize()
	do(t, conn, `create role `+role)
	defer do(t, conn, fmt.Sprintf(`reset role; drop owned by %[1]s; drop role %[1]s`, role))
	const ask = `select coalesce(last_intent_seq()::text, 'null')`
	check.Same(t, "the owner", texts(t, conn, ask), []string{"0"})
	do(t, conn, `set role `+role)
	check.Same(t, "a role without rights", texts(t, conn, ask), []string{"null"})
}
