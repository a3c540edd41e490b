// Command emulator runs the whole deployment on one machine: Postgres, a chain, Cloud Tasks, a scheduler, a
// token issuer, and function processes behind a URL map. With --demo it shows the main use end to end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/local"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func main() { command.Main("emulator", "", realMain) }

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	if len(args) > 0 && args[0] == "drill" {
		return local.RunDrill(ctx, args[1:], out)
	}
	f := steps.Value(parse(args, os.Environ()))
	if f.cells > 1 {
		return runCells(ctx, f, out)
	}
	intents, err := loadIntents(f) // an invalid file is an error before anything is started
	if err != nil {
		return fmt.Errorf("intents, nothing was sent:\n%w", err)
	}
	var endpoint *demo.WebhookEndpoint // nil: events are not delivered by webhook
	if f.events == "webhook" {
		endpoint = steps.Value(demo.StartWebhookEndpoint())
		defer func() { err = errors.Join(err, endpoint.Close()) }()
	}
	s := start(ctx, f, endpoint, out)
	defer func() { err = errors.Join(err, s.Close()) }()
	if f.demo {
		if err := runDemo(ctx, s, intents, endpoint, out); err != nil || !f.keep {
			nextSteps(out)
			return err
		}
	}
	o := local.Options{Control: f.control, Keys: f.keys, Events: endpoint}
	if f.Payouts {
		o.Users = steps.Value(local.OpenAccounts(ctx, s))
	}
	return local.Wait(ctx, s, o, out)
}

// loadIntents returns the demo's intents. Those that come with it are posted on every chain.
func loadIntents(f flags) ([]demo.Intent, error) {
	if !f.demo {
		return nil, nil
	}
	intents, err := demo.LoadIntents(f.intents, devSubmitters(f.chains))
	if f.chains > 1 && f.intents == "" {
		intents = append(intents, demo.OnChain(intents, stack.SecondChainID)...)
	}
	return intents, err
}

func runDemo(ctx context.Context, s *stack.Stack, intents []demo.Intent, endpoint *demo.WebhookEndpoint, out io.Writer) error {
	err := demo.Run(ctx, s, intents, out)
	if err == nil && (endpoint != nil || s.PubSub != nil) {
		err = demo.ShowEvents(ctx, s, endpoint, out)
	}
	return err
}

// devSubmitters returns the accounts that will be registered on each chain.
func devSubmitters(chains int) []txmanager.Submitter {
	var names []txmanager.Submitter
	for _, id := range []uint64{devchain.DefaultChainID, stack.SecondChainID}[:chains] {
		for _, a := range devchain.DevAccounts(devAccounts) {
			names = append(names, eip155.NewSubmitter(id, a.Address))
		}
	}
	return names
}

const devAccounts = 10

const collectorSetting = "FENCEPOST_TELEMETRY_OTLP_ENDPOINT"

// start builds the function server and starts the stack.
func start(ctx context.Context, f flags, endpoint *demo.WebhookEndpoint, out io.Writer) *stack.Stack {
	log, output := command.Logs(slog.LevelWarn, f.verbose, f.logs)
	o := f.Options
	o.Settings = steps.Value(f.functionSettings(endpoint))
	o.Output, o.Log, o.Progress = output, log, out
	o.Submitters, o.TwoChains, o.RPCProxy, o.Console = devAccounts, f.chains > 1, true, true
	fmt.Fprintf(out, "Starting Postgres, the chain, Cloud Tasks, the scheduler, the token issuer and %d function processes ...\n", o.Processes)
	began := time.Now()
	s := steps.Value(stack.Start(ctx, o))
	fmt.Fprintf(out, "Up after %s.\n", time.Since(began).Round(time.Millisecond))
	return s
}

func nextSteps(out io.Writer) {
	fmt.Fprint(out, `
Where to look next:
  ./scripts/demo --keep          leaves it all running and prints commands to paste
  ./scripts/demo --logs FILE     keeps the functions' log: one line for each critical write
  docs/architecture.md           how it works
  docs/guarantees.md             what it promises, and what not
`)
}
