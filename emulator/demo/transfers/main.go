// Command transfers shows internal transfers end to end on one machine: it moves money between Funding and
// Trading, kills processes on the way, and checks the two journals.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
)

func main() { command.Main("demo transfers", "", realMain) }

// flags are the command line's flags.
type flags struct {
	demo.TransferOptions
	processes    int
	server, core string
	logs         string
	verbose      bool
}

const usage = `demo transfers moves money between the Funding accounts in Postgres and the
Trading accounts in the trading core's memory, both ways, kills a function process
and the trading core by SIGKILL on the way, and then adds up both journals. Its
exit status is 1 if a single unit is missing or too much.

`

func parse(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("demo transfers", flag.ContinueOnError)
	set.IntVar(&f.Transfers, "transfers", 1000, "the number of transfers")
	set.IntVar(&f.Users, "users", 20, "how many users ask for them")
	set.Uint64Var(&f.Seed, "seed", 1, "the seed of the random transfers")
	set.IntVar(&f.processes, "processes", 3, "how many function processes run side by side")
	set.StringVar(&f.server, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.core, "core", "", "the trading core, a `program` already built; default: it is built now")
	set.StringVar(&f.logs, "logs", "", "write the processes' log to this `file`")
	set.BoolVar(&f.verbose, "verbose", false, "tell what each part does")
	set.Usage = func() {
		fmt.Fprint(set.Output(), usage)
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	switch {
	case set.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q; see --help", set.Arg(0))
	case f.processes < 1 || f.processes > 32:
		return f, fmt.Errorf("--processes %d: want 1 to 32", f.processes)
	case f.Transfers < 10 || f.Transfers > 1_000_000:
		return f, fmt.Errorf("--transfers %d: want 10 to 1000000", f.Transfers)
	case f.Users < 2 || f.Users > 1000:
		return f, fmt.Errorf("--users %d: want 2 to 1000", f.Users)
	}
	return f, nil
}

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	f, err := parse(args)
	if err != nil {
		return err
	}
	s, err := start(ctx, f, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return demo.RunTransfers(ctx, s, f.TransferOptions, out)
}

// sweepEvery makes the rescue find the transfers of a killed process within seconds.
const sweepEvery = 2 * time.Second

func start(ctx context.Context, f flags, out io.Writer) (*stack.Stack, error) {
	log, output, err := command.Logs(slog.LevelError+1, f.verbose, f.logs) // broken connections are expected here
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Starting Postgres, the trading core, Cloud Tasks, the scheduler, the token issuers and %d function processes ...\n", f.processes)
	began := time.Now()
	s, err := stack.Start(ctx, stack.Options{
		Binary: f.server, Core: stack.CoreOptions{Binary: f.core}, Transfers: true, Processes: f.processes, Submitters: 1,
		SweepEvery: sweepEvery, CheckEvery: sweepEvery, Settings: demo.TransferSettings, Output: output, Log: log,
	})
	if err == nil {
		fmt.Fprintf(out, "Up after %s.\n", time.Since(began).Round(time.Millisecond))
	}
	return s, err
}
