package faults

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/migrations"
)

// Restore is a backup of the running database, and the database that it replaced.
type Restore struct {
	Backup, Lost string // URLs; Lost is "" before the backup is in place
}

const (
	refuseConnections = `alter database "LIVE" allow_connections false`
	allowConnections  = `alter database "LIVE" allow_connections true`
	endSessions       = `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'LIVE' and pid <> pg_backend_pid()`
)

// BackUp copies the database as it is between two transactions.
func (w *World) BackUp(ctx context.Context, n int) (r *Restore, err error) {
	defer steps.Return(&err)
	w.restarting.RLock()
	defer w.restarting.RUnlock()
	ctx = context.WithoutCancel(ctx) // an interruption would leave connections refused
	defer func() { w.onServer(ctx, allowConnections) }()
	w.onServer(ctx, refuseConnections, endSessions, fmt.Sprintf(`create database "LIVE_backup_%d" template "LIVE"`, n))
	return &Restore{Backup: w.databaseURL(fmt.Sprintf("%s_backup_%d", w.live(), n))}, nil
}

// PutBack renames the running database and puts the backup in its place. The backup is marked
// as a copy before any process can connect to it. The lost database stays for the checks. The
// function between is called while no process can reach either.
func (w *World) PutBack(ctx context.Context, r *Restore, n int, between func()) (err error) {
	defer steps.Return(&err)
	w.restarting.RLock()
	defer w.restarting.RUnlock()
	ctx = context.WithoutCancel(ctx)
	w.onServer(ctx, refuseConnections, endSessions, fmt.Sprintf(`alter database "LIVE" rename to "LIVE_lost_%d"`, n))
	between()
	steps.OK(migrations.Distrust(ctx, r.Backup, "the database was lost, and restored from its backup"))
	r.Lost = w.databaseURL(fmt.Sprintf("%s_lost_%d", w.live(), n))
	w.onServer(ctx, fmt.Sprintf(`alter database "LIVE_backup_%d" rename to "LIVE"`, n))
	w.onServer(ctx, fmt.Sprintf(`alter database "LIVE_lost_%d" allow_connections true`, n))
	return nil
}

// live returns the name of the running database.
func (w *World) live() string { return steps.Value(pgx.ParseConfig(w.Stack.Database)).Database }

// databaseURL returns the URL of another database of the running one's server. A drill has no Cluster.
func (w *World) databaseURL(name string) string {
	u := steps.Value(url.Parse(w.Stack.Database))
	u.Path = "/" + name
	return u.String()
}

// onServer runs statements in another database of the server, with the running database's name for
// LIVE. It repeats all until they succeed: a session can begin while the others are ended. Its error has the first too,
// since a statement whose answer was lost fails in another way when it is repeated.
func (w *World) onServer(ctx context.Context, statements ...string) {
	var first error
	last := try(ctx, func() (err error) {
		defer func() { first = cmp.Or(first, err) }()
		defer steps.Return(&err)
		conn := steps.Value(pgx.Connect(ctx, w.databaseURL("postgres")))
		defer conn.Close(ctx)
		for _, s := range statements {
			_, err := conn.Exec(ctx, strings.ReplaceAll(s, "LIVE", w.live()))
			steps.OK(err, s)
		}
		return nil
	})
	if last != nil {
		steps.OK(fmt.Errorf("%w; at first: %w", last, first))
	}
}
