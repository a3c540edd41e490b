package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/shared/crash"
)

// folder holds the logs and tables of a run. A run that passes removes it.
type folder struct {
	path      string
	began     time.Time
	functions *os.File  // log of the function processes
	events    *os.File  // log of the injected faults and of the stack
	log       io.Writer // of the stack: events, and standard error of a verbose run
}

func newFolder(seed uint64, verbose bool) (f *folder, err error) {
	defer steps.Return(&err)
	f = &folder{path: steps.Value(os.MkdirTemp("", fmt.Sprintf("fencepost-torture-%d-", seed))), began: time.Now()}
	steps.OK(os.Mkdir(f.points(), 0o700))
	f.functions = steps.Value(os.Create(f.file("functions.log")))
	f.events = steps.Value(os.Create(f.file("torture.log")))
	if f.log = f.events; verbose {
		f.log = io.MultiWriter(f.events, os.Stderr)
	}
	return f, nil
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

func (f *folder) points() string { return f.file("points") }

// settings merges the settings and adds the folder of crash points.
func (f *folder) settings(base ...map[string]string) map[string]string {
	all := make(map[string]string)
	for _, some := range base {
		maps.Copy(all, some)
	}
	all[crash.Variable] = f.points()
	return all
}

// event logs one line. A file takes each write as a whole. A full disk is no violation.
func (f *folder) event(format string, args ...any) {
	at := time.Now()
	line := fmt.Sprintf(format, args...)
	_, _ = fmt.Fprintf(f.log, "%s +%.3fs %s\n", at.UTC().Format(time.RFC3339Nano), at.Sub(f.began).Seconds(), line)
}

// dump writes every table as CSV, a partitioned one as a whole.
func (f *folder) dump(ctx context.Context, db *pgxpool.Pool) (err error) {
	defer steps.Return(&err)
	conn := steps.Value(db.Acquire(ctx))
	defer conn.Release()
	for _, t := range rows.All(ctx, db, pgx.RowTo[string], `
		select relname::text from pg_class
		 where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
		 order by 1`) {
		out := steps.Value(os.Create(f.file(t + ".csv")))
		_, err := conn.Conn().PgConn().CopyTo(ctx, out, "copy (select * from "+pgx.Identifier{t}.Sanitize()+") to stdout with (format csv, header)")
		steps.OK(errors.Join(err, out.Close()), "dump ", t)
	}
	return nil
}

// close ends the logs and removes the folder, unless it is to be kept.
func (f *folder) close(keep bool) error {
	_ = f.functions.Close()
	_ = f.events.Close()
	if keep {
		return nil
	}
	return os.RemoveAll(f.path)
}
