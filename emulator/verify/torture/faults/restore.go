package faults

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

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
func (w *World) BackUp(ctx context.Context, n int) (*Restore, error) {
	w.restarting.Lock()
	defer w.restarting.Unlock()
	ctx = context.WithoutCancel(ctx) // an interruption would leave connections refused
	backup := fmt.Sprintf("LIVE_backup_%d", n)
	err := w.onServer(ctx, refuseConnections, endSessions, fmt.Sprintf(`create database "%s" template "LIVE"`, backup))
	if opened := w.onServer(ctx, allowConnections); err == nil {
		err = opened
	}
	return &Restore{Backup: w.databaseURL(backup)}, err
}

// PutBack renames the running database and puts the backup in its place. The backup is marked
// as a copy before any process can connect to it. The lost database stays for the checks. The
// function between is called while no process can reach either.
func (w *World) PutBack(ctx context.Context, r *Restore, n int, between func()) error {
	w.restarting.Lock()
	defer w.restarting.Unlock()
	ctx = context.WithoutCancel(ctx)
	lost, backup := fmt.Sprintf("LIVE_lost_%d", n), fmt.Sprintf("LIVE_backup_%d", n)
	if err := w.onServer(ctx, refuseConnections, endSessions, fmt.Sprintf(`alter database "LIVE" rename to "%s"`, lost)); err != nil {
		return err
	}
	between()
	if err := migrations.Distrust(ctx, r.Backup, "the database was lost, and restored from its backup"); err != nil {
		return err
	}
	r.Lost = w.databaseURL(lost)
	return w.onServer(ctx, fmt.Sprintf(`alter database "%s" rename to "LIVE"`, backup), fmt.Sprintf(`alter database "%s" allow_connections true`, lost))
}

// onServer runs statements in another database of the server, with the database's name for
// LIVE.
func (w *World) onServer(ctx context.Context, statements ...string) error {
	u, err := url.Parse(w.Stack.Database)
	if err != nil {
		return err
	}
	name := strings.Trim(u.Path, "/")
	u.Path = "/postgres"
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, strings.ReplaceAll(s, "LIVE", name)); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// databaseURL returns the URL of a database of the same server.
func (w *World) databaseURL(name string) string {
	u, err := url.Parse(w.Stack.Database)
	if err != nil {
		return ""
	}
	u.Path = "/" + strings.ReplaceAll(name, "LIVE", strings.Trim(u.Path, "/"))
	return u.String()
}
