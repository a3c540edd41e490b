package acceptance

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// One process per function, as deployed: none serves another's path, and the intents still end.
func TestOneProcessPerFunction(t *testing.T) {
	t.Parallel()
	const n = 3
	b := setup(t, stack.Options{Split: true, Processes: 1})
	equal(t, "processes (one for each of 10 functions)", len(b.Processes()), 10)
	s := b.Submitters()[0]
	b.postMany(t, s, n)
	b.await(t, s, txmanager.Confirmed, n)
	b.wantContiguous(t, s, n)
	for _, f := range []string{"create", "advance", "receipt", "admin"} {
		if b.Costs.Of(f).Invocations == 0 {
			t.Errorf("invocations of %s: got none", f)
		}
	}
}

// The sweep finds the work of lost tasks: an intent whose advance never arrived, and a transaction in
// flight whose poll is lost.
func TestSweepRestoresProgress(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: map[string]string{"FENCEPOST_SWEEP_GRACE": "2s"}})
	inFlight, unheard := b.Submitters()[0], b.Submitters()[1]
	b.inFlight(t, transfer(inFlight, "in flight"))
	b.Tasks.SetFaults(dropEverything)
	b.post(t, transfer(unheard, "unheard"))
	b.emptyQueues(t)
	b.Tasks.SetFaults(noFaults)
	b.Chain.StartMining()
	b.overdue(t, 2)
	check(t, b.RunSweep(b.ctx))
	for _, s := range b.Submitters() {
		b.await(t, s, txmanager.Confirmed, 1)
		b.wantContiguous(t, s, 1)
	}
}

// overdue waits until n transactions are overdue by the grace period.
func (b bench) overdue(t *testing.T, n int) {
	t.Helper()
	b.until(t, fmt.Sprintf("overdue transactions never became %d", n), func() bool {
		return b.count(`select count(*) from managed_tx where coalesce(next_check_at, created_at) < clock_timestamp() - interval '2 s'`) >= n
	})
}

var (
	dropEverything = cloudtasks.Faults{Drop: 1}
	noFaults       = cloudtasks.Faults{}
)
