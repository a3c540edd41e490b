// Package migrations holds the schema of our database as numbered SQL files, and brings a database up
// to them. A job does that, with the role that owns the tables. An instance that serves requests never
// does.
//
// The first files are the schema itself, by subject, to be read from top to bottom. From there on the
// folder is append-only: a change is a new file, named 0010_name.sql, and the numbers have no gaps. A
// released file never changes, since goose, which runs the files, remembers only their numbers.
// released.sha256 lists the released files, and a test compares them. Each file runs in one transaction
// unless it says otherwise, so a file that fails leaves nothing behind and runs again the next time. A
// file that locks a table of a running system begins with set local lock_timeout.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// State is one migration as one database knows it.
type State struct {
	Name      string    // the file's name
	AppliedAt time.Time // by the database's clock, in UTC; zero if not applied
}

// Option changes how to connect, beyond the URL.
type Option func(*pgx.ConnConfig)

// Dial connects by dial in place of the URL's host.
func Dial(dial pgconn.DialFunc) Option {
	return func(c *pgx.ConnConfig) {
		c.DialFunc = dial
		c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
}

// withConnection calls do with a connection. The error begins with the text what.
func withConnection(ctx context.Context, what, databaseURL string, how []Option, do func(*pgx.Conn) error) error {
	config, err := parse(databaseURL, how)
	var conn *pgx.Conn
	if err == nil {
		conn, err = pgx.ConnectConfig(ctx, config)
	}
	if err == nil {
		err = errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
	}
	return wrap(what, err)
}

// wrap is err with the text what in front of it; nil if err is nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func parse(databaseURL string, how []Option) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	for _, set := range how {
		set(config)
	}
	return config, nil
}

// Up applies, in order, every migration that the database lacks. It logs each and returns their
// number. Several calls may run at once: one applies, the others wait up to ten minutes and then have
// nothing to apply.
//
// When a migration fails, the earlier ones stay applied and are counted, and the error names the file.
// The next call continues there.
func Up(ctx context.Context, databaseURL string, log *slog.Logger, how ...Option) (applied int, err error) {
	return up(ctx, databaseURL, log, files, how...)
}

// Status returns every migration in order. It waits for a running Up, and makes goose's table if the
// database has none.
func Status(ctx context.Context, databaseURL string, how ...Option) ([]State, error) {
	return status(ctx, databaseURL, files, how...)
}

func up(ctx context.Context, databaseURL string, log *slog.Logger, files fs.FS, how ...Option) (applied int, err error) {
	if err := refuseEarlierNumbering(ctx, databaseURL, how); err != nil {
		return 0, err
	}
	err = withProvider("apply migrations", databaseURL, files, how, func(provider *goose.Provider) error {
		results, err := provider.Up(ctx)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			results = partial.Applied
			err = fmt.Errorf("%s: %w", path.Base(partial.Failed.Source.Path), partial.Err)
		}
		for _, result := range results {
			log.InfoContext(ctx, "migration applied", "file", path.Base(result.Source.Path), "took", result.Duration)
		}
		applied = len(results)
		return err
	})
	return applied, err
}

// ErrEarlierNumbering reports a database of a build before the schema was written in nine files. Its
// list of migrations has other numbers: files with a number that is on the list would never be applied.
var ErrEarlierNumbering = errors.New("the database was made by a build whose migrations have other numbers: make a new database with this build")

// refuseEarlierNumbering recognises such a database by a function that only those builds have made.
func refuseEarlierNumbering(ctx context.Context, databaseURL string, how []Option) error {
	return withConnection(ctx, "apply migrations", databaseURL, how, func(conn *pgx.Conn) error {
		var earlier bool
		err := conn.QueryRow(ctx, `select exists (select from pg_proc where proname = 'copy_grants' and pronamespace = current_schema()::regnamespace)`).Scan(&earlier)
		if err == nil && earlier {
			err = ErrEarlierNumbering
		}
		return err
	})
}

func status(ctx context.Context, databaseURL string, files fs.FS, how ...Option) (states []State, err error) {
	err = withProvider("read state of migrations", databaseURL, files, how, func(provider *goose.Provider) error {
		found, err := provider.Status(ctx)
		for _, one := range found {
			states = append(states, State{Name: path.Base(one.Source.Path), AppliedAt: one.AppliedAt})
		}
		return err
	})
	return states, err
}

// withProvider calls do with the runner of the files. The error begins with the text what.
func withProvider(what, databaseURL string, files fs.FS, how []Option, do func(*goose.Provider) error) error {
	config, err := parse(databaseURL, how)
	if err != nil {
		return wrap(what, err)
	}
	config.RuntimeParams["timezone"] = "UTC" // goose stores its times without a zone
	// Once a second for ten minutes: longer than a migration should take, and
	// far shorter than the job's own time-out.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600))
	if err != nil {
		return wrap(what, err)
	}
	db := stdlib.OpenDB(*config)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		err = do(provider)
	}
	return wrap(what, errors.Join(err, db.Close()))
}
