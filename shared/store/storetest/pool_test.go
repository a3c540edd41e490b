package storetest_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A database that a test has changed is used again with the contents of a clone. One with a changed
// schema is not used again.
func TestReusedDatabaseIsAsNew(t *testing.T) {
	cluster := check.Value(pgcluster.Shared())(t)
	fresh := rows(t, storetest.NewIn(t, cluster).URL)
	var used string
	for name, c := range map[string]struct {
		change string
		again  bool
	}{
		"rows":                            {"delete from goose_db_version; select nextval('tx_history_ids')", true},
		"a column":                        {"alter table managed_tx add column more int", false},
		"a trigger, disabled and enabled": {"alter table managed_tx disable trigger user; alter table managed_tx enable trigger user", false},
		"statistics":                      {"analyze submitter_nonce_cursor", false},
	} {
		t.Run(name, func(t *testing.T) {
			db := storetest.New(t)
			db.Register(t, txmanager.Submitter("eip155:1337:0x0000000000000000000000000000000000000b0b"), 3)
			used = db.URL
			check.OK(t)(db.DB.Exec(t.Context(), c.change, pgx.QueryExecModeSimpleProtocol))
		})
		next := storetest.URL(t)
		if again := next == used; again != c.again {
			t.Errorf("after a change of %s: got the same database %t, want %t", name, again, c.again)
		}
		check.Same(t, fmt.Sprintf("after a change of %s, a clone and the next database", name), rows(t, next), fresh)
	}
}

// rows returns the contents of all tables and sequences.
func rows(t *testing.T, url string) map[string]string {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), url))(t)
	defer conn.Close(t.Context())
	all := map[string]string{}
	var names []string
	err := conn.QueryRow(t.Context(), `select array(select oid::regclass::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace)`).Scan(&names)
	if err != nil || len(names) < 20 {
		t.Fatalf("tables: got %v, %v", names, err)
	}
	for _, name := range names {
		var text string
		check.OK(t)(conn.QueryRow(t.Context(), fmt.Sprintf(`select coalesce(jsonb_agg(to_jsonb(r) order by to_jsonb(r)::text), '[]')::text from %s r`, name)).Scan(&text))
		all[name] = text
	}
	var text string
	check.OK(t)(conn.QueryRow(t.Context(), `select jsonb_agg(jsonb_build_array(sequencename, last_value) order by 1)::text from pg_sequences`).Scan(&text))
	all["sequences"] = text
	return all
}
