// Command emulator runs the whole house on one machine: Postgres, a chain,
// Cloud Tasks, a scheduler, a token issuer, and function processes behind a URL
// map. With --demo it shows the main job end to end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/nonce"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := realMain(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil && ctx.Err() == nil:
		fmt.Fprintln(os.Stderr, "emulator:", err)
		os.Exit(1)
	case err != nil:
		os.Exit(130) // interrupted
	}
}

// flags are what the command line says.
type flags struct {
	demo, keep, verbose bool
	intents, logs       string
	server, otlp        string
	signer, clef        string
	events              string
	api, control        string
	processes           int
}

func parse(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("emulator", flag.ContinueOnError)
	set.BoolVar(&f.demo, "demo", false, "post intents, kill a function process halfway, and ask the chain what came of it")
	set.BoolVar(&f.keep, "keep", false, "with --demo: leave everything running afterwards")
	set.StringVar(&f.intents, "intents", "", "with --demo: the JSON Lines `file` of intents to post; default: the 200 that come with it")
	set.StringVar(&f.server, "server", "", "the function server, a `program` already built; default: it is built now")
	set.StringVar(&f.logs, "logs", "", "write the functions' log to this `file`")
	set.StringVar(&f.otlp, "otlp", "", "deliver metrics, and a trace of each intent, to the collector at `host:port`, by OTLP over gRPC")
	set.StringVar(&f.signer, "signer", "local", "who has the accounts' keys: `local`, the functions themselves; kms, a Cloud KMS of the emulator's own; remote, a signing service")
	set.StringVar(&f.clef, "clef", "", "with --signer remote: the clef `program` to sign; default: a service of the emulator's own")
	set.StringVar(&f.events, "events", "poll", "who is told what becomes of transactions, as events.mode says: `poll`, nobody; log; mq_outbox, a Pub/Sub of the emulator's own; webhook, a receiver of its own")
	set.StringVar(&f.api, "api", "127.0.0.1:0", "where the public paths listen, as `host:port`")
	set.StringVar(&f.control, "control", "127.0.0.1:0", "where GET /info is served, as `host:port`")
	set.IntVar(&f.processes, "processes", 3, "how many function processes run side by side")
	set.BoolVar(&f.verbose, "verbose", false, "tell what each part does")
	set.Usage = func() {
		fmt.Fprint(set.Output(), "emulator runs the whole house on this machine until Ctrl-C.\n\n")
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

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	f, err := parse(args)
	if err != nil {
		return err
	}
	var intents []demo.Intent
	if f.demo { // before anything is started, and so before anything is sent
		if intents, err = demo.LoadIntents(f.intents, devSubmitters()); err != nil {
			return fmt.Errorf("intents, nothing was sent:\n%w", err)
		}
	}
	receiver, err := startReceiver(f.events)
	if err != nil {
		return err
	}
	if receiver != nil {
		defer func() { err = errors.Join(err, receiver.Close()) }()
	}
	s, err := start(ctx, f, receiver, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	control, err := serveControl(s, f.control)
	if err != nil {
		return err
	}
	defer control.Close()
	if f.demo {
		err := demo.Run(ctx, s, intents, out)
		if err == nil && (receiver != nil || s.PubSub != nil) {
			err = demo.ShowEvents(ctx, s, receiver, out)
		}
		if err != nil || !f.keep {
			nextSteps(out)
			return err
		}
	}
	return wait(ctx, s, control.Addr(), out)
}

func devSubmitters() []nonce.Submitter {
	var names []nonce.Submitter
	for _, a := range devchain.DevAccounts(devAccounts) {
		names = append(names, nonce.NewSubmitter(devchain.DefaultChainID, a.Address))
	}
	return names
}

// devAccounts is how many submitters the emulator registers.
const devAccounts = 10

// telemetrySettings have the functions deliver to a collector, if there is one.
func telemetrySettings(collector string) map[string]string {
	if collector == "" {
		return nil
	}
	return map[string]string{
		"FENCEPOST_TELEMETRY_OTLP_ENDPOINT": collector, "FENCEPOST_TELEMETRY_FLUSH_EVERY": "1s", "FENCEPOST_TELEMETRY_TRACE_ONE_IN": "1",
	}
}

// startReceiver starts who is told of events by webhooks; nil: nobody is.
func startReceiver(mode string) (*demo.Receiver, error) {
	if mode != "webhook" {
		return nil, nil
	}
	return demo.StartReceiver()
}

// settings are the functions' beside the stack's own.
func settings(f flags, receiver *demo.Receiver) map[string]string {
	all := map[string]string{"FENCEPOST_EVENTS_MODE": f.events}
	maps.Copy(all, telemetrySettings(f.otlp))
	if receiver != nil {
		maps.Copy(all, receiver.Settings())
	}
	return all
}

// start builds the function server and starts everything.
func start(ctx context.Context, f flags, receiver *demo.Receiver, out io.Writer) (*stack.Stack, error) {
	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	output, err := logFile(f.logs)
	if err != nil {
		return nil, err
	}
	if f.server == "" {
		fmt.Fprintln(out, "Building the function server (the first time takes minutes: it compiles go-ethereum) ...")
	}
	fmt.Fprintf(out, "Starting Postgres, the chain, Cloud Tasks, the scheduler, the token issuer and %d function processes ...\n", f.processes)
	began := time.Now()
	s, err := stack.Start(ctx, stack.Options{
		Binary: f.server, Processes: f.processes, Submitters: devAccounts, PublicAddr: f.api, Output: output, Log: log,
		Signer: stack.SignerKind(f.signer), Clef: f.clef,
		Settings: settings(f, receiver),
	})
	if err == nil {
		fmt.Fprintf(out, "Up after %s.\n", time.Since(began).Round(time.Millisecond))
	}
	return s, err
}

func logFile(path string) (io.Writer, error) {
	if path == "" {
		return io.Discard, nil
	}
	return os.Create(path)
}

// wait tells how to use what runs, and returns when it shall end.
func wait(ctx context.Context, s *stack.Stack, control string, out io.Writer) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nRunning until Ctrl-C.\n  API      %s\n  RPC      %s\n  Info     curl -s http://%s/info   (tokens, keys, database, process ids)\n\nTry it; then ask for /api/v1/tx/{txId} of what it answers:\n\n%s\n\n",
		info.API, info.RPC, control, info.Curl())
	<-ctx.Done()
	fmt.Fprintln(out, "\nStopping.")
	return nil
}

func nextSteps(out io.Writer) {
	fmt.Fprint(out, `
Where to look next:
  ./scripts/demo --keep          leaves it all running and prints a curl example
  ./scripts/demo --logs FILE     keeps the functions' log: one line for each critical write
  docs/architecture.md           how it works
  docs/choices.md                what was decided, and why
`)
}
