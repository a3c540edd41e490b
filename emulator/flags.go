package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/nodes"
)

// flags are the command line's flags.
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
	set := flag.NewFlagSet("emulator", flag.ContinueOnError)
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
	set.Usage = func() {
		fmt.Fprint(set.Output(), "emulator runs the whole deployment on this machine until Ctrl-C.\n\n")
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q; see --help", set.Arg(0))
	}
	if f.processes < 1 || f.processes > 32 {
		return f, fmt.Errorf("--processes %d: want 1 to 32", f.processes)
	}
	if f.nodes < 1 || f.nodes > nodes.MaxNodes {
		return f, fmt.Errorf("--nodes %d: want 1 to %d", f.nodes, nodes.MaxNodes)
	}
	if f.chains < 1 || f.chains > 2 {
		return f, fmt.Errorf("--chains %d: want 1 or 2", f.chains)
	}
	if !slices.Contains([]string{"local", "kms", "remote"}, f.signer) {
		return f, fmt.Errorf("--signer %s: want local, kms or remote", f.signer)
	}
	if !slices.Contains([]string{"poll", "log", "mq_outbox", "webhook"}, f.events) {
		return f, fmt.Errorf("--events %s: want poll, log, mq_outbox or webhook", f.events)
	}
	if f.clef != "" && f.signer != "remote" {
		return f, errors.New("--clef goes with --signer remote")
	}
	if !f.demo && (f.keep || f.intents != "") {
		return f, errors.New("--keep and --intents go with --demo")
	}
	return f, nil
}
