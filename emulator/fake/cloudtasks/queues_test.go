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
	"google.golang.org/protobuf/types/known/fieldmaskpb"

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

func TestUpdateQueueChangesOnlyWhatTheMaskNames(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	name := b.pausedQueue("q")
	update := func(mask ...string) (*cloudtaskspb.Queue, error) {
		return b.client.UpdateQueue(t.Context(), &cloudtaskspb.UpdateQueueRequest{
			Queue: &cloudtaskspb.Queue{
				Name: name, State: cloudtaskspb.Queue_RUNNING,
				RateLimits:  &cloudtaskspb.RateLimits{MaxDispatchesPerSecond: 7, MaxConcurrentDispatches: 3},
				RetryConfig: &cloudtaskspb.RetryConfig{MaxAttempts: 5},
			},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: mask},
		})
	}
	got := check.Value(update("rate_limits.max_dispatches_per_second", "retry_config.max_attempts", "state"))(t)
	want := &cloudtaskspb.Queue{
		Name:       name,
		State:      cloudtaskspb.Queue_PAUSED, // output only
		RateLimits: &cloudtaskspb.RateLimits{MaxDispatchesPerSecond: 7, MaxBurstSize: 7, MaxConcurrentDispatches: 1000},
		RetryConfig: &cloudtaskspb.RetryConfig{
			MaxAttempts: 5, MaxDoublings: 16,
			MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(5 * time.Millisecond),
		},
	}
	check.Same(t, "after a masked update", got, want, protocmp.Transform())
	got = check.Value(update())(t)
	want.RateLimits.MaxConcurrentDispatches = 3
	want.RetryConfig.MinBackoff, want.RetryConfig.MaxBackoff = durationpb.New(100*time.Millisecond), durationpb.New(time.Hour)
	check.Same(t, "after an update without mask", got, want, protocmp.Transform())
	for _, path := range []string{"colour", "name.length", "retry_config.colour", "http_target.header_overrides.header"} {
		b.want(errOf(update(path)), codes.InvalidArgument, path)
	}
}

func TestUpdateQueueCreatesAQueueThatIsAbsentButNotOneJustDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	queue := &cloudtaskspb.Queue{Name: location + "/queues/new"}
	check.OK(t)(b.client.UpdateQueue(t.Context(), &cloudtaskspb.UpdateQueueRequest{Queue: queue}))
	b.create(queue.Name, b.task(queue.Name, "works"))
	b.wait(1)
	check.OK(t)(b.client.DeleteQueue(t.Context(), &cloudtaskspb.DeleteQueueRequest{Name: queue.Name}))
	b.want(errOf(b.client.UpdateQueue(t.Context(), &cloudtaskspb.UpdateQueueRequest{Queue: queue})), codes.FailedPrecondition, "existed too recently")
}

func TestDeletedQueueNameIsFreeWithoutATombstone(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{QueueTombstone: cloudtasks.NoWindow})
	name := b.pausedQueue("again")
	b.create(name, b.task(name, "lost"))
	check.OK(t)(b.client.DeleteQueue(t.Context(), &cloudtaskspb.DeleteQueueRequest{Name: name}))
	b.queue("again", nil)
	b.create(name, b.task(name, "lost")) // a new queue knows no old names
	b.wait(1)
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
	pages := iterator.NewPager(b.client.ListQueues(t.Context(), &cloudtaskspb.ListQueuesRequest{Parent: location}), 2, "")
	var got []string
	var sizes []int
	for token := "more"; token != ""; {
		var page []*cloudtaskspb.Queue
		var err error
		if token, err = pages.NextPage(&page); err != nil {
			t.Fatalf("page: %v", err)
		}
		sizes = append(sizes, len(page))
		for _, q := range page {
			got = append(got, q.Name)
		}
	}
	check.Same(t, "queues", got, want)
	check.Same(t, "page sizes", sizes, []int{2, 2, 1})
	_, err := b.client.ListQueues(t.Context(), &cloudtaskspb.ListQueuesRequest{Parent: location, Filter: "state: PAUSED"}).Next()
	b.want(err, codes.Unimplemented, "filters")
}

func TestPurgeBurnsTheNamesOfAllTasks(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	b.create(queue, b.task(queue, "one"))
	b.create(queue, b.task(queue, "two"))
	before := time.Now().Truncate(time.Microsecond)
	got := check.Value(b.client.PurgeQueue(t.Context(), &cloudtaskspb.PurgeQueueRequest{Name: queue}))(t)
	if at := got.PurgeTime.AsTime(); at.Before(before) || at.After(time.Now()) {
		t.Errorf("got purge time %v, want the time of the call", at)
	}
	b.want(b.try(queue, b.task(queue, "one")), codes.AlreadyExists, "Requested entity already exists")
	b.resume(queue)
	b.create(queue, b.task(queue, "three"))
	b.wait(1)
	b.settled(queue)
	if calls := b.target.got(); len(calls) != 1 || calls[0].body != "body of three" {
		t.Errorf("got %d requests, want only that of the task made after the purge", len(calls))
	}
}

func TestStartRefusesWindowsOutOfRange(t *testing.T) {
	t.Parallel()
	for _, o := range []cloudtasks.Options{{DedupWindow: 24*time.Hour + 1}, {DedupWindow: -2}, {QueueTombstone: -2}} {
		if s, err := cloudtasks.Start(t.Context(), o); err == nil {
			s.Close()
			t.Errorf("got a server for %+v, want an error", o)
		}
	}
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
