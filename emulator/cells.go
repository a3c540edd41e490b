package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/cells"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// The size of the demo of cells, which takes about a minute.
const (
	cellAccounts = 5
	cellIntents  = 10
)

// runCells shows several cells, and the loss of one.
func runCells(ctx context.Context, f flags, out io.Writer) (err error) {
	defer steps.Return(&err)
	log, output := command.Logs(slog.LevelError+1, f.verbose, f.logs) // the lost cell's requests fail
	if f.Binary == "" {
		folder := steps.Value(os.MkdirTemp("", "fencepost-cells-"))
		defer func() { _ = os.RemoveAll(folder) }()
		fmt.Fprintln(out, "Building the function server ...")
		f.Binary = steps.Value(stack.Build(ctx, folder))
	}
	settings := maps.Clone(demo.CellSettings)
	maps.Copy(settings, f.settings)
	fmt.Fprintf(out, "Starting %d cells on one chain. Each has its own Postgres, queues, scheduler, keys and %d function processes ...\n", f.cells, f.Processes)
	began := time.Now()
	c := steps.Value(cells.Start(ctx, cells.Options{
		Cells: f.cells, Durable: true,
		Stack: stack.Options{
			Binary: f.Binary, Processes: f.Processes, Submitters: cellAccounts, BlockTime: f.BlockTime, Settings: settings, Output: output, Log: log,
		},
		Started: func(c *cells.Cell) {
			fmt.Fprintf(out, "  cell %s: %d accounts, up after %s\n", c.Name, len(c.Submitters()), time.Since(began).Round(time.Millisecond))
		},
	}))
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, cell := range c.All() {
		fmt.Fprintf(out, "  cell %s at %s\n", cell.Name, c.URL(cell))
	}
	return demo.RunCells(ctx, c, demo.CellOptions{Intents: cellIntents, Change: 0.1}, out)
}
