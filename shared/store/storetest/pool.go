package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// pool has the databases of ended tests, reset for the next ones. A reset costs a small part of the
// time of a clone.
type pool struct {
	mu       sync.Mutex
	idle     []database
	template *contents // nil before the first clone
}

var reusable pool

type database struct {
	name string
	drop func()
}

// contents describe the template. A database with its schema is equal to it after reset.
type contents struct {
	schema string
	bytes  int64
	reset  string // statements that delete all rows, insert the template's, and set the sequences
}

// maxGrowth is how much larger than the template a reused database may be. If tables had many dead
// rows, Postgres would choose other plans.
const maxGrowth = 1 << 20 // bytes

// take returns the name of a database that only t uses until it ends.
func (p *pool) take(t testing.TB, cluster *pgcluster.Cluster) string {
	t.Helper()
	db := check.Value(p.next(t.Context(), cluster))(t)
	t.Cleanup(func() {
		if t.Failed() || p.restore(cluster.URL(db.name)) != nil {
			db.drop()
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, db)
	})
	return db.name
}

// next returns an idle database or a clone. The cluster makes one clone at a time, so other calls, and tests that give a database back,
// may wait for it here.
func (p *pool) next(ctx context.Context, cluster *pgcluster.Cluster) (db database, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		db, p.idle = p.idle[last], p.idle[:last]
		return db, nil
	}
	if db.name, db.drop, err = cluster.Clone(ctx, template); err != nil || p.template != nil {
		return db, err
	}
	read, err := readContents(ctx, cluster.URL(db.name))
	if err != nil {
		db.drop()
		return db, err
	}
	p.template = read
	return db, nil
}

// readContents reads the template by its first clone.
func readContents(ctx context.Context, url string) (*contents, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	var c contents
	var inserts []string
	err = errors.Join(
		conn.QueryRow(ctx, schemaQuery).Scan(&c.schema, &c.bytes),
		conn.QueryRow(ctx, resetQuery).Scan(&c.reset, &inserts),
	)
	for _, insert := range inserts {
		var rows *string
		name, columns, _ := strings.Cut(insert, " ")
		if err = errors.Join(err, conn.QueryRow(ctx, "select jsonb_agg(to_jsonb(r))::text from "+name+" r").Scan(&rows)); err == nil && rows != nil {
			c.reset += fmt.Sprintf("insert into %[1]s (%[2]s) overriding system value select %[2]s from jsonb_populate_recordset(null::%[1]s, $rows$%[3]s$rows$);\n", name, columns, *rows)
		}
	}
	c.reset = "begin; set local session_replication_role = replica;\n" + c.reset + "commit"
	return &c, err
}

// restore makes the database equal to the template. It returns an error if the test changed the
// schema or the statistics, left many dead rows, or still has a connection.
func (p *pool) restore(url string) error {
	// The test's own context has ended when it cleans up.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := awaitAlone(ctx, conn); err != nil {
		return err
	}
	var now contents
	if err := conn.QueryRow(ctx, schemaQuery).Scan(&now.schema, &now.bytes); err != nil {
		return err
	}
	if now.schema != p.template.schema || now.bytes > p.template.bytes+maxGrowth {
		return errors.New("the schema or the size has changed")
	}
	_, err = conn.Exec(ctx, p.template.reset)
	return err
}

// awaitAlone waits until the test's connections have ended. The server ends them later than the client.
func awaitAlone(ctx context.Context, conn *pgx.Conn) error {
	for range 100 {
		var others int
		err := conn.QueryRow(ctx, `
select count(*) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("the test has left connections open")
}

// schemaQuery returns the database's size, and a text that changes with the schema, the rights and the
// planner's statistics, even if a change was undone.
const schemaQuery = `
select (select string_agg(name || ' ' || rows || ' ' || latest, ', ' order by name)
          from (select 'class' as name, count(*) + sum(reltuples) as rows, max(xmin::text::bigint) as latest from pg_class where relpersistence <> 't'
                union all select 'attribute', count(*), max(xmin::text::bigint) from pg_attribute
                union all select 'proc', count(*), max(xmin::text::bigint) from pg_proc
                union all select 'trigger', count(*), max(xmin::text::bigint) from pg_trigger
                union all select 'constraint', count(*), max(xmin::text::bigint) from pg_constraint
                union all select 'index', count(*), max(xmin::text::bigint) from pg_index
                union all select 'rule', count(*), max(xmin::text::bigint) from pg_rewrite
                union all select 'policy', count(*), max(xmin::text::bigint) from pg_policy
                union all select 'type', count(*), max(xmin::text::bigint) from pg_type
                union all select 'namespace', count(*), max(xmin::text::bigint) from pg_namespace
                union all select 'default', count(*), max(xmin::text::bigint) from pg_default_acl
                union all select 'event', count(*), max(xmin::text::bigint) from pg_event_trigger
                union all select 'statistic', count(*), max(xmin::text::bigint) from pg_statistic) as catalog)
       || (select format(' %s %s %s', datacl, datallowconn, datconnlimit) from pg_database where datname = current_database())
       || (select count(*) from pg_db_role_setting where setdatabase = (select oid from pg_database where datname = current_database())),
       pg_database_size(current_database())`

// resetQuery returns the statements that delete all rows and set the sequences to the template's
// values, and the name of each table with its columns.
const resetQuery = `
with tables as (
  select oid::regclass::text as name,
         (select string_agg(quote_ident(attname), ',') from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '') as columns
    from pg_class c
   where relkind = 'r' and relpersistence <> 't'
     and relnamespace not in (select oid from pg_namespace where nspname in ('pg_catalog', 'information_schema', 'pg_toast')))
select (select string_agg(format('delete from %s;', name), chr(10)) from tables)
       || (select string_agg(format('select setval(%L, %s, %L);', format('%I.%I', schemaname, sequencename), coalesce(last_value, start_value), last_value is not null), chr(10))
             from pg_sequences),
       (select array_agg(name || ' ' || columns) from tables)`
