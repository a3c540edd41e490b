package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/local"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/cells"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/nodes"
)

type flags struct {
	stack.Options                        // of what runs; what comes from several flags is added by start
	demo, keep, verbose, keys            bool
	intents, logs, otlp, events, control string
	chains, cells                        int
	settings                             stack.Settings // by --set and the environment
}

const usage = `emulator runs the whole deployment on this machine until Ctrl-C: Postgres, a chain, Cloud Tasks, a
scheduler, a token issuer and the functions. It prints commands to paste into a shell.

  go run ./emulator                           to try the API
  go run ./emulator --transfers               with users, their money, and payouts
  go run ./emulator --window 100              up to 100 transactions of an account in flight
  go run ./emulator --set gasbump.enabled=true --set log.level=debug
  go run ./emulator drill --list              exercises for operators, on a running emulator

`

// groups are the flags by what they are for.
var groups = []command.Group{
	{Title: "What runs", Flags: []string{"transfers", "window", "block-time", "nodes", "chains", "processes", "signer", "clef", "mark", "events", "otlp"}},
	{Title: "Settings, beside the FENCEPOST_ variables of the environment", Flags: []string{"set"}},
	{Title: "Where it listens, and what it shows", Flags: []string{"api", "control", "keys", "logs", "verbose"}},
	{Title: "Programs that are built already", Flags: []string{"server", "core"}},
	{Title: "The demo", Flags: []string{"demo", "keep", "intents", "cells"}},
}

func parse(args, environ []string) (f flags, err error) {
	defer steps.Return(&err)
	f.settings = stack.Settings{}
	set := command.NewFlags("emulator", usage, groups...)
	set.BoolVar(&f.demo, "demo", false, "post intents, kill a function process halfway, and ask the chain what came of it")
	set.BoolVar(&f.keep, "keep", false, "with --demo: leave everything running afterwards")
	set.StringVar(&f.intents, "intents", "", "with --demo: the JSON Lines `file` of intents to post; default: the 200 that come with it")
	set.StringVar(&f.Binary, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.Core.Binary, "core", "", "with --transfers: the trading core, a `program` already built; default: it is built now")
	set.BoolVar(&f.Payouts, "transfers", false, "start a trading core too; users 1 to 3 get tokens and money, and can make transfers and payouts")
	set.IntVar(&f.Window, "window", 0, "how many transactions of one account may be in flight, from 1 to 10000; above 1 sets nonce.strict.enabled=false; default: nonce.maxInFlight, which is 1")
	set.DurationVar(&f.BlockTime, "block-time", time.Second, "the `time` between two blocks; a second chain takes twice as long")
	set.BoolVar(&f.keys, "keys", false, "show the accounts' private keys in GET /info")
	set.StringVar(&f.logs, "logs", "", "write the functions' log to this `file`")
	set.StringVar(&f.otlp, "otlp", "", "deliver metrics, and a trace of each intent, to the collector at `host:port`, by OTLP over gRPC")
	set.StringVar((*string)(&f.Signer), "signer", "local", "the `signer` that has the accounts' keys: local, the functions themselves; kms, the emulator's Cloud KMS; remote, a signing service")
	set.StringVar(&f.Clef, "clef", "", "with --signer remote: the clef `program` to sign; default: the emulator's signing service")
	set.StringVar(&f.events, "events", "", "where events of transactions go (events.mode): poll, nowhere; log; mq_outbox, the emulator's Pub/Sub; webhook, a receiver in the emulator, which prints what it gets; default: poll")
	set.StringVar(&f.PublicAddr, "api", "127.0.0.1:0", "where the public paths listen, as `host:port`")
	set.StringVar(&f.control, "control", "", "where /info, /token and /drill are served, as `host:port`; default: "+local.DefaultControl+", or a free port if that is taken")
	set.IntVar(&f.Processes, "processes", 3, "how many function processes run side by side")
	set.IntVar(&f.Nodes, "nodes", 1, "how many nodes of the chain the functions know; with --demo and more than one, the first stops answering halfway")
	set.IntVar(&f.chains, "chains", 1, "how many chains are served, 1 or 2; with --demo and 2, the intents that come with it are posted on both, by the same keys")
	set.IntVar(&f.cells, "cells", 1, "with --demo: how many deployments run, with a database and keys each, behind one front; one of them is killed, and the others must not feel it; from 2 to 4")
	set.BoolVar(&f.Mark, "mark", false, "keep a mark outside the database, in the emulator's Cloud Storage, which reveals a restored backup")
	set.Var(f.settings, "set", "a setting of the functions, as `NAME=VALUE`, such as gasbump.enabled=true; may be given again")
	set.BoolVar(&f.verbose, "verbose", false, "tell what each part does")
	steps.OK(set.Parse(args))
	f.settings.AddEnvironment(environ)
	steps.OK(command.Check(set, command.Range{Flag: "processes", Value: float64(f.Processes), Min: 1, Max: 32},
		command.Range{Flag: "nodes", Value: float64(f.Nodes), Min: 1, Max: nodes.MaxNodes}, command.Range{Flag: "chains", Value: float64(f.chains), Min: 1, Max: 2}, command.Range{Flag: "cells", Value: float64(f.cells), Min: 1, Max: cells.MaxCells},
		command.Range{Flag: "window", Value: float64(f.Window), Min: 0, Max: 10_000}))
	return f, errors.Join(f.check(), f.checkCells(set))
}

