package transactions

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The answer is EXECUTED if the intent's own version was mined, even if it reverted. A caller that
// read CANCELLED would post the intent again.
func TestAnswerOfACancel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state txmanager.State
		sub   txmanager.SubState
		want  string
	}{
		{txmanager.Queued, "", "PENDING"}, {txmanager.InFlight, "", "PENDING"}, {txmanager.Submitted, "", "PENDING"},
		{txmanager.Tracking, txmanager.Included, "PENDING"}, {txmanager.Stuck, "", "PENDING"}, {txmanager.Protect, "", "PENDING"},
		{txmanager.Confirmed, "", "EXECUTED"}, {txmanager.Failed, txmanager.Reverted, "EXECUTED"},
		{txmanager.Failed, txmanager.Cancelled, "CANCELLED"}, {txmanager.Failed, txmanager.Placeholder, "CANCELLED"}, {txmanager.Failed, txmanager.Rejected, "CANCELLED"}, {txmanager.Failed, txmanager.Expired, "CANCELLED"},
	} {
		check.Equal(t, fmt.Sprintf("%s/%s", c.state, c.sub), outcome(store.DecisionResult{State: c.state, SubState: c.sub}), c.want)
	}
}
