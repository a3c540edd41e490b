package storetest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Refusal is a statement that a constraint must refuse. First prepares it. It is an alias, so that
// tables of it need no names of fields.
type Refusal = struct{ First, Then string }

// Duty is a statement that one trigger of a table must refuse, by the name that it raises.
type Duty = struct{ Table, First, Then, By string }

// Statements are the refusals of statements that nothing prepares.
func Statements(all map[string][]string) map[string][]Refusal {
	refusals := make(map[string][]Refusal, len(all))
	for name, statements := range all {
		for _, then := range statements {
			refusals[name] = append(refusals[name], Refusal{Then: then})
		}
	}
	return refusals
}

// ShowRefusals checks that each constraint refuses its statements, in which rows replaces words. Each
// constraint that the query of the catalog finds must have some.
func (b Bundle) ShowRefusals(t *testing.T, rows *strings.Replacer, refusals map[string][]Refusal, catalog string) {
	t.Helper()
	for constraint, all := range refusals {
		for _, r := range all {
			t.Run(constraint, func(t *testing.T) {
				by := Violated(b.Try(t, rows.Replace(r.First), rows.Replace(r.Then)))
				check.Equal(t, r.Then+": refused by", partitionsKey.ReplaceAllString(by, "_pkey"), constraint)
			})
		}
	}
	for _, constraint := range b.Names(t, catalog) {
		if refusals[constraint] == nil {
			t.Errorf("%s is in the schema: got no statement that it refuses, want one", constraint)
		}
	}
}

// partitionsKey is the end of the name of a partition's key.
var partitionsKey = regexp.MustCompile(`_(default|\d{4}q\d)_pkey$`)

// ShowDuties checks that each trigger alone refuses its statements. These triggers and the others,
// which refuse nothing, are those that the query of the catalog finds.
func (b Bundle) ShowDuties(t *testing.T, rows *strings.Replacer, duties map[string][]Duty, others []string, catalog string) {
	t.Helper()
	for trigger, all := range duties {
		for _, d := range all {
			t.Run(trigger, func(t *testing.T) {
				first, then := rows.Replace(d.First), rows.Replace(d.Then)
				if by := Violated(b.Try(t, first, then)); by != d.By {
					t.Fatalf("%s: got refused by %s, want by %s", then, by, d.By)
				}
				off := fmt.Sprintf("alter table %s disable trigger %s; ", d.Table, trigger)
				if Violated(b.Try(t, off+first, then)) == d.By {
					t.Errorf("%s, with %s off: got it refused by %s all the same; want another proof of the trigger", then, trigger, d.By)
				}
			})
		}
	}
	shown := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(duties)), others)))
	want := slices.Sorted(slices.Values(b.Names(t, catalog))) // the same name is that of several tables' triggers
	check.Same(t, "triggers with a proof, beside those of the schema", shown, slices.Compact(want))
}

// ShowUniqueForEver checks that one constraint keeps exactly these columns, in the order of their names, unique for ever.
func (b Bundle) ShowUniqueForEver(t testing.TB, table string, columns ...string) {
	t.Helper()
	var n int
	if err := b.DB.QueryRow(t.Context(), uniqueForEver, table, columns).Scan(&n); err != nil || n != 1 {
		t.Errorf("%s %v: got %d constraints, %v; want one", table, columns, n, err)
	}
}

// uniqueForEver counts the constraints that keep exactly these columns unique:
// checked at once, over every row, on a table that is no partition and has none.
const uniqueForEver = `
select count(*)
  from pg_constraint k
  join pg_class c on c.oid = k.conrelid
  join pg_index i on i.indexrelid = k.conindid
 where c.oid = $1::regclass and k.contype in ('p', 'u') and not k.condeferrable
   and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
   and c.relkind = 'r' and c.relpersistence = 'p' and not c.relispartition
   and not exists (select from pg_inherits h where c.oid in (h.inhrelid, h.inhparent))
   and array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum = any (k.conkey) order by 1) = $2`

// Try runs first, which must succeed, and then the statement, which must be about some row, in a
// transaction that is rolled back.
func (b Bundle) Try(t testing.TB, first, then string) error {
	t.Helper()
	tx := check.Value(b.DB.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), first); err != nil {
		t.Fatalf("%s: %v", first, err)
	}
	tag, err := tx.Exec(t.Context(), then)
	if err == nil && tag.RowsAffected() == 0 && tag.String() != "TRUNCATE TABLE" {
		t.Fatalf("%s: touches no row: a mistake of the test", then)
	}
	return err
}

// Names are those that a query of the catalog finds.
func (b Bundle) Names(t testing.TB, query string) []string {
	t.Helper()
	all, err := results.All(t.Context(), b.DB, pgx.RowTo[string], query)
	if err != nil || len(all) < 10 {
		t.Fatalf("catalog: got %v, %v; want at least ten names", all, err)
	}
	return all
}
