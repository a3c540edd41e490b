// Command torture runs an episode that injects every kind of fault at random into a real
// deployment, under a steady load of intents, transfers and payouts. Then it stops the faults,
// waits for everything to end, and checks the chain and the whole history. The seed determines
// the faults and their times.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// errVerdict reports a run with violations, or without the faults that it must have. The details
// have been printed.
var errVerdict = errors.New("FAILED")

func main() { command.Main("torture", "interrupted, no verdict", realMain) }

type flags struct {
	seed       uint64
	minutes    float64
	submitters int
	window     int
	rate       float64
	transfers  float64 // a second; 0: none
	every      time.Duration
	verbose    bool
	json       string
	server     string
	core       string
	only       string
	nodes      int
	restores   int
	set        stack.Settings
}

func parse(args []string) (flags, error) {
	f := flags{set: stack.Settings{}}
	set := command.NewFlags("torture", "torture mixes every fault at random on the real deployment, and then checks the chain and the history.\n\n")
	set.Uint64Var(&f.seed, "seed", rand.Uint64N(1_000_000_000), "a `number` that decides which fault comes when, and how; default: drawn anew")
	set.Float64Var(&f.minutes, "minutes", 5, "how long the faults last, in minutes, a `number`; from 1 on, and 1 more for each restore, each kind must come")
	set.IntVar(&f.submitters, "submitters", 8, "how many submitters there are, a `number`; a foreign signer also uses the keys of the last two, and the payer's")
	set.IntVar(&f.window, "window", 8, "the widest window of a submitter, a `number`; every second one has window 1")
	set.Float64Var(&f.rate, "rate", 5, "how many intents are posted a second, a `number`, as far as the submitters keep up")
	set.Float64Var(&f.transfers, "transfers", 4, "how many transfers are posted a second, a `number`, one in five a payout; 0: none, and no trading core")
	set.DurationVar(&f.every, "every", 1500*time.Millisecond, "the `time` from one fault to the next, on average")
	set.BoolVar(&f.verbose, "verbose", false, "log each fault, and the parts of the stack, to standard error")
	set.StringVar(&f.json, "json", "", "write the figures to this `file` too")
	set.StringVar(&f.server, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.core, "core", "", "the trading core, a `program` already built; default: it is built now")
	set.IntVar(&f.nodes, "nodes", 1, "how many nodes of the chain there are, a `number`; each fault of a node strikes one of them")
	set.IntVar(&f.restores, "restores", 0, "how often the database is lost, and its backup put in its place with the operator following the runbook, a `number`; the program of the deployment reserves nothing then")
	set.Var(f.set, "set", "a setting of the functions over those of a run, as `NAME=VALUE`, such as gasbump.enabled=false; may be given again")
	set.StringVar(&f.only, "only", "", "inject only faults with this `text` in their name")
	set.Lookup("seed").DefValue = "" // --help shows none
	if err := set.Parse(args); err != nil {
		return f, err
	}
	return f, f.check(set)
}

func (f flags) check(set *flag.FlagSet) error {
	err := command.Check(set,
		command.Range{Flag: "minutes", Value: f.minutes, Min: 0.05, Max: 24 * 60},
		command.Range{Flag: "submitters", Value: float64(f.submitters), Min: 3, Max: 100},
		command.Range{Flag: "window", Value: float64(f.window), Min: 1, Max: 1000},
		command.Range{Flag: "nodes", Value: float64(f.nodes), Min: 1, Max: 9},
		command.Range{Flag: "rate", Value: f.rate, Min: 0.1, Max: 1000},
		command.Range{Flag: "restores", Value: float64(f.restores), Max: 9},
	)
	switch {
	case err != nil:
		return err
	case f.transfers != 0 && (f.transfers < 0.1 || f.transfers > 1000):
		return fmt.Errorf("--transfers %v: want 0, or 0.1 to 1000", f.transfers)
	case len(f.kinds()) == 0:
		return fmt.Errorf("--only %q: no fault has that in its name", f.only)
	case f.every < 10*time.Millisecond:
		return fmt.Errorf("--every %v: want at least 10ms", f.every)
	}
	return nil
}

// kinds returns the faults that can come.
func (f flags) kinds() []faults.Fault {
	return slices.DeleteFunc(faults.All(f.transfers > 0, pgcluster.FindClockLibrary() != ""), func(k faults.Fault) bool { return !strings.Contains(k.Name, f.only) })
}

func (f flags) length() time.Duration { return time.Duration(f.minutes * float64(time.Minute)) }

// forEachKind is the shortest run in which each kind of fault must come. Around each restore
// most work stops for about a minute, and faults find no target.
func (f flags) forEachKind() time.Duration { return time.Duration(1+f.restores) * time.Minute }

// command returns the command line that repeats the run.
func (f flags) command() string {
	c := fmt.Sprintf("./scripts/torture --seed %d --minutes %v --submitters %d --window %d --rate %v --transfers %v --every %v",
		f.seed, f.minutes, f.submitters, f.window, f.rate, f.transfers, f.every)
	if f.nodes != 1 {
		c += fmt.Sprintf(" --nodes %d", f.nodes)
	}
	if f.restores > 0 {
		c += fmt.Sprintf(" --restores %d", f.restores)
	}
	for _, name := range slices.Sorted(maps.Keys(f.set)) {
		c += fmt.Sprintf(" --set '%s=%s'", name, f.set[name])
	}
	if f.only != "" {
		c += fmt.Sprintf(" --only '%s'", f.only)
	}
	return c
}

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	return run(ctx, steps.Value(parse(args)), out, nil)
}
