package tasks_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

const (
	one   = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	other = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
)

// named returns the name of a transfer's task: its digest, the epoch, and a suffix.
func named(reqID, epoch, suffix string) string {
	sum := sha256.Sum256([]byte(reqID))
	return hex.EncodeToString(sum[:16]) + "-" + epoch + "-" + suffix
}

// Calls with the same plan of a transfer make one task. Another plan, transfer or database makes
// another.
func TestStepsAreNamedByTheTransferAndItsRetries(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	a, b := cloud.process(t, always("0123abcd")), cloud.process(t, always("0123abcd"))
	restored := cloud.process(t, always("9999ffff"))
	at := noon.Add(3 * time.Second)
	done(t, a.Step(t.Context(), one, 0, at), b.Step(t.Context(), one, 0, at), a.Step(t.Context(), one, 0, at.Add(time.Hour)),
		a.Step(t.Context(), one, 1, at), b.Step(t.Context(), other, 0, at), restored.Step(t.Context(), one, 0, at))
	want := []string{
		named(one, "0123abcd", "transfer-"+one+"-0"), named(one, "0123abcd", "transfer-"+one+"-1"),
		named(other, "0123abcd", "transfer-"+other+"-0"), named(one, "9999ffff", "transfer-"+one+"-0"),
	}
	check.Same(t, "tasks accepted", cloud.names(), want)
	task := cloud.accepted[0]
	check.Equal(t, "body", string(task.GetHttpRequest().GetBody()), fmt.Sprintf(`{"req_id":%q}`, one))
	if got := task.ScheduleTime.AsTime(); !got.Equal(at) || !strings.HasSuffix(task.GetHttpRequest().GetUrl(), "/internal/transfer") {
		t.Errorf("got %s due at %v, want /internal/transfer at %v", task.GetHttpRequest().GetUrl(), got, at)
	}
}

// H20: a lost task of a step must not prevent the sweep's task, and two sweeps in one minute must make
// one.
func TestH20SweptTransfersAreNamedByTheMinute(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	done(t, cloud.process(t, always("0123abcd")).Step(t.Context(), one, 0, noon)) // accepted and lost
	for _, at := range []time.Time{noon, noon.Add(52 * time.Second), noon.Add(53 * time.Second)} {
		sweeper := cloud.process(t, always("0123abcd"))
		done(t, sweeper.Step(t.Context(), one, 0, at), swept(sweeper.SweepTransfer(t.Context(), one, at)))
	}
	minute := noon.Unix() / 60
	want := []string{
		named(one, "0123abcd", "transfer-"+one+"-0"), // used up: never accepted again
		named(one, "0123abcd", fmt.Sprintf("s-%d", minute)), named(one, "0123abcd", fmt.Sprintf("s-%d", minute+1)),
	}
	check.Same(t, "tasks accepted", cloud.names(), want)
}

// Transfers are distributed over separate queues, and each stays in one.
func TestTransfersSpreadOverTheirQueues(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	process := cloud.process(t, always("0123abcd"))
	for i := range 400 {
		done(t, process.Step(t.Context(), fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G%04d", i), 0, noon))
	}
	seen := map[string]int{}
	for _, task := range cloud.accepted {
		seen[strings.Split(task.Name, "/")[5]]++
	}
	for shard := range 4 {
		if n := seen[fmt.Sprintf("fencepost-transfer-%d", shard)]; n < 50 {
			t.Errorf("queue %d: got %d of 400 transfers, want about 100", shard, n)
		}
	}
	check.Equal(t, "queues", len(seen), 4)
}
