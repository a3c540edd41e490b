package acceptance

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// internalFunctions are the functions that tasks call.
var internalFunctions = []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit}

// postAll posts n intents of each submitter, in turn, and returns how many of each should be mined.
func (b bench) postAll(t *testing.T, n int) map[txmanager.Submitter]int {
	t.Helper()
	want := make(map[txmanager.Submitter]int)
	for i := range n {
		for _, s := range b.Submitters() {
			b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
			want[s]++
		}
	}
	return want
}

func (b bench) emptyQueues(t *testing.T) {
	t.Helper()
	for _, kind := range internalFunctions {
		must(b.Tasks.Empty(stack.QueueName(kind)))(t)
	}
}

// delivered waits until no task is left and every copy of a dispatched task has been answered.
func (b bench) delivered(t *testing.T) {
	t.Helper()
	var left, sent, answered int64
	err := poll(b.ctx, func() bool {
		left, sent, answered = 0, 0, 0
		for _, q := range b.Tasks.Stats() {
			left, sent = left+int64(q.Pending), sent+int64(q.Dispatched)
		}
		served := b.URLMap.Stats()
		for _, kind := range internalFunctions {
			f := served[string(kind)]
			answered += f.Invocations + f.Unserved - f.InFlight
		}
		return left == 0 && sent == answered
	})
	if err != nil {
		t.Fatalf("tasks: got %d left, %d sent, %d answered; want none under way: %v", left, sent, answered, err)
	}
}

// inOrder checks that nonces were allocated in the order of the queue.
func (b bench) inOrder(t *testing.T) {
	t.Helper()
	b.wantCount(t, "transactions whose nonce is not their place in the queue", 0, `select count(*) from (
	  select nonce, row_number() over (partition by submitter order by seq) - 1 as place from managed_tx where nonce is not null) as q
	  where nonce <> place`)
}

// Tasks can arrive up to five times at once, late, out of order, repeated, or never, and a queue can
// be purged. That changes only when work is done.
func TestTasksComeManyTimesLateOrNever(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window int
		late   time.Duration
	}{
		"window 1, late": {1, 800 * time.Millisecond}, "window 1, at once": {1, 0},
		"window 5, late": {5, 800 * time.Millisecond}, "window 5, at once": {5, 0},
	} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Processes: 3, Submitters: 4, Window: c.window, Settings: quick})
			storm := cloudtasks.Faults{Copies: 5, Delay: c.late, Drop: 0.3, DropAck: 0.2, DropResponse: 0.2, Seed: 1}
			b.Tasks.SetFaults(storm)
			want := b.postAll(t, 2+c.window)
			b.until(t, "nothing was done, and not all was lost", func() bool { // some work is done, or all tasks are lost
				return b.count(`select count(*) from managed_tx where state = 'CONFIRMED'`) > 0 ||
					b.count(`select count(*) from managed_tx where coalesce(next_check_at, created_at) > clock_timestamp() - interval '2 s'`) == 0
			})
			b.emptyQueues(t)
			storm.Drop = 0 // the sweep's own tasks have one name a minute
			b.Tasks.SetFaults(storm)
			b.finish(t)
			b.Tasks.SetFaults(noFaults)
			b.delivered(t)
			b.ends(t, want)
			b.inOrder(t)
			b.wantNoOldToken(t)
			for queue, q := range b.Tasks.Stats() {
				if q.Dispatched <= q.Created && queue == stack.QueueName(txmanager.KindAdvance) {
					t.Errorf("advance tasks: got %d made and %d sent, want more sent than made", q.Created, q.Dispatched)
				}
			}
		})
	}
}

// An intent is accepted while Cloud Tasks is unavailable, and the sweep continues it.
func TestCloudTasksOutOfReachAtCreate(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: quick})
	b.Tasks.SetFaults(cloudtasks.Faults{Unavailable: true})
	for _, s := range b.Submitters() {
		b.wantPost(t, "create without Cloud Tasks", transfer(s, "safe"), http.StatusAccepted)
	}
	b.overdue(t, 2)
	for queue, q := range b.Tasks.Stats() {
		if q.Created > 0 {
			t.Errorf("tasks made in %s: got %d, want none", queue, q.Created)
		}
	}
	b.Tasks.SetFaults(noFaults)
	check(t, b.RunSweep(b.ctx))
	b.ends(t, b.each(1))
}

// If Cloud Tasks becomes unavailable between two steps, the task of the last step is retried until it
// can enqueue the next.
func TestCloudTasksGoesAwayBetweenSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{"FENCEPOST_CONFIRMATIONS_REQUIRED": "8"})})
	s := b.Submitters()[0]
	b.Chain.StopMining() // the intent cannot end before the next step
	b.post(t, transfer(s, "r"))
	b.await(t, s, txmanager.Tracking, 1)
	b.Tasks.SetFaults(cloudtasks.Faults{Unavailable: true})
	b.logged(t, "enqueue receipt", "enqueue confirm")
	b.Tasks.SetFaults(noFaults)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1) // without a sweep: nothing was lost
	b.delivered(t)
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}
