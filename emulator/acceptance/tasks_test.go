package acceptance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gcp "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	queuesAt = "projects/p/locations/l"
	bob      = txmanager.Submitter("eip155:1337:0x0000000000000000000000000000000000000b0b")
)

// anyAccount mints a token for every caller.
type anyAccount struct{}

func (anyAccount) Token(context.Context, string, string) (string, error) { return "token", nil }

// makeTasks returns a task enqueuer on paused queues, and the ordinary client to read its tasks.
func makeTasks(t *testing.T, epoch string) (*tasks.Tasks, *gcp.Client, *cloudtasks.Server) {
	t.Helper()
	server := must(cloudtasks.Start(t.Context(), cloudtasks.Options{Tokens: anyAccount{}}))(t)
	t.Cleanup(server.Close)
	client, err := gcp.NewClient(t.Context(), option.WithEndpoint(server.Addr()), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	check(t, err)
	t.Cleanup(func() { client.Close() })
	for _, id := range []string{"q-advance-0", "q-receipt-0", "q-confirm-0"} {
		name := queuesAt + "/queues/" + id
		must(client.CreateQueue(t.Context(), &cloudtaskspb.CreateQueueRequest{Parent: queuesAt, Queue: &cloudtaskspb.Queue{Name: name}}))(t)
		must(client.PauseQueue(t.Context(), &cloudtaskspb.PauseQueueRequest{Name: name}))(t)
	}
	return newMaker(t, server, epoch), client, server
}

func newMaker(t *testing.T, server *cloudtasks.Server, epoch string) *tasks.Tasks {
	maker := tasks.New(tasks.Options{
		Parent: queuesAt, Endpoint: server.Addr(), QueuePrefix: "q", QueueShards: 1, TargetURL: "http://127.0.0.1:1",
		ServiceAccount: "tasks@example.com", Audience: "inside", DispatchDeadline: time.Minute,
		Epoch: func(context.Context) (string, error) { return epoch, nil },
	})
	t.Cleanup(func() { maker.Close() })
	return maker
}

// made lists a queue's tasks by their short names.
func made(t *testing.T, client *gcp.Client, queue string) map[string]*cloudtaskspb.Task {
	t.Helper()
	found := make(map[string]*cloudtaskspb.Task)
	list := client.ListTasks(t.Context(), &cloudtaskspb.ListTasksRequest{
		Parent: queuesAt + "/queues/" + queue, ResponseView: cloudtaskspb.Task_FULL,
	})
	for {
		task, err := list.Next()
		if errors.Is(err, iterator.Done) {
			return found
		}
		check(t, err)
		found[task.Name[strings.LastIndexByte(task.Name, '/')+1:]] = task
	}
}

// A burst of creates under one token makes one task. Every further lease session has a separate name,
// and so has every database (H23, H20).
func TestAdvanceIsNamedByTheToken(t *testing.T) {
	t.Parallel()
	maker, client, server := makeTasks(t, "e0e0e0e0")
	other := newMaker(t, server, "e1e1e1e1") // a restored database, another process
	for _, m := range []*tasks.Tasks{maker, maker, other} {
		check(t, m.EnqueueAdvance(t.Context(), bob, 7))
	}
	check(t, newMaker(t, server, "e0e0e0e0").EnqueueAdvance(t.Context(), bob, 7), "a name that another process made: ")
	check(t, maker.EnqueueAdvance(t.Context(), bob, 8))
	want := []string{bob.Digest() + "-e0e0e0e0-a-7", bob.Digest() + "-e0e0e0e0-a-8", bob.Digest() + "-e1e1e1e1-a-7"}
	checkNames(t, made(t, client, "q-advance-0"), want...)
}

// The task names its submitter, and calls as the tasks' account for one fixed audience.
func TestTaskCarriesTheSubmitterAndAToken(t *testing.T) {
	t.Parallel()
	maker, client, _ := makeTasks(t, "e0e0e0e0")
	check(t, maker.EnqueuePoll(t.Context(), bob, txmanager.KindReceipt, time.Now().Add(time.Hour)))
	for name, task := range made(t, client, "q-receipt-0") {
		h := task.GetHttpRequest()
		if string(h.Body) != `{"submitter":"`+string(bob)+`"}` || h.Url != "http://127.0.0.1:1/internal/receipt" {
			t.Errorf("task %s: got %s to %s", name, h.Body, h.Url)
		}
		if o := h.GetOidcToken(); o.ServiceAccountEmail != "tasks@example.com" || o.Audience != "inside" {
			t.Errorf("token of %s: got %v", name, o)
		}
		if d := task.DispatchDeadline.AsDuration(); d != time.Minute {
			t.Errorf("dispatch deadline of %s: got %v, want 1m", name, d)
		}
	}
}

// H24: the task of an invocation that found the lease held is due when the lease can have expired, not
// before. A renewal of that lease gives the task another name.
func TestH24RescueIsNamedByTokenAndExpiry(t *testing.T) {
	t.Parallel()
	maker, client, _ := makeTasks(t, "e0e0e0e0")
	expires := time.Date(2030, 1, 2, 3, 4, 5, 678_000, time.UTC)
	met := txmanager.AcquireResult{Token: 7, ExpiresAt: expires, TakeoverAt: expires.Add(time.Second)}
	renewed := txmanager.AcquireResult{Token: 7, ExpiresAt: expires.Add(3 * time.Second), TakeoverAt: expires.Add(4 * time.Second)}
	for _, m := range []txmanager.AcquireResult{met, met, renewed} {
		m.ExpiresAt, m.TakeoverAt = soon(m.ExpiresAt), soon(m.TakeoverAt)
		check(t, maker.EnqueueTakeover(t.Context(), bob, m))
	}
	tasks := made(t, client, "q-advance-0")
	if len(tasks) != 2 {
		t.Fatalf("rescues: got %d, want one for each expiry seen", len(tasks))
	}
	for name, task := range tasks {
		due := task.ScheduleTime.AsTime()
		if due.Before(soon(met.TakeoverAt)) || due.Sub(soon(renewed.TakeoverAt)) > 2*time.Second {
			t.Errorf("rescue %s is due %v, want just after the lease can be taken over", name, due)
		}
	}
}

// soon moves a fixed instant to tomorrow: tasks are at most 30 days ahead.
func soon(at time.Time) time.Time {
	return at.Add(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(at.Truncate(24 * time.Hour)))
}

// Two chains of polls become one, as a poll is named by its function and its due second. The sweep's
// task is named by the minute and never by a token.
func TestPollsMergeAndSweepsDoNot(t *testing.T) {
	t.Parallel()
	maker, client, _ := makeTasks(t, "e0e0e0e0")
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, due := range []time.Time{at, at.Add(900 * time.Millisecond), at.Add(time.Second)} {
		check(t, maker.EnqueuePoll(t.Context(), bob, txmanager.KindConfirm, due))
	}
	if got := made(t, client, "q-confirm-0"); len(got) != 2 {
		t.Errorf("polls at %v, +0.9 s, +1 s: got %d tasks, want 2", at, len(got))
	}
	minute := time.Unix(1_800_000_000, 0)
	for _, m := range []time.Time{minute, minute.Add(30 * time.Second), minute.Add(time.Minute)} {
		must(maker.Sweep(t.Context(), bob, txmanager.KindAdvance, m))(t)
	}
	checkNames(t, made(t, client, "q-advance-0"), bob.Digest()+"-e0e0e0e0-s-30000000", bob.Digest()+"-e0e0e0e0-s-30000001")
}

// An unavailable service is an error, and the next call tries again.
func TestTasksOutOfReach(t *testing.T) {
	t.Parallel()
	maker, client, server := makeTasks(t, "e0e0e0e0")
	server.SetFaults(cloudtasks.Faults{Unavailable: true})
	if err := maker.EnqueueAdvance(t.Context(), bob, 1); err == nil {
		t.Error("advance while the service is out of reach: got no error")
	}
	server.SetFaults(cloudtasks.Faults{})
	check(t, maker.EnqueueAdvance(t.Context(), bob, 1), "advance once it is back: ")
	checkNames(t, made(t, client, "q-advance-0"), bob.Digest()+"-e0e0e0e0-a-1")
}

func checkNames(t *testing.T, tasks map[string]*cloudtaskspb.Task, want ...string) {
	t.Helper()
	slices.Sort(want)
	same(t, "tasks", slices.Sorted(maps.Keys(tasks)), want)
}
