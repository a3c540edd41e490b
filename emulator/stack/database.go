package stack

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// functionRole is the functions' database role: it can only read and write rows.
const functionRole = "fencepost_function"

// migrated is the template of all databases of one cluster: a new migration for each would take longer
// than many tests.
const migrated = "migrated"

// startDatabase creates a migrated database, in a new cluster if none was given.
func (s *Stack) startDatabase(ctx context.Context) {
	cluster := s.options.Cluster
	if cluster == nil {
		cluster = steps.Value(pgcluster.Start(ctx, pgcluster.Options{Fsync: true}))
		s.OnClose(cluster.Stop)
	}
	steps.OK(cluster.Template(ctx, migrated, func(ctx context.Context, url string) (err error) {
		defer steps.Return(&err)
		s.options.Log.Info("migrated the database", "migrations", steps.Value(migrations.Up(ctx, url, s.options.Log)))
		db := steps.Value(pgx.Connect(ctx, url))
		defer db.Close(ctx)
		makeRole(ctx, db, roleOfAll, passwordOfAll(db), all)
		return nil
	}))
	name, drop, err := cluster.Clone(ctx, migrated)
	steps.OK(err)
	s.OnClose(func() error { drop(); return nil })
	s.Database = cluster.URL(name)
}

// roleOfAll has the rights of all functions in each copy of the template. To grant them in each copy would take longer than some tests.
const roleOfAll = functionRole + "_" + all

// passwordOfAll returns its password in the superuser's cluster.
func passwordOfAll(superuser *pgx.Conn) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(roleOfAll+superuser.Config().Password)))
}

// transactionTimeoutOf returns, in milliseconds, the time after which the server ends a transaction of a
// target, as deployed: a lease's length, or a request's for checks of conservation.
func transactionTimeoutOf(target string) int {
	if target == conservationJob || target == all {
		return 60_000
	}
	return 10_000
}

// makeRole creates a role with the rights of a target's functions.
func makeRole(ctx context.Context, db *pgx.Conn, role, password, target string) {
	// The role of an earlier attempt is left: roles belong to the cluster, and the attempt's database is dropped alone.
	const create = `do $$ begin create role %[1]s; exception when duplicate_object then null; end $$; alter role %[1]s login password '%[2]s'`
	_, err := db.Exec(ctx, fmt.Sprintf(create, pgx.Identifier{role}.Sanitize(), password))
	if err == nil {
		err = migrations.Grant(ctx, db.Config().ConnString(), migrations.Grants{Functions: map[string][]string{role: functionsOf(target)}})
	}
	steps.OK(err, "make the role of ", target)
}

// roleURL returns the URL of a role with the rights of a target's functions. It creates the role of one function.
func (s *Stack) roleURL(ctx context.Context, target string) string {
	db := steps.Value(pgx.Connect(ctx, s.Database))
	defer db.Close(ctx)
	role, password := roleOfAll, passwordOfAll(db)
	if target == all { // the rights on a database itself are not copied
		steps.Value(db.Exec(ctx, "revoke temporary on database "+pgx.Identifier{db.Config().Database}.Sanitize()+" from public"))
	} else {
		role, password = functionRole+"_"+target+"_"+rand.Text()[:8], rand.Text() // base32: needs no quotes
		makeRole(ctx, db, role, password, target)
	}
	u := steps.Value(url.Parse(s.Database))
	u.User = url.UserPassword(role, password)
	if version := db.PgConn().ParameterStatus("server_version"); version >= "17" { // the first with this setting
		u.RawQuery += "&transaction_timeout=" + strconv.Itoa(transactionTimeoutOf(target))
	} else if target == all {
		fmt.Fprintf(s.options.Progress, "Postgres %s: to try things out only. Deployments take 17, which ends the transaction of a frozen client by itself.\n", version)
	}
	if s.Proxy != nil {
		u.Host = s.Proxy.Addr()
	}
	return u.String()
}

// startWireProxy puts a proxy between the functions and the database.
func (s *Stack) startWireProxy(ctx context.Context) {
	u := steps.Value(url.Parse(s.Database))
	s.Proxy = steps.Value(pgproxy.Start(context.WithoutCancel(ctx), pgproxy.Options{Target: u.Host}))
	s.OnClose(func() error { s.Proxy.Close(); return nil })
}
