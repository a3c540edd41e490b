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
	for _, point := range []string{"advance.looked", "advance.signed", "advance.stored", "advance.sending", "advance.sent", "receipt.looked"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			if err := crash.Arm(folder, point, 1, crash.Stop); err != nil {
				t.Fatal(err)
			}
			b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{crash.Variable: folder})})
			s := b.Submitters()[0]
			for i := range 2 {
				b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
			}
			paused := b.paused(t)
			b.forget(paused)
			b.ends(t, map[txmanager.Submitter]int{s: 2})
			if err := paused.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			b.logged(t, "fenced", "lease not released") // or its call had run out of time, so that it cannot write at all
			b.postUntilAnswered(t, transfer(s, "after"))
			b.ends(t, map[txmanager.Submitter]int{s: 3})
			b.wantNoOldToken(t)
		})
	}
}

// paused waits until one of the processes is stopped, and returns it.
func (b bench) paused(t *testing.T) (found *processes.Process) {
	t.Helper()
	err := poll(b.ctx, func() bool {
		at := slices.IndexFunc(b.Processes(), isStopped)
		if at >= 0 {
			found = b.Processes()[at]
		}
		return at >= 0
	})
	if err != nil {
		t.Fatalf("no process was paused: %v", err)
	}
	return found
}

// stopped waits until that process is stopped.
func (b bench) stopped(t *testing.T, p *processes.Process) {
	t.Helper()
	if err := poll(b.ctx, func() bool { return isStopped(p) }); err != nil {
		t.Fatalf("the process was never stopped: %v", err)
	}
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
	if err := poll(b.ctx, func() bool { return slices.ContainsFunc(texts, b.log.has) }); err != nil {
		t.Errorf("the functions never logged any of %q: %v", texts, err)
	}
}

// wantNoOldToken checks that no write under an older token follows one under a newer token. The token
// that create writes is only informative.
func (b bench) wantNoOldToken(t *testing.T) {
	t.Helper()
	var wrong int
	err := b.DB.QueryRow(b.ctx, `
		select count(*)
		  from (select fencing_token, max(fencing_token) over (partition by submitter order by id rows unbounded preceding) as newest
		          from tx_history
		         where from_state is not null) as h
		 where fencing_token < newest`).Scan(&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("writes by an old token after a newer one: got %d, %v; want none", wrong, err)
	}
}

// TX-007: a reorg removes the transaction's block. The list of confirmations is replaced. If the
// transaction comes back in another block, the manager follows it; if it vanished, it is sent again.
func TestTX007Reorg(t *testing.T) {
	t.Parallel()
	for name, vanishes := range map[string]bool{"the transaction comes back": false, "the transaction vanishes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{
				"FENCEPOST_CONFIRMATIONS_REQUIRED": "6", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
			})})
			s := b.Submitters()[0]
			b.Chain.StopMining()
			b.postUntilAnswered(t, transfer(s, "r"))
			b.await(t, s, txmanager.Tracking, 1)
			b.mine(t, 2)
			first := b.includedIn(t, "")
			if err := b.Chain.Reorg(2, nil, nil, nil); err != nil { // three empty blocks instead of two
				t.Fatal(err)
			}
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
			var list string
			if err := b.DB.QueryRow(b.ctx, `select confirmations::text from managed_tx`).Scan(&list); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(list, first) || !strings.Contains(list, second) {
				t.Errorf("confirmations: got %s, want them to begin at %s, without %s", list, second, first)
			}
		})
	}
}

// includedIn waits until the one transaction has a receipt in another block than
// other, and returns the block's hash.
func (b bench) includedIn(t *testing.T, other string) (block string) {
	t.Helper()
	err := poll(b.ctx, func() bool {
		err := b.DB.QueryRow(b.ctx, `select receipt ->> 'blockHash' from managed_tx where receipt is not null`).Scan(&block)
		return err == nil && block != other
	})
	if err != nil {
		t.Fatalf("no receipt in another block than %q: %v", other, err)
	}
	return block
}

// gone waits until the one transaction is PENDING again.
func (b bench) gone(t *testing.T) {
	t.Helper()
	err := poll(b.ctx, func() bool {
		var pending bool
		err := b.DB.QueryRow(b.ctx, `select exists (select from tx_history where state = 'TRACKING' and sub_state = 'PENDING' and reason like '%reorg%')`).Scan(&pending)
		return err == nil && pending
	})
	if err != nil {
		t.Fatalf("the removed receipt was never noticed: %v", err)
	}
}

func (b bench) attempts(t *testing.T) (n int) {
	t.Helper()
	if err := b.DB.QueryRow(b.ctx, `select submit_attempts from managed_tx`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
