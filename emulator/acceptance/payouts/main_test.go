// Package payouts proves the promises of payouts across a whole deployment: real function processes,
// real Postgres, a real chain, and a payer's key that is really used. It reads the money's movements
// from the chain, block by block, and from Funding's journal, and compares the deployment's own
// answers with them.
package payouts

import (
	"cmp"
	"log/slog"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	checks "github.com/fencepost/fencepost/shared/check"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's: that a killed process answers nothing is what is tested
	acceptancetest.Main(m, "emulator/acceptance/payouts", shared.End, acceptancetest.Server, acceptancetest.Core)
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
var quick = acceptancetest.Settings(acceptancetest.Quick, acceptancetest.QuickTransfers, map[string]string{
	"FENCEPOST_CONFIRMATIONS_REQUIRED": "3", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s", "FENCEPOST_TRANSFER_PAYOUT_FINALITY": "40s",
})

func options(o stack.Options) stack.Options {
	o.Payouts, o.Submitters, o.Processes, o.Window = true, max(o.Submitters, 1), 2, 8
	o.BlockTime = cmp.Or(o.BlockTime, 200*time.Millisecond)
	o.Settings = acceptancetest.Settings(quick, o.Settings)
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
	acceptancetest.AtEnd(t, func() { check(t, h.Verify(settled)) })
	return h
}

// unchecked returns a deployment without the final check, which would report what the test has done:
// a restore leaves a halt.
func unchecked(t *testing.T, o stack.Options) *deployment {
	t.Helper()
	o.SweepEvery, o.CheckEvery = -1, -1
	return &deployment{acceptancetest.StartFor(t.Context(), t, options(o))}
}
