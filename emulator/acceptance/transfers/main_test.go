// Package transfers proves the promises of internal transfers end to end: real function processes
// behind a URL map, real Postgres, and a real trading core. The network between them loses, delays and
// repeats packets. Tests have the names that the specification gives them.
//
// Most tests share one deployment, each with separate users, and finish as every episode does: see
// [user.end]. Tests that halt all users, or kill the core, have a separate deployment.
package transfers

import (
	"cmp"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	checks "github.com/fencepost/fencepost/shared/check"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's: that a killed process answers nothing is what is tested
	acceptancetest.Main(m, "emulator/acceptance/transfers", shared.End, acceptancetest.Server, acceptancetest.Core)
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

// deployment is a running stack with a trading core.
type deployment struct{ *acceptancetest.Deployment }

func options(o stack.Options) stack.Options {
	o.Transfers, o.Submitters, o.Processes = true, 1, cmp.Or(o.Processes, 2)
	o.Settings = acceptancetest.Settings(acceptancetest.QuickTransfers, o.Settings)
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

// own returns a deployment for t alone, where only the test runs sweeps and checks.
func own(t *testing.T, o stack.Options) *deployment {
	t.Helper()
	o.SweepEvery, o.CheckEvery = cmp.Or(o.SweepEvery, -1), cmp.Or(o.CheckEvery, -1)
	return &deployment{acceptancetest.StartFor(t.Context(), t, options(o))}
}

// wantLogged waits for such a line, since the log is a little behind the answers.
func (h *deployment) wantLogged(t *testing.T, texts ...string) (found []string) {
	t.Helper()
	poll(t, "a line with "+strings.Join(texts, " and "), func() bool {
		found = h.Log.Lines(texts...)
		return len(found) > 0
	})
	return found
}
