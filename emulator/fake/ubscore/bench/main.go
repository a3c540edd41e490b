// Command bench measures UBSCore: durable operations per second by the core alone, over HTTP
// with the client that transfers use, and by bare appends to the disk. It also measures how long
// a restart takes. It prints tables, and with --json writes them as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	err := realMain(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figures are the measured values.
type figures struct {
	FsyncPerSecond float64   `json:"fsyncPerSecond"` // one append of 128 bytes and one fsync each
	Speed          []speed   `json:"speed"`
	Restart        []restart `json:"restart"`
}

type speed struct {
	Callers int     `json:"callers"`
	Core    float64 `json:"corePerSecond"` // operations, in this process
	HTTP    float64 `json:"httpPerSecond"` // operations, over HTTP to another process
	P50     float64 `json:"httpP50Milliseconds"`
	P99     float64 `json:"httpP99Milliseconds"`
}

type restart struct {
	Lines    int     `json:"lines"`
	From     string  `json:"from"`
	Seconds  float64 `json:"seconds"`
	PerMeg   float64 `json:"secondsPerMillion"`
	Megabyte float64 `json:"megabytesRead"`
}

func realMain(ctx context.Context, args []string, out io.Writer) error {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	folder := set.String("folder", "", "a `folder` on the disk to measure; default: a temporary one")
	each := set.Duration("each", 5*time.Second, "how long each number of callers is measured, as a `duration`")
	lines := set.Int("lines", 1_000_000, "how many `lines` a restart reads")
	path := set.String("json", "", "write the figures to this `file`, too")
	if err := set.Parse(args); err != nil {
		return err
	}
	work, err := os.MkdirTemp(*folder, "ubscore-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	f, err := measure(ctx, work, *each, *lines)
	if err != nil {
		return err
	}
	f.print(out)
	if *path == "" {
		return nil
	}
	content, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*path, append(content, '\n'), 0o600)
}

func measure(ctx context.Context, work string, each time.Duration, lines int) (f figures, err error) {
	if f.FsyncPerSecond, err = fsyncs(ctx, work, each); err != nil {
		return f, err
	}
	if f.Speed, err = speeds(ctx, work, each); err != nil {
		return f, err
	}
	f.Restart, err = restarts(ctx, work, lines)
	return f, err
}

func (f figures) print(out io.Writer) {
	fmt.Fprintf(out, "The disk alone: %.0f appends of 128 bytes per second, each with its fsync.\n\n", f.FsyncPerSecond)
	fmt.Fprintf(out, "| callers | core, operations/s | over HTTP, operations/s | p50 | p99 |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range f.Speed {
		fmt.Fprintf(out, "| %d | %.0f | %.0f | %.1f ms | %.1f ms |\n", s.Callers, s.Core, s.HTTP, s.P50, s.P99)
	}
	fmt.Fprintf(out, "\n| restart from | lines | read | time | per million lines |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range f.Restart {
		fmt.Fprintf(out, "| %s | %d | %.0f MB | %.2f s | %.2f s |\n", r.From, r.Lines, r.Megabyte, r.Seconds, r.PerMeg)
	}
}
