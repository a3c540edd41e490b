package attacks

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
)

// attacked starts a stack for t: two submitters, one process, no sweep. It keeps no answers.
func attacked(t testing.TB, o stack.Options) deployment {
	t.Helper()
	o.Processes, o.Submitters, o.SweepEvery, o.BlockTime = 1, 2, -1, time.Second
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if _, benchmark := t.(*testing.B); !benchmark {
		ctx, cancel = context.WithTimeout(ctx, acceptancetest.Within)
		t.Cleanup(cancel)
	}
	return deployment{acceptancetest.StartFor(ctx, t, o), ctx, nil}
}
