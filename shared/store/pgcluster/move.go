package pgcluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Backup copies the data of the running server, as a file backup does, under any load. A second call
// replaces the first copy.
func (c *Cluster) Backup(ctx context.Context) error {
	return results.Wrap(c.keeper.order(ctx, "backup"), "back up Postgres")
}

// PutBack stops the server as a crash would and starts it on the copy of [Cluster.Backup], at the same
// port. System identifier and timeline do not change, because no archive is read. Commits since the
// backup are lost.
func (c *Cluster) PutBack(ctx context.Context) error {
	return results.Wrap(c.replace(ctx, "stop immediate", "restore"), "put the backup of Postgres back")
}

// Upgrade stops the server normally, runs pg_upgrade on its data to the same version, and starts it at
// the same port. The system identifier is new, and nothing is lost.
func (c *Cluster) Upgrade(ctx context.Context) error {
	err := c.execute(ctx, openTemplates)
	if err == nil {
		err = c.replace(ctx, "stop fast", "upgrade")
	}
	return results.Wrap(err, "upgrade Postgres")
}

// openTemplates lets the templates accept connections: of databases that accept none pg_upgrade takes only template0.
const openTemplates = `update pg_database set datallowconn = true where not datallowconn and datname <> 'template0'`

func (c *Cluster) replace(ctx context.Context, orders ...string) error {
	for _, order := range append(orders, "start") {
		if err := c.keeper.order(ctx, order); err != nil {
			return err
		}
	}
	return c.execute(ctx, "select")
}

// Replica starts a standby of the cluster, which accepts read-only connections. It has the cluster's password and
// another port. The caller must call [Cluster.Stop]. When Replica returns, the standby streams the log: a normal
// stop of the cluster waits for it.
func (c *Cluster) Replica(ctx context.Context) (*Cluster, error) {
	r, err := start(ctx, c.opts, c.password, fmt.Sprintf("follow %d %s", c.port, c.password))
	if err != nil {
		return nil, err
	}
	if err := r.execute(ctx, awaitStream); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the replica to stream: %w", err), r.Stop())
	}
	return r, nil
}

// awaitStream ends when the standby streams its primary's log.
const awaitStream = `do $$ begin
  while not exists (select from pg_stat_wal_receiver where status = 'streaming') loop perform pg_sleep(0.02); end loop;
end $$`

// Promote ends the recovery of a [Cluster.Replica], which begins a new timeline. It returns when the
// server accepts writes.
func (c *Cluster) Promote(ctx context.Context) error {
	return results.Wrap(c.keeper.order(ctx, "promote"), "promote the replica")
}

// Halt stops the server and cuts all connections. Immediate stops it as a crash would; otherwise it
// first sends all commits to a replica that follows.
func (c *Cluster) Halt(ctx context.Context, immediate bool) error {
	return results.Wrap(c.keeper.order(ctx, stopOrder(immediate)), "stop Postgres")
}

// Addr returns the server's address, host:port.
func (c *Cluster) Addr() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }
