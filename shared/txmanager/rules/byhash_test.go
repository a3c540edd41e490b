package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A request that ended by an operator's statement says so.
func TestAStatementIsNoReceipt(t *testing.T) {
	t.Parallel()
	x := EndRecorded(txtest.Pending(3), txmanager.Recorded{Nonce: 3})
	if x.State != txmanager.Confirmed || x.Sub != txmanager.RecordedOnChain || x.Receipt != nil || x.LastError != txmanager.StatedAsExecuted {
		t.Errorf("got %+v, want it CONFIRMED/RECORDED on an operator's statement", x)
	}
}
