// Command bench measures the cost and speed of transactions on a real stack with a durable Postgres, a
// chain, Cloud Tasks, and function processes. It also measures Postgres and the chain alone. It prints
// the tables of docs/costs.md and writes them as JSON and as points of plots. A function without an error
// as its result ends the bench by package steps.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

func main() {
	command.Main("bench", "interrupted", func(ctx context.Context, args []string, out io.Writer) error {
		if len(args) == 1 && args[0] == loadCommand {
			return loadMain(ctx, os.Stdin, out)
		}
		debug.SetGCPercent(gcPercent)
		return realMain(ctx, args, out)
	})
}

// gcPercent is the collector's target that the functions have too. The chain and the emulators run in
// this process and share the processors with the functions.
const gcPercent = 400

type flags struct {
	names        []string // names of scenarios
	scenarios    []scenario
	runs         int
	transactions int
	clients      int
	settings     stack.Settings
	statements   int
	estimate     bool
	json, points string
	logs         string
	server, core string
	verbose      bool
}

func parse(args []string) (flags, error) {
	f := flags{settings: stack.Settings{}}
	set := command.NewFlags("bench", "bench measures what transactions cost and how fast they are, on a real stack.\n\n")
	set.Func("scenario", "what to measure, a `name` or several with commas; may be given again; default: all that the tables need", func(text string) error {
		f.names = append(f.names, strings.Split(text, ",")...)
		return nil
	})
	set.IntVar(&f.runs, "runs", 3, "how many runs of each, a `number`; the median is printed")
	set.IntVar(&f.transactions, "transactions", 12_000, "how many transactions are posted in a burst, a `number`")
	set.IntVar(&f.clients, "clients", 32, "how many connections post at once, a `number`")
	set.Var(f.settings, "set", "a setting of the functions, as `NAME=VALUE`, such as gasbump.enabled=true; may be given again")
	set.BoolVar(&f.estimate, "estimate", false, "intents do not name their gas, so that it is estimated for each")
	set.IntVar(&f.statements, "statements", 0, "print so many of the statements that cost Postgres most, a `number`; costs a little itself")
	set.StringVar(&f.json, "json", "", "write the figures to this `file` too")
	set.StringVar(&f.points, "points", "", "write the points of the plots into this `folder`, for scripts/plots")
	set.StringVar(&f.logs, "logs", "", "write the functions' own log to this `file`")
	set.StringVar(&f.server, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.core, "core", "", "the trading core, a `program` already built; default: it is built now, where it is needed")
	set.BoolVar(&f.verbose, "verbose", false, "print every run, and what the parts do, on standard error")
	flagsOnly := set.Usage
	set.Usage = func() { flagsOnly(); listScenarios(set.Output()) }
	if err := set.Parse(args); err != nil {
		return f, err
	}
	err := command.Check(set, command.Range{Flag: "runs", Value: float64(f.runs), Min: 1, Max: 100},
		command.Range{Flag: "transactions", Value: float64(f.transactions), Min: 1, Max: 100_000}, command.Range{Flag: "clients", Value: float64(f.clients), Min: 1, Max: 150})
	if err == nil {
		f.scenarios, err = choose(f.names)
	}
	return f, err
}

func listScenarios(out io.Writer) {
	fmt.Fprint(out, "\nScenarios:\n")
	for _, s := range scenarios() {
		fmt.Fprintf(out, "  %-16s %s\n", s.name, s.what)
	}
	fmt.Fprint(out, "The word before a dash stands for all that begin with it; \"all\" for every one.\n")
}

// choose returns the scenarios of those names, in the order of their runs.
func choose(names []string) (chosen []scenario, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(scenarios(), func(s scenario) bool { return s.isNamed(name) }) {
			return nil, fmt.Errorf("--scenario %q: there is none of that name; see --help", name)
		}
	}
	for _, s := range scenarios() {
		if len(names) == 0 && s.usual || slices.ContainsFunc(names, s.isNamed) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	f := steps.Value(parse(args))
	b := steps.Value(newBench(ctx, f, out))
	defer func() { err = errors.Join(err, b.closers.Close()) }()
	measured := b.measure(ctx)
	printTables(out, measured)
	steps.OK(writeJSON(f.json, measured))
	return writePoints(f.points, measured)
}
