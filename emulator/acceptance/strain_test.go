package acceptance

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each process has one connection, and many creates come at once. A create that waits in vain is
// refused and repeated, and everything is carried out once.
func TestConnectionsRunOut(t *testing.T) {
	t.Parallel()
	const n, callers = 40, 20
	b := setup(t, stack.Options{Processes: 2, Window: 20, Settings: withSettings(quick, map[string]string{"FENCEPOST_DATABASE_MAX_CONNS": "1"})})
	var crowd sync.WaitGroup
	for c := range callers {
		crowd.Go(func() {
			for i := c; i < n; i += callers {
				for _, s := range b.Submitters() {
					b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
				}
			}
		})
	}
	crowd.Wait()
	b.ends(t, b.each(n))
	// Two callers' concurrent posts commit in any order. An intent that was answered before another
	// was posted precedes it.
	wrong := b.count(`
select count(*)
  from managed_tx first
  join managed_tx next on next.submitter = first.submitter
   and next.request_id = 'r-' || substr(first.request_id, 3)::int + $1::int
 where next.nonce < first.nonce`, callers)
	equal(t, "intents that overtook one that the same caller had posted before", wrong, 0)
}

// A foreign database transaction holds rows for longer than a statement may run. A cancelled statement
// is assumed neither to have run nor not to have run.
func TestStatementsRunOutOfTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lock, timeout, told string }{
		"the lease, by the time of a statement":    {"select from submitter_lease for update", "STATEMENT", "statement timeout"},
		"the lease, by the time for a lock":        {"select from submitter_lease for update", "LOCK", "lock timeout"},
		"the transactions, by that of a statement": {"lock table managed_tx in exclusive mode", "STATEMENT", "statement timeout"},
		"the cursor, by that of a statement":       {"select from submitter_nonce_cursor for update", "STATEMENT", "statement timeout"},
	} {
		parallel(t, name, func(t *testing.T) {
			times := map[string]string{"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "400ms"}
			if c.timeout == "LOCK" {
				times = map[string]string{"FENCEPOST_DATABASE_LOCK_TIMEOUT": "400ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "300ms"}
			}
			b := setup(t, stack.Options{Window: 2, Settings: withSettings(quick, times)})
			want := b.postAll(t, 1)
			held := must(b.DB.Begin(b.ctx))(t)
			must(held.Exec(b.ctx, c.lock))(t)
			refused := b.postMeanwhile(t, want)
			b.logged(t, c.told)
			check(t, held.Rollback(b.ctx))
			for s := range want {
				b.postUntilAnswered(t, transfer(s, "meanwhile"))
				want[s]++
			}
			if strings.Contains(c.lock, "managed_tx") && !refused {
				t.Error("creates while the table was locked: got none refused")
			}
			b.ends(t, want)
			b.wantNoOldToken(t)
		})
	}
}

// postMeanwhile posts once for each submitter and reports whether one was refused temporarily.
func (b bench) postMeanwhile(t *testing.T, of map[txmanager.Submitter]int) (refused bool) {
	t.Helper()
	for s := range of {
		status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, "meanwhile"))
		if err != nil || status != http.StatusAccepted && status != http.StatusServiceUnavailable {
			t.Errorf("post: got %d %s, %v; want 202 or 503", status, answer, err)
		}
		refused = refused || status == http.StatusServiceUnavailable
	}
	return refused
}
