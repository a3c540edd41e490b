package acceptance

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/cells"
)

// The demo of cells in a short form: a cell cannot sign for an account of another one, and the loss of a cell is
// not felt in the other. One account shares no round trip, so that a transaction takes the same number each time.
func TestCellsAreIndependent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := must(cells.Start(ctx, cells.Options{
		Cells: 2, Stack: stack.Options{Binary: acceptancetest.Server.Path, Processes: 1, Submitters: 1, BlockTime: 250 * time.Millisecond, SweepEvery: -1, Settings: demo.CellSettings},
	}))(t)
	t.Cleanup(func() { check(t, c.Close(), "stop the cells") })
	var out bytes.Buffer
	if err := demo.RunCells(ctx, c, demo.CellOptions{Intents: 5, Change: 0.1}, &out); err != nil {
		t.Errorf("got %v, want nil\n%s", err, &out)
	}
}
