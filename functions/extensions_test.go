package functions_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// waits is a business' code that leaves every STUCK transaction to an operator.
type waits struct{}

func (waits) Resolve(txmanager.Tx) (txmanager.Action, string) { return txmanager.ActionWait, "" }

// Every chain's worker calls the code of Extensions.Stuck.
func TestExtensionsReachTheWorkers(t *testing.T) {
	t.Parallel()
	h := build(t)
	c, err := config.Load(h.settings())
	if err != nil {
		t.Fatal(err)
	}
	app, err := functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", functions.Extensions{Stuck: waits{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close(context.WithoutCancel(t.Context())) })
	all := app.Resolutions()
	if len(all) == 0 {
		t.Fatal("workers: got none")
	}
	for _, r := range all {
		if r != (waits{}) {
			t.Errorf("a worker's StuckResolution: got %v, want the one given", r)
		}
	}
}
