package acceptance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// endsWithin is the time that Cloud Run gives a process after SIGTERM.
const endsWithin = 10 * time.Second

// terminate sends SIGTERM and requires the process to exit cleanly.
func (b bench) terminate(t *testing.T, p *processes.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, endsWithin)
	defer cancel()
	check(t, p.Stop(ctx), "after SIGTERM: ")
}

// In a rolling restart under load, without a sweep, each process exits cleanly. Every intent is
// accepted and confirmed once, and no lease has to expire.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 3, Settings: map[string]string{"FENCEPOST_CONFIRMATIONS_REQUIRED": "2"}})
	var (
		posting  sync.WaitGroup
		restarts = make(chan struct{})
		posted   = map[txmanager.Submitter]int{}
		mu       sync.Mutex
	)
	for _, s := range b.Submitters() {
		posting.Go(func() {
			for n := 0; ; n++ {
				b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", n)))
				mu.Lock()
				posted[s] = n + 1
				mu.Unlock()
				b.roomFor(t, s)
				select {
				case <-restarts:
					return
				default:
				}
			}
		})
	}
	for _, s := range b.Submitters() {
		b.await(t, s, txmanager.Confirmed, 1)
	}
	for _, p := range b.Processes() {
		b.terminate(t, p)
	}
	close(restarts)
	posting.Wait()
	for s, n := range posted {
		b.await(t, s, txmanager.Confirmed, n)
		b.wantContiguous(t, s, n)
	}
	for _, line := range []string{"lease not released", "drain ended with requests in flight"} {
		if b.Log.Has(line) {
			t.Errorf("the log has %q", line)
		}
	}
}

// roomFor waits until fewer than 10 of the submitter's intents are open.
func (b bench) roomFor(t *testing.T, s txmanager.Submitter) {
	b.until(t, fmt.Sprintf("too many transactions of %s are on their way", s), func() bool {
		n := b.count(`select count(*) from managed_tx where submitter = $1 and state not in ('CONFIRMED', 'FAILED')`, s)
		return 0 <= n && n < 10
	})
}

// A process that waits for an unresponsive node releases its lease at SIGTERM, so that another
// continues before the lease expires.
func TestAStoppedProcessGivesItsLeaseBack(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1, RPCProxy: true, Settings: map[string]string{"FENCEPOST_LEASE_DURATION": "30s", "FENCEPOST_RPC_TIMEOUT": "20s"}})
	s := b.Submitters()[0]
	b.RPC.SetFaults(rpcproxy.Faults{Hang: 1})
	b.post(t, transfer(s, "r"))
	b.struck(t, rpcproxy.Hang, 1)
	owner := value[string](t, b, `select owner_node from submitter_lease where submitter = $1`, s)
	b.terminate(t, b.Processes()[0])
	if b.count(`select count(*) from submitter_lease where owner_node = $1 and expires_at > clock_timestamp()`, owner) != 0 {
		t.Errorf("lease: %s, which has ended, still holds it", owner)
	}
	b.RPC.SetFaults(rpcproxy.Faults{})
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 1)
}
