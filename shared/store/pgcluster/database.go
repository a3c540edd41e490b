package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Template makes the database name by calling build with the URL of an empty one, and closes it to
// connections, so that [Cluster.Clone] can copy it. Later calls with that name return nil at once,
// concurrent calls wait. If build fails, its error is returned and the next call starts again.
//
// Connections that build leaves open are cut. It must not call Template with that name.
func (c *Cluster) Template(ctx context.Context, name string, build func(ctx context.Context, url string) error) error {
	made, _ := c.templates.LoadOrStore(name, new(template))
	t := made.(*template)
	t.building.Lock()
	defer t.building.Unlock()
	if t.isBuilt {
		return nil
	}
	if err := c.buildTemplate(ctx, name, build); err != nil {
		return fmt.Errorf("build template database %s: %w", name, err)
	}
	t.isBuilt = true
	return nil
}

// template is a database that [Cluster.Template] makes.
type template struct {
	building sync.Mutex
	isBuilt  bool // guarded by building
}

// buildTemplate drops the remains of an earlier attempt and builds the template.
func (c *Cluster) buildTemplate(ctx context.Context, name string, build func(ctx context.Context, url string) error) error {
	database := pgx.Identifier{name}.Sanitize()
	if err := c.execute(ctx, "drop database if exists "+database+" with (force)"); err != nil {
		return err
	}
	if err := c.copyDatabase(ctx, name, "template1"); err != nil {
		return err
	}
	if err := build(ctx, c.URL(name)); err != nil {
		return err
	}
	if err := c.execute(ctx, "alter database "+database+" with allow_connections false"); err != nil {
		return err
	}
	return c.execute(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
}

// Clone makes a copy of a template, made by [Cluster.Template] or one of Postgres's own such as
// template1, which is empty. It takes about a tenth of a second, and copies are made one after another.
// URL(name) is the copy's URL.
//
// drop removes the copy and cuts its connections. It reports no error, because a copy that was not
// dropped disappears with the cluster.
func (c *Cluster) Clone(ctx context.Context, template string) (name string, drop func(), err error) {
	name = fmt.Sprintf("%s_%d", template, c.clones.Add(1))
	if err := c.copyDatabase(ctx, name, template); err != nil {
		return "", nil, fmt.Errorf("clone database %s: %w", template, err)
	}
	drop = func() {
		// The test's own context has ended when it cleans up.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = c.execute(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
	}
	return name, drop, nil
}

// copyDatabase makes the database name from a template, one at a time, so that a burst of tests does
// not make the server write all copies at once.
func (c *Cluster) copyDatabase(ctx context.Context, name, template string) error {
	c.copying.Lock()
	defer c.copying.Unlock()
	return c.execute(ctx, "create database "+pgx.Identifier{name}.Sanitize()+
		" template "+pgx.Identifier{template}.Sanitize())
}

// execute runs one statement as superuser, outside a transaction.
func (c *Cluster) execute(ctx context.Context, statement string, arguments ...any) error {
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, err = conn.Exec(ctx, statement, arguments...)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
