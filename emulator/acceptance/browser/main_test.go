// Package browser proves the operators' console in a real browser. Headless Chromium reads and clicks the pages of a
// whole deployment with real function processes and a real chain. All tests share one deployment and one browser.
// Callers, users, operators, nodes and receivers choose texts that run as scripts where a page does not escape them.
package browser

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	checks "github.com/fencepost/fencepost/shared/check"
)

func TestMain(m *testing.M) {
	if chromium() == "" && !required {
		os.Exit(m.Run()) // each test skips: nothing needs to be built
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's: that a killed process answers nothing is what is tested
	acceptancetest.Main(m, "emulator/acceptance/browser", end, acceptancetest.Server, acceptancetest.Core)
}

// passed counts the tests that have passed in the browser.
var passed atomic.Int64

// end ends the browser and the deployment. It writes the number of passed tests into the file of BROWSER_PASSED, which
// ./scripts/test prints.
func end(all bool) error {
	if file := os.Getenv("BROWSER_PASSED"); file != "" {
		if err := os.WriteFile(file, fmt.Append(nil, passed.Load()), 0o600); err != nil {
			return err
		}
	}
	if !started.Load() {
		return nil
	}
	h, err := shared()
	if err != nil {
		return err
	}
	if !all {
		fmt.Fprintln(os.Stderr, h.Log.End())
	}
	return h.ends.Close()
}

var (
	check = acceptancetest.Check
	poll  = acceptancetest.Poll
	same  = checks.Same
)

func must[T any](v T, err error) func(testing.TB) T { return acceptancetest.Must(v, err) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	checks.Equal(t, what, got, want)
}
