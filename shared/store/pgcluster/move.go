package pgcluster

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// Backup copies the data of the running server, as a backup of its files does, under
// whatever load there is. A second call replaces the first one's copy.
func (c *Cluster) Backup(ctx context.Context) error {
	if err := c.keeper.order(ctx, "backup"); err != nil {
		return fmt.Errorf("back up Postgres: %w", err)
	}
	return nil
}

// PutBack stops the server as a crash would and starts it on what [Cluster.Backup] has
// copied, at the same port. System identifier and timeline are those of before: no
// archive is read. What was committed since the backup is lost.
func (c *Cluster) PutBack(ctx context.Context) error {
	if err := c.replace(ctx, "stop immediate", "restore"); err != nil {
		return fmt.Errorf("put the backup of Postgres back: %w", err)
	}
	return nil
}

// Upgrade stops the server in order, runs pg_upgrade on its data, from the version of
// the programs to the same, and starts it at the same port. The system identifier is
// a new one, and nothing is lost.
func (c *Cluster) Upgrade(ctx context.Context) error {
	if err := c.openTemplates(ctx); err != nil {
		return fmt.Errorf("upgrade Postgres: %w", err)
	}
	if err := c.replace(ctx, "stop fast", "upgrade"); err != nil {
		return fmt.Errorf("upgrade Postgres: %w", err)
	}
	return nil
}

// openTemplates lets the templates take connections: pg_upgrade refuses a cluster with a
// database that takes none.
func (c *Cluster) openTemplates(ctx context.Context) error {
	c.building.Lock()
	defer c.building.Unlock()
	for name := range c.built {
		if err := c.execute(ctx, "alter database "+pgx.Identifier{name}.Sanitize()+" with allow_connections true"); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) replace(ctx context.Context, orders ...string) error {
	for _, order := range append(orders, "start") {
		if err := c.keeper.order(ctx, order); err != nil {
			return err
		}
	}
	return c.ping(ctx)
}

// Replica starts a standby of the cluster, which streams its log and takes connections
// that only read. It has the cluster's password and a port of its own. The caller must
// call [Cluster.Stop].
func (c *Cluster) Replica(ctx context.Context) (*Cluster, error) {
	return launchCluster(ctx, c.opts, randomPort, c.password, fmt.Sprintf("follow %d %s", c.port, c.password))
}

// Promote ends the recovery of a [Cluster.Replica], which begins a new timeline, and
// returns when it takes writes.
func (c *Cluster) Promote(ctx context.Context) error {
	if err := c.keeper.order(ctx, "promote"); err != nil {
		return fmt.Errorf("promote the replica: %w", err)
	}
	return nil
}

// Halt stops the server and cuts all connections. Immediate stops it as a crash would;
// else it first sends all that was committed to a replica that follows.
func (c *Cluster) Halt(ctx context.Context, immediate bool) error {
	mode := "fast"
	if immediate {
		mode = "immediate"
	}
	if err := c.keeper.order(ctx, "stop "+mode); err != nil {
		return fmt.Errorf("stop Postgres: %w", err)
	}
	return nil
}

// Addr is where the server listens, host:port.
func (c *Cluster) Addr() string {
	u, err := url.Parse(c.URL(""))
	if err != nil {
		return ""
	}
	return u.Host
}
