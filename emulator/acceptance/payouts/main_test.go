// Package payouts proves the promises of payouts across a whole deployment: real function processes,
// real Postgres, a real chain, and a payer's key that is really used. It reads the money's movements
// from the chain, block by block, and from Funding's journal, and compares the deployment's own
// answers with them.
package payouts

import (
	"cmp"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	checks "github.com/fencepost/fencepost/shared/check"
)

// server and core are the programs, built once for all tests.
var server, core string

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's: that a killed process answers nothing is what is tested
	acceptancetest.Main(m, "emulator/acceptance/payouts", shared.End,
		acceptancetest.Program{Path: &server, Build: stack.Build}, acceptancetest.Program{Path: &core, Build: ubscore.Build})
}

var (
	check    = acceptancetest.Check
	poll     = acceptancetest.Poll
	parallel = acceptancetest.Parallel
	same     = checks.Same
	says     = acceptancetest.Says
	died     = acceptancetest.Died
)

func must[T any](v T, err error) func(testing.TB) T { return acceptancetest.Must(v, err) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	checks.Equal(t, what, got, want)
}

// deployment is a running stack with payouts.
type deployment struct{ *acceptancetest.Deployment }

// quick makes the sweep find lost work within seconds, and a payment final within a second.
var quick = map[string]string{
	"FENCEPOST_LEASE_DURATION": "2s", "FENCEPOST_LEASE_RENEW_INTERVAL": "900ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE": "100ms",
	"FENCEPOST_DATABASE_LOCK_TIMEOUT": "1500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "500ms",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "1800ms", "FENCEPOST_RPC_TIMEOUT": "2s", "FENCEPOST_RESUBMIT_INTERVAL": "1s",
	"FENCEPOST_SWEEP_GRACE": "2s", "FENCEPOST_CONFIRMATIONS_REQUIRED": "3", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "2s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "1s", "FENCEPOST_DATABASE_MAX_CONNS": "8",
	"FENCEPOST_TRANSFER_PAYOUT_FINALITY": "40s",
}

func options(o stack.Options) stack.Options {
	o.Binary, o.Core.Binary, o.Payouts = server, core, true
	o.Submitters = max(o.Submitters, 1)
	o.Processes, o.Window = 2, 8
	o.BlockTime = cmp.Or(o.BlockTime, 200*time.Millisecond)
	settings := maps.Clone(quick)
	maps.Copy(settings, o.Settings)
	o.Settings = settings
	return o
}

// shared is the deployment of all tests that disturb no other test. It is swept each second.
var shared = acceptancetest.Shared{Options: func() stack.Options {
	return options(stack.Options{SweepEvery: time.Second, CheckEvery: time.Second})
}}

// setup returns the shared deployment.
func setup(t *testing.T) *deployment {
	t.Helper()
	return &deployment{shared.Get(t)}
}

// own returns a deployment for t alone, where only the test runs sweeps. It is checked when t has
// passed; settled means that everything has ended by then.
func own(t *testing.T, settled bool, o stack.Options) *deployment {
	t.Helper()
	h := unchecked(t, o)
	t.Cleanup(func() {
		if !t.Failed() {
			check(t, h.Verify(settled))
		}
	})
	return h
}

// unchecked returns a deployment without the final check, which would report what the test has done:
// a restore leaves a halt.
func unchecked(t *testing.T, o stack.Options) *deployment {
	t.Helper()
	o.SweepEvery, o.CheckEvery = -1, -1
	return &deployment{acceptancetest.StartFor(t.Context(), t, options(o))}
}