// ofCells are the flags that the demo of cells takes.
var ofCells = []string{"cells", "demo", "server", "processes", "block-time", "logs", "set", "verbose"}

func (f flags) checkCells(set *flag.FlagSet) (err error) {
	if f.cells == 1 {
		return nil
	}
	if !f.demo {
		return errors.New("--cells goes with --demo")
	}
	set.Visit(func(given *flag.Flag) {
		if !slices.Contains(ofCells, given.Name) {
			err = errors.Join(err, fmt.Errorf("--%s does not go with --cells", given.Name))
		}
	})
	return err
}

// check checks the flags with a list of values, and those that need another flag.
func (f flags) check() error {
	switch {
	case !slices.Contains([]stack.SignerKind{stack.SignerLocal, stack.SignerKMS, stack.SignerRemote}, f.Signer):
		return fmt.Errorf("--signer %s: want local, kms or remote", f.Signer)
	case f.BlockTime < 50*time.Millisecond || f.BlockTime > time.Minute:
		return fmt.Errorf("--block-time %s: want 50ms to 1m", f.BlockTime)
	case !slices.Contains([]string{"", "poll", "log", "mq_outbox", "webhook"}, f.events):
		return fmt.Errorf("--events %s: want poll, log, mq_outbox or webhook", f.events)
	case f.Clef != "" && f.Signer != stack.SignerRemote:
		return errors.New("--clef goes with --signer remote")
	case !f.demo && (f.keep || f.intents != ""):
		return errors.New("--keep and --intents go with --demo")
	case f.Core.Binary != "" && !f.Payouts:
		return errors.New("--core goes with --transfers")
	case f.Window > 1 && f.settings["FENCEPOST_NONCE_STRICT_ENABLED"] == "true":
		return errors.New("--window above 1 needs nonce.strict.enabled=false: leave out FENCEPOST_NONCE_STRICT_ENABLED")
	}
	return f.settings.Check()
}

// functionSettings returns the functions' settings beside the stack's. It refuses a setting that contradicts a
// flag.
func (f flags) functionSettings(endpoint *demo.WebhookEndpoint) (map[string]string, error) {
	all := map[string]string{}
	if f.events != "" {
		all["FENCEPOST_EVENTS_MODE"] = f.events
	}
	if f.otlp != "" {
		all[collectorSetting], all["FENCEPOST_TELEMETRY_TRACE_ONE_IN"] = f.otlp, "1"
	}
	if endpoint != nil {
		maps.Copy(all, endpoint.Settings())
	}
	for name, value := range f.settings {
		if of, ok := all[name]; ok && of != value && (strings.HasPrefix(name, "FENCEPOST_EVENTS_") || name == collectorSetting) {
			return nil, fmt.Errorf("%s: --events or --otlp sets it; leave out one of the two", name)
		}
		all[name] = value
	}
	return all, nil
}
