package functions_test

import (
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
)

// EXECUTED is the answer wherever the intent's own version was mined, also where it
// reverted: a caller who is told CANCELLED posts it again.
func TestAnswerOfACancel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state nonce.State
		sub   nonce.SubState
		want  string
	}{
		{nonce.Queued, "", "PENDING"}, {nonce.InFlight, "", "PENDING"}, {nonce.Submitted, "", "PENDING"},
		{nonce.Tracking, nonce.Included, "PENDING"}, {nonce.Stuck, "", "PENDING"}, {nonce.Protect, "", "PENDING"},
		{nonce.Confirmed, "", "EXECUTED"}, {nonce.Failed, nonce.Reverted, "EXECUTED"},
		{nonce.Failed, nonce.Cancelled, "CANCELLED"}, {nonce.Failed, nonce.Placeholder, "CANCELLED"}, {nonce.Failed, nonce.Rejected, "CANCELLED"}, {nonce.Failed, nonce.Expired, "CANCELLED"},
	} {
		if got := functions.Outcome(store.Decided{State: c.state, SubState: c.sub}); got != c.want {
			t.Errorf("%s/%s: got %s, want %s", c.state, c.sub, got, c.want)
		}
	}
}
