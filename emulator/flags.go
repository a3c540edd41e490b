package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/shared/chain/nodes"
)

type flags struct {
	demo, keep, verbose bool
	mark                bool
	intents, logs       string
	server, otlp        string
	signer, clef        string
	events              string
	api, control        string
	processes           int
	nodes, chains       int
	settings            stack.Settings
}

func parse(args []string) (flags, error) {
	f := flags{settings: stack.Settings{}}
	set := command.NewFlags("emulator", "emulator runs the whole deployment on this machine until Ctrl-C.\n\n")
	set.BoolVar(&f.demo, "demo", false, "post intents, kill a function process halfway, and ask the chain what came of it")
	set.BoolVar(&f.keep, "keep", false, "with --demo: leave everything running afterwards")
	set.StringVar(&f.intents, "intents", "", "with --demo: the JSON Lines `file` of intents to post; default: the 200 that come with it")
	set.StringVar(&f.server, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.logs, "logs", "", "write the functions' log to this `file`")
	set.StringVar(&f.otlp, "otlp", "", "deliver metrics, and a trace of each intent, to the collector at `host:port`, by OTLP over gRPC")
	set.StringVar(&f.signer, "signer", "local", "the signer that has the accounts' keys: `local`, the functions themselves; kms, the emulator's Cloud KMS; remote, a signing service")
	set.StringVar(&f.clef, "clef", "", "with --signer remote: the clef `program` to sign; default: the emulator's signing service")
	set.StringVar(&f.events, "events", "poll", "where events of transactions go (events.mode): `poll`, nowhere; log; mq_outbox, the emulator's Pub/Sub; webhook, the emulator's webhook endpoint")
	set.StringVar(&f.api, "api", "127.0.0.1:0", "where the public paths listen, as `host:port`")
	set.StringVar(&f.control, "control", "127.0.0.1:0", "where GET /info is served, as `host:port`")
	set.IntVar(&f.processes, "processes", 3, "how many function processes run side by side")
	set.IntVar(&f.nodes, "nodes", 1, "how many nodes of the chain the functions know; with --demo and more than one, the first stops answering halfway")
	set.IntVar(&f.chains, "chains", 1, "how many chains are served, 1 or 2; with --demo and 2, the intents that come with it are posted on both, by the same keys")
	set.BoolVar(&f.mark, "mark", false, "keep a mark outside the database, in the emulator's Cloud Storage, which reveals a restored backup")
	set.Var(f.settings, "set", "a setting of the functions, as `NAME=VALUE`, such as gasbump.enabled=true; may be given again")
	set.BoolVar(&f.verbose, "verbose", false, "tell what each part does")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	err := command.Check(set, command.Range{Flag: "processes", Value: float64(f.processes), Min: 1, Max: 32},
		command.Range{Flag: "nodes", Value: float64(f.nodes), Min: 1, Max: nodes.MaxNodes}, command.Range{Flag: "chains", Value: float64(f.chains), Min: 1, Max: 2})
	if err != nil {
		return f, err
	}
	return f, f.check()
}

// check checks the flags with a list of values, and those that need another flag.
func (f flags) check() error {
	switch {
	case !slices.Contains([]string{"local", "kms", "remote"}, f.signer):
		return fmt.Errorf("--signer %s: want local, kms or remote", f.signer)
	case !slices.Contains([]string{"poll", "log", "mq_outbox", "webhook"}, f.events):
		return fmt.Errorf("--events %s: want poll, log, mq_outbox or webhook", f.events)
	case f.clef != "" && f.signer != "remote":
		return errors.New("--clef goes with --signer remote")
	case !f.demo && (f.keep || f.intents != ""):
		return errors.New("--keep and --intents go with --demo")
	}
	return nil
}
