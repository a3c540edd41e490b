package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// bench is the state shared by all runs of one command.
type bench struct {
	flags
	out     io.Writer
	log     *slog.Logger
	folder  string
	cluster *pgcluster.Cluster // durable
	output  io.Writer          // of the functions
	closers stack.Closers
}

// sharedBuffersMB is a quarter of the memory of a server with a few gigabytes
// (https://www.postgresql.org/docs/17/runtime-config-resource.html).
const sharedBuffersMB = 1024

func newBench(ctx context.Context, f flags, out io.Writer) (_ *bench, err error) {
	b := &bench{flags: f, out: out}
	defer b.closers.AfterFailure(&err)
	defer steps.Return(&err)
	b.log, b.output = command.Logs(slog.LevelError+1, f.verbose, f.logs)
	b.folder = steps.Value(os.MkdirTemp("", "fencepost-bench-"))
	b.closers.OnClose(func() error { return os.RemoveAll(b.folder) })
	if b.server == "" {
		b.server = steps.Value(stack.Build(ctx, b.folder))
	}
	if b.core == "" && slices.ContainsFunc(b.scenarios, func(s scenario) bool { return s.shape.users > 0 }) {
		b.core = steps.Value(ubscore.Build(ctx, b.folder))
	}
	b.cluster = steps.Value(pgcluster.Start(ctx, pgcluster.Options{Fsync: true, SharedBuffersMB: sharedBuffersMB}))
	b.closers.OnClose(b.cluster.Stop)
	if b.statements > 0 {
		b.watchStatements(ctx)
	}
	return b, nil
}

type run struct {
	*bench
	number int // from 0 on
}

// phase is the moment within a block at which this run begins to post, from 0 to 1. It decides how
// long the first block takes to come, so the runs are spread over it.
func (r run) phase() float64 { return (float64(r.number) + 0.5) / float64(r.runs) }

// measure runs each scenario. The runs of all alternate, so that a slow minute of the machine does not
// hit one scenario alone.
func (b *bench) measure(ctx context.Context) []measurement {
	all := make([]measurement, len(b.scenarios))
	for n := range b.runs {
		for i, s := range b.scenarios {
			all[i].scenario = s
			if s.once && n > 0 {
				continue
			}
			began := time.Now()
			one, err := s.run(ctx, run{b, n})
			steps.OK(err, s.name)
			all[i].runs = append(all[i].runs, one)
			fmt.Fprintf(b.out, "%-16s run %d of %d, %.1f s: %s\n", s.name, n+1, b.runs, time.Since(began).Seconds(), one.line())
		}
	}
	return all
}
