package cloudtasks_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/grpc/codes"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/shared/check"
)

func TestFaultCopiesDeliverATaskSeveralTimesAtOnce(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.server.SetFaults(cloudtasks.Faults{Copies: 3, Seed: 1})
	const tasks = 30
	b.createSome(queue, tasks)
	b.settled(queue)
	sent := b.server.Stats()[queue].Dispatched
	copies := make(map[string]int)
	for _, c := range b.wait(sent) {
		copies[c.header.Get("X-CloudTasks-TaskName")]++
	}
	seen := make(map[int]bool)
	for _, n := range copies {
		seen[n] = true
	}
	if len(copies) != tasks || len(seen) != 3 || !seen[1] || !seen[2] || !seen[3] {
		t.Errorf("got %d tasks delivered, in numbers of copies %v, want %d, in 1 to 3", len(copies), seen, tasks)
	}
}

func TestTaskWithCopiesIsDoneWhenOneSucceedsAndRetriedOnceWhenAllFail(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.server.SetFaults(cloudtasks.Faults{Copies: 2, Seed: 1})
	b.target.answers(func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-CloudTasks-TaskRetryCount") == "0" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	const tasks = 20
	b.createSome(queue, tasks)
	b.settled(queue)
	for _, c := range b.wait(b.server.Stats()[queue].Dispatched) {
		if got := c.header.Get("X-CloudTasks-TaskRetryCount"); got > "1" {
			t.Errorf("got retry %s, want each task done at its first", got)
		}
	}
}

func TestFaultDelayReordersDeliveries(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.server.SetFaults(cloudtasks.Faults{Delay: 200 * time.Millisecond, Seed: 1})
	var made, got []string
	for i := range 10 {
		made = append(made, fmt.Sprint("t", i))
		b.create(queue, b.task(queue, made[i]))
	}
	for _, c := range b.wait(len(made)) {
		got = append(got, c.header.Get("X-CloudTasks-TaskName"))
	}
	if slices.Equal(got, made) {
		t.Errorf("got the order of creation %v, want another", got)
	}
	b.settled(queue)
}

func TestFaultDropLosesTheTaskAndBurnsItsName(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.server.SetFaults(cloudtasks.Faults{Drop: 1})
	name := b.create(queue, b.task(queue, "lost")).Name
	b.server.SetFaults(cloudtasks.Faults{})
	b.want(b.try(queue, b.task(queue, "lost")), codes.AlreadyExists, "")
	b.want(errOf(b.get(name)), codes.NotFound, taskGone)
	b.create(queue, b.task(queue, "kept"))
	b.wait(1)
	b.settled(queue)
	if calls := b.target.got(); len(calls) != 1 || calls[0].body != "body of kept" {
		t.Errorf("got %d requests, want only that of the kept task", len(calls))
	}
}

func TestFaultDropAckRunsATaskAgainThatSucceeded(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.server.SetFaults(cloudtasks.Faults{DropAck: 1})
	b.create(queue, b.task(queue, "x"))
	b.wait(2)
	b.server.SetFaults(cloudtasks.Faults{})
	b.settled(queue)
	check.Equal(t, "previous response", b.target.got()[1].header.Get("X-CloudTasks-TaskPreviousResponse"), "504")
}

func TestFaultDropResponseStoresTheTaskAndAnswersUnavailable(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	b.server.SetFaults(cloudtasks.Faults{DropResponse: 1})
	b.want(b.try(queue, b.task(queue, "x")), codes.Unavailable, "")
	b.server.SetFaults(cloudtasks.Faults{Unavailable: true})
	b.want(b.try(queue, b.task(queue, "y")), codes.Unavailable, "")
	b.server.SetFaults(cloudtasks.Faults{})
	b.want(b.try(queue, b.task(queue, "x")), codes.AlreadyExists, "")
	b.want(b.try(queue, b.task(queue, "y")), codes.OK, "")
}

func TestFaultProbabilityHitsThatShare(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	b.server.SetFaults(cloudtasks.Faults{Drop: 0.5, Seed: 7})
	const tasks = 200
	for range tasks {
		b.create(queue, b.task(queue, ""))
	}
	if kept := b.server.Stats()[queue].Pending; kept < tasks/4 || kept > tasks*3/4 {
		t.Errorf("got %d of %d kept with a half dropped, want about half", kept, tasks)
	}
}

func TestEmptyThrowsAwayTasksButKeepsTheirNamesBurnt(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	name := b.create(queue, b.task(queue, "one")).Name
	b.create(queue, b.task(queue, "two"))
	if got, err := b.server.Empty(queue); got != 2 || err != nil {
		t.Errorf("got %d, %v, want 2 tasks thrown away", got, err)
	}
	b.want(b.try(queue, b.task(queue, "one")), codes.AlreadyExists, "")
	b.want(errOf(b.client.RunTask(t.Context(), &cloudtaskspb.RunTaskRequest{Name: name})), codes.NotFound, taskGone)
	b.resume(queue)
	b.create(queue, b.task(queue, "three"))
	b.wait(1)
	b.settled(queue)
	check.Equal(t, "requests (only that of the task made afterwards)", len(b.target.got()), 1)
	if _, err := b.server.Empty(location + "/queues/absent"); err == nil {
		t.Error("got no error for an absent queue, want one")
	}
}
