// Command transfers shows internal transfers end to end on one machine: it moves money between Funding and
// Trading, kills processes on the way, and checks the two journals.
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
	"github.com/fencepost/fencepost/emulator/local"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

func main() { command.Main("demo transfers", "", realMain) }

type flags struct {
	demo.TransferOptions
	processes    int
	server, core string
	logs         string
	verbose      bool
	keep         bool
	settings     stack.Settings
}

const usage = `demo transfers moves money between the Funding accounts in Postgres and the
Trading accounts in the trading core's memory, both ways, kills a function process
and the trading core by SIGKILL on the way, and then adds up both journals. Its
exit status is 1 if a single unit is missing or too much. It also takes the
FENCEPOST_ variables of the environment.

`

func parse(args, environ []string) (f flags, err error) {
	defer steps.Return(&err)
	f.settings = stack.Settings{}
	set := command.NewFlags("demo transfers", usage)
	set.IntVar(&f.Transfers, "transfers", 1000, "the number of transfers")
	set.IntVar(&f.Users, "users", 20, "how many users ask for them")
	set.Uint64Var(&f.Seed, "seed", 1, "the seed of the random transfers")
	set.IntVar(&f.processes, "processes", 3, "how many function processes run side by side")
	set.StringVar(&f.server, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.core, "core", "", "the trading core, a `program` already built; default: it is built now")
	set.StringVar(&f.logs, "logs", "", "write the processes' log to this `file`")
	set.BoolVar(&f.keep, "keep", false, "leave everything running afterwards, and print commands to paste")
	set.Var(f.settings, "set", "a setting of the functions, as `NAME=VALUE`, such as transfer.limits.perSecond=5; may be given again")
	set.BoolVar(&f.verbose, "verbose", false, "tell what each part does")
	steps.OK(set.Parse(args))
	f.settings.AddEnvironment(environ)
	if err := f.settings.Check(); err != nil {
		return f, fmt.Errorf("%w\n(other flags are those of go run ./emulator --transfers)", err)
	}
	return f, command.Check(set, command.Range{Flag: "processes", Value: float64(f.processes), Min: 1, Max: 32},
		command.Range{Flag: "transfers", Value: float64(f.Transfers), Min: 10, Max: 1_000_000}, command.Range{Flag: "users", Value: float64(f.Users), Min: 2, Max: 1000})
}

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	f := steps.Value(parse(args, os.Environ()))
	s := start(ctx, f, out)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := demo.RunTransfers(ctx, s, f.TransferOptions, out); err != nil || !f.keep {
		return err
	}
	return local.Wait(ctx, s, local.Options{Users: f.Users}, out)
}

// settingsOf are the functions' settings: those given over the demo's own.
func settingsOf(f flags) map[string]string {
	all := maps.Clone(demo.TransferSettings)
	maps.Copy(all, f.settings)
	return all
}

// sweepEvery makes the rescue find the transfers of a killed process within seconds.
const sweepEvery = 2 * time.Second

func start(ctx context.Context, f flags, out io.Writer) *stack.Stack {
	log, output := command.Logs(slog.LevelError+1, f.verbose, f.logs) // broken connections are expected here
	fmt.Fprintf(out, "Starting Postgres, the trading core, Cloud Tasks, the scheduler, the token issuers and %d function processes ...\n", f.processes)
	began := time.Now()
	s := steps.Value(stack.Start(ctx, stack.Options{
		Binary: f.server, Core: stack.CoreOptions{Binary: f.core}, Transfers: true, Processes: f.processes, Submitters: 1,
		SweepEvery: sweepEvery, CheckEvery: sweepEvery, RPCProxy: true, Settings: settingsOf(f), Output: output, Progress: out, Log: log,
	}))
	fmt.Fprintf(out, "Up after %s.\n", time.Since(began).Round(time.Millisecond))
	return s
}
