package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A poll whose second may have a used name must meet the polls of other submitters in a later second.
func TestAPollOfALaterSecondMeetsTheOthers(t *testing.T) {
	t.Parallel()
	for due, want := range map[time.Duration]time.Duration{
		-time.Minute:            1050 * time.Millisecond,
		50 * time.Millisecond:   1050 * time.Millisecond,
		1050 * time.Millisecond: 1050 * time.Millisecond,
		2050 * time.Millisecond: 2050 * time.Millisecond,
	} {
		x := txtest.Pending(5)
		x.NextCheckAt = txtest.In(due)
		tn, _, _ := iterationOf(txtest.StateOf(1, 6, x), true, txmanager.SendAccepted)
		tasks := &taskLog{}
		tn.Tasks, tn.Rules.BlockTime = tasks, time.Second
		check.OK(t)(tn.enqueueNext(t.Context(), outcome{released: true}))
		check.Same(t, fmt.Sprintf("a check due in %v", due), tasks.tasks, []string{fmt.Sprintf("receipt in %v", want)})
	}
}

// A session keeps the lease once for a check at a new block. Where a query takes longer than a block,
// the next check is always due: it gets a task.
func TestASessionKeepsTheLeaseOnceForABlock(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(5)
	x.NextCheckAt = txtest.In(-time.Millisecond)
	w := txtest.StateOf(1, 6, x)
	for _, kind := range []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt} {
		tn := invocationBy(&Worker{Service: sessiontest.Service(rulesOf(3), nil)}, session.Session{Kind: kind, State: w, Began: time.Now()})
		for i, want := range []txmanager.LeaseEnd{txmanager.KeepLease, txmanager.ReleaseUnlessRerun} {
			check.Equal(t, fmt.Sprintf("%s, the end of iteration %d", kind, i+1), tn.leaseEndAfter(w), want)
		}
	}
}
