package acceptance

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// TX-005: A is paused beyond its lease, and B takes over and finishes. When A resumes, each of its
// writes is fenced, and it sends only bytes that were stored under the fence.
func TestTX005PausedOwner(t *testing.T) {
	t.Parallel()
	for point, window := range map[string]int{
		"advance.looked": 1, "advance.signed": 1, "advance.stored": 2, "advance.sending": 2, "advance.sent": 2, "receipt.looked": 1,
	} {
		parallel(t, point, func(t *testing.T) {
			folder := t.TempDir()
			check(t, crash.Arm(folder, point, 1, crash.Stop))
			b := setup(t, stack.Options{Processes: 3, Window: window, Settings: withSettings(quick, map[string]string{crash.Variable: folder})})
			s := b.Submitters()[0]
			b.postMany(t, s, 2)
			paused := b.paused(t)
			b.forget(paused)
			b.ends(t, map[txmanager.Submitter]int{s: 2})
			check(t, paused.Signal(syscall.SIGCONT))
			b.logged(t, "fenced", "lease not released") // or its call had run out of time, so that it cannot write at all
			b.postUntilAnswered(t, transfer(s, "after"))
			b.ends(t, map[txmanager.Submitter]int{s: 3})
			b.wantNoOldToken(t)
		})
	}
}

// With a window of one, A is paused after the release and before the send. B sends the stored bytes and
// finishes. When A resumes, its lease would have ended, so it sends nothing.
func TestTX005PausedAfterTheRelease(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check(t, crash.Arm(folder, "advance.unsent", 1, crash.Stop))
	b := setup(t, stack.Options{Processes: 3, RPCProxy: true, Settings: withSettings(quick, map[string]string{crash.Variable: folder, "CLOUD_RUN_TIMEOUT_SECONDS": "900"})})
	s := b.Submitters()[0]
	b.postMany(t, s, 2)
	paused := b.paused(t)
	b.forget(paused)
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	sent := b.RPC.Calls("eth_sendRawTransaction")
	check(t, paused.Signal(syscall.SIGCONT))
	b.postUntilAnswered(t, transfer(s, "after"))
	b.ends(t, map[txmanager.Submitter]int{s: 3})
	equal(t, "sends after the paused process resumed, of the transaction posted then", b.RPC.Calls("eth_sendRawTransaction")-sent, 1)
	b.wantNoOldToken(t)
	b.inOrder(t)
}

// paused waits until one of the processes is stopped, and returns it.
func (b bench) paused(t *testing.T) (found *processes.Process) {
	t.Helper()
	b.until(t, "no process was paused", func() bool {
		at := slices.IndexFunc(b.Processes(), isStopped)
		if at >= 0 {
			found = b.Processes()[at]
		}
		return at >= 0
	})
	return found
}

// stopped waits until that process is stopped.
func (b bench) stopped(t *testing.T, p *processes.Process) {
	t.Helper()
	b.until(t, "the process was never stopped", func() bool { return isStopped(p) })
}

func isStopped(p *processes.Process) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "T")
}

// forget removes a process from every service, as a failed health check would.
func (b bench) forget(p *processes.Process) {
	for service := range b.URLMap.Stats() {
		b.URLMap.Remove(service, p.Addr())
	}
}

// logged waits until the functions' log has one of the texts.
func (b bench) logged(t *testing.T, texts ...string) {
	t.Helper()
	b.until(t, fmt.Sprintf("the functions never logged any of %q", texts), func() bool { return slices.ContainsFunc(texts, b.Log.Has) })
}

// wantNoOldToken checks that no write under an older token follows one under a newer token. The token
// that create writes is only informative.
func (b bench) wantNoOldToken(t *testing.T) {
	t.Helper()
	b.wantCount(t, "writes by an old token after a newer one", 0, `
		select count(*)
		  from (select fencing_token, max(fencing_token) over (partition by submitter order by id rows unbounded preceding) as newest
		          from tx_history_full
		         where from_state is not null) as h
		 where fencing_token < newest`)
}

// TX-007: a reorg removes the transaction's block. The list of confirmations is replaced. If the
// transaction comes back in another block, the manager follows it; if it vanished, it is sent again.
func TestTX007Reorg(t *testing.T) {
	t.Parallel()
	for name, vanishes := range map[string]bool{"the transaction comes back": false, "the transaction vanishes": true} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{
				"FENCEPOST_CONFIRMATIONS_REQUIRED": "6", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
			})})
			s := b.Submitters()[0]
			b.inFlight(t, transfer(s, "r"))
			b.mine(t, 2)
			first := b.includedIn(t, "")
			check(t, b.Chain.Reorg(2, nil, nil, nil)) // three empty blocks instead of two
			if vanishes {
				b.Chain.DropPool()
			} else {
				b.mine(t, 1)
			}
			sent := b.attempts(t)
			if vanishes {
				b.gone(t)
			}
			b.Chain.StartMining()
			second := b.includedIn(t, first)
			b.await(t, s, txmanager.Confirmed, 1)
			b.wantContiguous(t, s, 1)
			if vanishes && b.attempts(t) < 1 {
				t.Errorf("attempts: got %d after %d, want it sent again", b.attempts(t), sent)
			}
			list := value[string](t, b, `select confirmations::text from managed_tx`)
			if strings.Contains(list, first) || !strings.Contains(list, second) {
				t.Errorf("confirmations: got %s, want them to begin at %s, without %s", list, second, first)
			}
		})
	}
}

// includedIn waits for a receipt in another block than other, and returns its hash.
func (b bench) includedIn(t *testing.T, other string) (block string) {
	t.Helper()
	b.until(t, fmt.Sprintf("no receipt in another block than %q", other), func() bool {
		err := b.DB.QueryRow(b.ctx, `select receipt ->> 'blockHash' from managed_tx where receipt is not null`).Scan(&block)
		return err == nil && block != other
	})
	return block
}

// gone waits until the one transaction is PENDING again.
func (b bench) gone(t *testing.T) {
	t.Helper()
	b.until(t, "the removed receipt was never noticed", func() bool {
		return b.count(`select count(*) from tx_history where state = 'TRACKING' and sub_state = 'PENDING' and reason like '%reorg%'`) > 0
	})
}

func (b bench) attempts(t *testing.T) int {
	t.Helper()
	return value[int](t, b, `select submit_attempts from managed_tx`)
}
