package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A backup restored unnoticed has old fencing tokens, whose task names were used. A release by resync
// draws a name epoch for this account. Intents that wait at the release, or are posted after it, then
// end by their own tasks, without a sweep. A create that was stored before PROTECT by a process with
// the old name epoch loses nothing. The database's epoch stays.
func TestAReleasedAccountNeedsNoSweepAfterARestore(t *testing.T) {
	t.Parallel()
	for window, lost := range map[int]int{1: 25, 8: 105} { // a window of one sends one a second
		parallel(t, fmt.Sprintf("window %d", window), func(t *testing.T) {
			folder := t.TempDir()
			b := setup(t, stack.Options{Window: window, Submitters: 1, Processes: 2, BlockTime: 100 * time.Millisecond,
				Settings: map[string]string{crash.Variable: folder}})
			s := b.Submitters()[0]
			b.BackUp(t)
			for i := range lost {
				b.postUntilAnswered(t, worth(s, fmt.Sprintf("lost-%d", i), 5000+i))
			}
			b.await(t, s, txmanager.Confirmed, lost)
			epoch := b.epochOfTheDatabase(t)
			b.useUpNames(t, s, epoch)
			b.PutBack(t)

			held, answered := b.heldUpCreate(t, folder, worth(s, "held up", 4000))
			incident := b.sweptIntoProtect(t, s)
			b.mine(t, 70)
			none := map[string]string{} // the node can have pruned the first of them: see [txmanager.ErrPruned]
			for n := range lost {
				none[fmt.Sprint(n)] = txmanager.NoRequest
			}
			b.released(t, s, "", map[string]any{"incident": incident, "mode": "resync", "count": lost, "reason": "restored", "requests": none})
			b.await(t, s, txmanager.Confirmed, 1) // the intent that waited at the release

			check(t, held.Signal(syscall.SIGCONT))
			if txID := <-answered; txID == "" {
				t.Error("the create that was held up: got no txId")
			}
			token := must(b.Issuer.Token(b.ctx, stack.CallerAccount, stack.PublicAudience))(t)
			status, answer, err := stack.CallWith(b.ctx, token, http.MethodPost, "http://"+held.Addr()+"/api/v1/tx", worth(s, "by the process that was held up", 4001))
			if err != nil || status != http.StatusAccepted {
				t.Fatalf("the process that was held up: got %d %s, %v; want 202", status, answer, err)
			}
			b.await(t, s, txmanager.Confirmed, 2)
			const next = 4
			for i := range next {
				b.postUntilAnswered(t, worth(s, fmt.Sprintf("next-%d", i), 6000+i))
			}
			b.await(t, s, txmanager.Confirmed, 2+next)

			equal(t, "the database's epoch after the release", b.epochOfTheDatabase(t), epoch)
			mined := b.minedWorth(t)
			for wei := int64(4000); wei < 7000; wei++ {
				want := 0
				if wei < 4002 || wei >= 5000 && wei < int64(5000+lost) || wei >= 6000 && wei < 6000+next {
					want = 1
				}
				equal(t, fmt.Sprintf("transactions of %d wei on the chain", wei), mined[wei], want)
			}
		})
	}
}

// useUpNames makes the task of each low token, as a longer use of the account would have.
func (b bench) useUpNames(t *testing.T, s txmanager.Submitter, epoch string) {
	t.Helper()
	maker := tasks.New(tasks.Options{
		Parent:   "projects/" + b.Setting("FENCEPOST_TASKS_PROJECT") + "/locations/" + b.Setting("FENCEPOST_TASKS_LOCATION"),
		Endpoint: b.Tasks.Addr(), QueuePrefix: "fencepost", QueueShards: 1, TargetURL: b.Setting("FENCEPOST_TASKS_TARGET_URL"),
		ServiceAccount: stack.TasksAccount, Audience: stack.InternalAudience, DispatchDeadline: time.Minute,
		Epoch: func(context.Context) (string, error) { return epoch, nil },
	})
	defer maker.Close()
	for token := range int64(200) {
		check(t, maker.EnqueueAdvance(b.ctx, s, token))
	}
}

func (b bench) epochOfTheDatabase(t *testing.T) (epoch string) {
	t.Helper()
	b.until(t, "the database's epoch", func() bool { return b.DB.QueryRow(b.ctx, `select epoch from database_identity`).Scan(&epoch) == nil })
	return epoch
}

// heldUpCreate posts an intent whose process stops after the commit and before it enqueues anything.
// That process gets no other request. Once the process continues, its txId comes by the channel.
func (b bench) heldUpCreate(t *testing.T, folder string, intent map[string]any) (held *processes.Process, txID <-chan string) {
	t.Helper()
	check(t, crash.Arm(folder, "create.committed", 1, crash.Stop))
	answered := make(chan string, 1)
	go func() {
		var body struct{ TxID string }
		_ = poll(b.ctx, func() bool {
			status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", intent)
			return err == nil && status < 300 && json.Unmarshal(answer, &body) == nil
		})
		answered <- body.TxID
	}()
	held = b.paused(t)
	b.forget(held)
	return held, answered
}
