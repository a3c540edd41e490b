package cloudtasks_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/shared/check"
)

func TestNewQueueGetsTheServicesDefaults(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	name := b.queue("plain", &cloudtaskspb.Queue{})
	got := check.Value(b.client.GetQueue(t.Context(), &cloudtaskspb.GetQueueRequest{Name: name}))(t)
	want := &cloudtaskspb.Queue{
		Name:       name,
		State:      cloudtaskspb.Queue_RUNNING,
		RateLimits: &cloudtaskspb.RateLimits{MaxDispatchesPerSecond: 500, MaxBurstSize: 500, MaxConcurrentDispatches: 1000},
		RetryConfig: &cloudtaskspb.RetryConfig{
			MaxAttempts: 100, MaxDoublings: 16,
			MinBackoff: durationpb.New(100 * time.Millisecond), MaxBackoff: durationpb.New(time.Hour),
		},
	}
	check.Same(t, "queue", got, want, protocmp.Transform())
}

func TestListQueuesPagesInOrderWithinOneLocation(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	var want []string
	for _, id := range []string{"c", "a", "e", "b", "d"} {
		want = append(want, b.queue(id, nil))
	}
	slices.Sort(want)
	elsewhere := location + "2"
	check.OK(t)(b.client.CreateQueue(t.Context(), &cloudtaskspb.CreateQueueRequest{Parent: elsewhere, Queue: &cloudtaskspb.Queue{Name: elsewhere + "/queues/a"}}))
	list := b.client.ListQueues(t.Context(), &cloudtaskspb.ListQueuesRequest{Parent: location, PageSize: 2})
	list.PageInfo().MaxSize = 2
	var got []string
	for _, q := range drain(t, list.Next) {
		got = append(got, q.Name)
	}
	check.Same(t, "queues", got, want)
	_, err := b.client.ListQueues(t.Context(), &cloudtaskspb.ListQueuesRequest{Parent: location, Filter: "state: PAUSED"}).Next()
	b.want(err, codes.Unimplemented, "filters")
}

func TestPausedQueueHoldsItsTasksUntilResumed(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	paused, running := b.pausedQueue("paused"), b.queue("running", nil)
	b.create(paused, b.task(paused, "held"))
	b.create(running, b.task(running, "free"))
	if got := b.wait(1)[0].body; got != "body of free" {
		t.Errorf("got %q dispatched, want only the task of the running queue", got)
	}
	b.settled(running)
	if got := b.server.Stats()[paused]; got.Dispatched != 0 || got.Pending != 1 {
		t.Errorf("got %+v, want nothing dispatched and one task pending", got)
	}
	b.resume(paused)
	b.settled(paused)
}

func TestUnsupportedPartsAreRefusedNotIgnored(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	_, err := b.client.CreateQueue(t.Context(), &cloudtaskspb.CreateQueueRequest{Parent: location,
		Queue: &cloudtaskspb.Queue{Name: location + "/queues/q", HttpTarget: &cloudtaskspb.HttpTarget{}}})
	b.want(err, codes.Unimplemented, "http_target")
	queue := b.pausedQueue("q")
	app := &cloudtaskspb.Task{MessageType: &cloudtaskspb.Task_AppEngineHttpRequest{AppEngineHttpRequest: &cloudtaskspb.AppEngineHttpRequest{}}}
	b.want(b.try(queue, app), codes.Unimplemented, "App Engine")
	oauth := b.task(queue, "")
	oauth.GetHttpRequest().AuthorizationHeader = &cloudtaskspb.HttpRequest_OauthToken{OauthToken: &cloudtaskspb.OAuthToken{}}
	b.want(b.try(queue, oauth), codes.Unimplemented, "oauth_token")
	b.want(b.try(queue, &cloudtaskspb.Task{}), codes.InvalidArgument, "message_type")
}

func drain[T any](t *testing.T, next func() (T, error)) (all []T) {
	t.Helper()
	for {
		one, err := next()
		if errors.Is(err, iterator.Done) {
			return all
		}
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		all = append(all, one)
	}
}
