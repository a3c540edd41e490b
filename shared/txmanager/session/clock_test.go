package session_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A state from the store has a running clock, and not the standing one of most tests.
func TestClockOfALoadedStateRuns(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, txtest.Alice, 8)
	taken := check.Value(db.Acquire(t.Context(), txtest.Alice, "node", true))(t)
	next := check.Value(db.BeginIteration(t.Context(), taken.State.Lease, true))(t)
	check.Equal(t, "time passes after the lease was acquired", taken.State.DatabaseTime().After(taken.State.Now), true)
	check.Equal(t, "time passes after an iteration began", next.DatabaseTime().After(next.Now), true)
}
