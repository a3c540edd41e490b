package cloudtasks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/shared/check"
)

// The Cloud Tasks emulator against the recorded facts. Each case is named as in
// the recordings, conformance/golden of github.com/aertje/cloud-tasks-emulator.

const (
	noQueue  = "Queue does not exist. If you just created the queue, wait at least a minute for the queue to initialize."
	noEntity = "Requested entity was not found."
	taskGone = "The task no longer exists, though a task with this name existed recently. The task either successfully completed or was deleted."
)

type recorded struct {
	name string
	err  error
	code codes.Code
	text string
}

func (b *bench) conforms(cases []recorded) {
	b.Helper()
	for _, c := range cases {
		if got := status.Convert(c.err); got.Code() != c.code || got.Message() != c.text {
			b.Errorf("%s: got %v %q, want %v %q", c.name, got.Code(), got.Message(), c.code, c.text)
		}
	}
}

func TestConformanceQueueErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	ctx := t.Context()
	exists, absent, deleted := b.queue("exists", nil), location+"/queues/absent", b.queue("deleted", nil)
	check.OK(t)(b.client.DeleteQueue(ctx, &cloudtaskspb.DeleteQueueRequest{Name: deleted}))
	create := func(name string) error {
		return errOf(b.client.CreateQueue(ctx, &cloudtaskspb.CreateQueueRequest{Parent: location, Queue: &cloudtaskspb.Queue{Name: name}}))
	}
	get := func(name string) error {
		return errOf(b.client.GetQueue(ctx, &cloudtaskspb.GetQueueRequest{Name: name}))
	}
	badName := create(location + "/queues/not a name")
	b.conforms([]recorded{
		{"queue/create/already-exists", create(exists), codes.AlreadyExists, "Queue already exists"},
		{"queue/create/invalid-name", badName, codes.InvalidArgument, `Queue name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>".`},
		{"queue/create/recently-deleted", create(deleted), codes.FailedPrecondition, "The queue cannot be created because a queue with this name existed too recently."},
		{"queue/delete/not-found", b.client.DeleteQueue(ctx, &cloudtaskspb.DeleteQueueRequest{Name: absent}), codes.NotFound, noEntity},
		{"queue/get/not-found", get(absent), codes.NotFound, noQueue},
		{"queue/get/recently-deleted", get(deleted), codes.NotFound, noQueue},
		{"queue/pause/not-found", errOf(b.client.PauseQueue(ctx, &cloudtaskspb.PauseQueueRequest{Name: absent})), codes.NotFound, noQueue},
		{"queue/purge/not-found", errOf(b.client.PurgeQueue(ctx, &cloudtaskspb.PurgeQueueRequest{Name: absent})), codes.NotFound, noQueue},
		{"queue/resume/not-found", errOf(b.client.ResumeQueue(ctx, &cloudtaskspb.ResumeQueueRequest{Name: absent})), codes.NotFound, noQueue},
	})
	b.helps(badName, "Definition of queue name", "projects.locations.queues#Queue.FIELDS.name")
}

// helps checks the link the service attaches to a refused name.
func (b *bench) helps(err error, description, page string) {
	b.Helper()
	for _, detail := range status.Convert(err).Details() {
		if help, ok := detail.(*errdetails.Help); ok && help.Links[0].Description == description && strings.HasSuffix(help.Links[0].Url, page) {
			return
		}
	}
	b.Errorf("got details %v, want a link %q to %q", status.Convert(err).Details(), description, page)
}

func TestConformanceQueueConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	rate := func(l *cloudtaskspb.RateLimits) *cloudtaskspb.Queue { return &cloudtaskspb.Queue{RateLimits: l} }
	retry := func(r *cloudtaskspb.RetryConfig) *cloudtaskspb.Queue { return &cloudtaskspb.Queue{RetryConfig: r} }
	for i, c := range []struct {
		name  string
		queue *cloudtaskspb.Queue
		code  codes.Code
		text  string
	}{
		{"backoff-order", retry(&cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(time.Minute), MaxBackoff: durationpb.New(time.Second)}), codes.InvalidArgument, "RetryConfig.minBackoff must be less than or equal to RetryConfig.maxBackoff."},
		{"burst-negative", rate(&cloudtaskspb.RateLimits{MaxBurstSize: -1}), codes.OK, ""},
		{"concurrent-negative", rate(&cloudtaskspb.RateLimits{MaxConcurrentDispatches: -1}), codes.InvalidArgument, "RateLimits.maxConcurrentDispatches cannot be negative."},
		{"concurrent-too-high", rate(&cloudtaskspb.RateLimits{MaxConcurrentDispatches: 5001}), codes.InvalidArgument, "RateLimits.maxConcurrentDispatches must be less than or equal to 5000."},
		{"max-attempts-below-minus-one", retry(&cloudtaskspb.RetryConfig{MaxAttempts: -2}), codes.InvalidArgument, "RetryConfig.maxAttempts must be greater or equal to -1."},
		{"max-doublings-negative", retry(&cloudtaskspb.RetryConfig{MaxDoublings: -1}), codes.InvalidArgument, "RetryConfig.maxDoublings cannot be negative."},
		{"min-backoff-negative", retry(&cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(-time.Second)}), codes.InvalidArgument, "RetryConfig.minBackoff cannot be negative."},
		{"rate-negative", rate(&cloudtaskspb.RateLimits{MaxDispatchesPerSecond: -1}), codes.InvalidArgument, "RateLimits.maxDispatchesPerSecond cannot be negative."},
		{"rate-too-high", rate(&cloudtaskspb.RateLimits{MaxDispatchesPerSecond: 501}), codes.InvalidArgument, "RateLimits.maxDispatchesPerSecond must be less than or equal to 500."},
	} {
		c.queue.Name = fmt.Sprintf("%s/queues/q%d", location, i)
		_, err := b.client.CreateQueue(t.Context(), &cloudtaskspb.CreateQueueRequest{Parent: location, Queue: c.queue})
		b.conforms([]recorded{{"queue/create/" + c.name, err, c.code, c.text}})
	}
}

func TestConformanceTaskErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	ctx := t.Context()
	queue, absent, deleted := b.pausedQueue("exists"), location+"/queues/absent", b.queue("deleted", nil)
	check.OK(t)(b.client.DeleteQueue(ctx, &cloudtaskspb.DeleteQueueRequest{Name: deleted}))
	b.create(queue, b.task(queue, "exists"))
	gone := b.create(queue, b.task(queue, "gone")).Name
	check.OK(t)(b.client.DeleteTask(ctx, &cloudtaskspb.DeleteTaskRequest{Name: gone}))
	never := queue + "/tasks/never"
	badName := b.try(queue, b.task(queue, "not a valid id"))
	b.conforms([]recorded{
		{"task/create/already-exists", b.try(queue, b.task(queue, "exists")), codes.AlreadyExists, "Requested entity already exists"},
		{"task/create/invalid-name", badName, codes.InvalidArgument, `Task ID "not a valid id" can contain only letters ([A-Za-z]), numbers ([0-9]), hyphens (-), or underscores (_). Task ID must between 1 and 500 characters.`},
		{"task/create/queue-mismatch", b.try(queue, b.task(queue+"-other", "x")), codes.InvalidArgument, "The queue name from request ('" + queue + "') must be the same as the queue name in the named task ('" + queue + "-other')."},
		{"task/create/queue-not-found", b.try(absent, b.task(absent, "x")), codes.NotFound, noQueue},
		{"task/create/queue-recently-deleted", b.try(deleted, b.task(deleted, "x")), codes.NotFound, noQueue},
		{"task/delete/not-found", b.client.DeleteTask(ctx, &cloudtaskspb.DeleteTaskRequest{Name: never}), codes.NotFound, noEntity},
		{"task/get/not-found", errOf(b.get(never)), codes.NotFound, noEntity},
		{"task/get/recently-deleted", errOf(b.get(gone)), codes.NotFound, taskGone},
		{"task/run/not-found", errOf(b.client.RunTask(ctx, &cloudtaskspb.RunTaskRequest{Name: never})), codes.NotFound, noEntity},
	})
	b.helps(badName, "Definition of task ID", "projects.locations.queues.tasks#Task.FIELDS.name")
}

func TestConformanceTaskLimits(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	const badDeadline = "Task.dispatchDeadline must be between [15s, 30m]."
	const badURL = "HttpTarget.url must start with 'http://' or 'https://'."
	year2100 := timestamppb.New(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name string
		edit func(*cloudtaskspb.Task)
		code codes.Code
		text string
	}{
		{"deadline-too-long", func(t *cloudtaskspb.Task) { t.DispatchDeadline = durationpb.New(30*time.Minute + time.Second) }, codes.InvalidArgument, badDeadline},
		{"deadline-too-short", func(t *cloudtaskspb.Task) { t.DispatchDeadline = durationpb.New(14 * time.Second) }, codes.InvalidArgument, badDeadline},
		{"deadline-longest", func(t *cloudtaskspb.Task) { t.DispatchDeadline = durationpb.New(30 * time.Minute) }, codes.OK, ""},
		{"invalid-url-bad-escape", func(t *cloudtaskspb.Task) { t.GetHttpRequest().Url = "http://example.com/%zz" }, codes.OK, ""},
		{"invalid-url-empty", func(t *cloudtaskspb.Task) { t.GetHttpRequest().Url = "" }, codes.InvalidArgument, "HttpRequest.url is required."},
		{"invalid-url-no-scheme", func(t *cloudtaskspb.Task) { t.GetHttpRequest().Url = "example.com" }, codes.InvalidArgument, badURL},
		{"invalid-url-non-http-scheme", func(t *cloudtaskspb.Task) { t.GetHttpRequest().Url = "ftp://example.com" }, codes.InvalidArgument, badURL},
		{"schedule-too-far", func(t *cloudtaskspb.Task) { t.ScheduleTime = year2100 }, codes.InvalidArgument, "The Task.scheduleTime, 2100-01-01T00:00:00Z, is too far in the future. Schedule time must be no more than 720h in the future."},
		{"schedule-furthest", func(t *cloudtaskspb.Task) { t.ScheduleTime = timestamppb.New(time.Now().Add(30 * 24 * time.Hour)) }, codes.OK, ""},
	} {
		task := b.task(queue, "")
		c.edit(task)
		b.conforms([]recorded{{"task/create/" + c.name, b.try(queue, task), c.code, c.text}})
	}
}

func TestConformanceLargestTaskIsOneMiBLessSevenBytesAsStored(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	sized := func(id string, body int) error {
		task := b.task(queue, id)
		task.GetHttpRequest().Body = make([]byte, body)
		task.ScheduleTime = timestamppb.New(time.Unix(time.Now().Unix()+3600, 500_000_000)) // a fixed size
		return b.try(queue, task)
	}
	// The rest of the stored form, counted by hand from the wire format with keys and lengths. It has the
	// name, the schedule and create time, the deadline, and the request's URL, method and User-Agent.
	rest := (2 + len(queue+"/tasks/a")) + (2 + 6 + 6) + (2 + 6) + (2 + 3) +
		4 + (2 + len(b.target.url+"/step")) + 2 + (2 + 2 + len("User-Agent") + 2 + len("Google-Cloud-Tasks")) + 4
	largest := 1<<20 - 7 - rest
	b.want(sized("a", largest), codes.OK, "")
	b.conforms([]recorded{{"task/create/too-large", sized("b", largest+1), codes.InvalidArgument, "Task size too large"}})
}

func TestConformanceStoredHeaders(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	for _, c := range []struct {
		name       string
		sent, want map[string]string
	}{
		{"headers/http", map[string]string{"X-Mixed-Case": "preserve-me", "content-type": "application/json"},
			map[string]string{"User-Agent": "Google-Cloud-Tasks", "X-Mixed-Case": "preserve-me", "content-type": "application/json"}},
		{"headers/http-no-content-type", map[string]string{"X-Mixed-Case": "preserve-me"},
			map[string]string{"User-Agent": "Google-Cloud-Tasks", "X-Mixed-Case": "preserve-me"}},
	} {
		task := b.task(queue, "")
		task.GetHttpRequest().Headers = c.sent
		basic := b.create(queue, task)
		full := check.Value(b.get(basic.Name))(t)
		for view, got := range map[string]map[string]string{"BASIC": basic.GetHttpRequest().Headers, "FULL": full.GetHttpRequest().Headers} {
			check.Same(t, fmt.Sprintf("%s in view %s", c.name, view), got, c.want)
		}
	}
}

func TestConformanceDispatchHeaders(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	statuses := []int{503, 404, 429, 500, 302}
	b.target.statuses(statuses...)
	b.create(queue, b.task(queue, "recorded"))
	calls := b.wait(len(statuses) + 1)
	b.settled(queue)
	executions := []string{"0", "0", "1", "2", "2", "3"} // 5xx left out
	for i, c := range calls {
		want := map[string][]string{
			"User-Agent":                        {"Google-Cloud-Tasks"},
			"X-Cloudtasks-Queuename":            {"q"},
			"X-Cloudtasks-Taskname":             {"recorded"},
			"X-Cloudtasks-Taskretrycount":       {fmt.Sprint(i)},
			"X-Cloudtasks-Taskexecutioncount":   {executions[i]},
			"X-Cloudtasks-Taskpreviousresponse": nil,
			"X-Cloudtasks-Taskretryreason":      nil,
		}
		if i > 0 {
			want["X-Cloudtasks-Taskpreviousresponse"] = []string{fmt.Sprint(statuses[i-1])}
			want["X-Cloudtasks-Taskretryreason"] = []string{""}
		}
		got := make(map[string][]string)
		for name := range want {
			got[name] = c.header[name]
		}
		check.Same(t, fmt.Sprint("headers of attempt ", i), got, want)
	}
	check.Equal(t, "requests (redirects are not followed)", len(b.target.got()), len(statuses)+1)
}

func TestConformanceDispatchTimeout(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	left := make(chan struct{})
	b.target.answers(func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 0 {
			<-r.Context().Done()
			close(left)
		}
	})
	task := b.task(queue, "slow")
	task.DispatchDeadline = durationpb.New(15 * time.Second)
	name := b.create(queue, task).Name
	check.OK(t)(b.server.ShortenDeadline(name, 50*time.Millisecond))
	b.resume(queue)
	second := b.wait(2)[1].header
	<-left // the first request was abandoned, not answered
	for header, want := range map[string]string{
		"X-Cloudtasks-Taskpreviousresponse": "504", "X-Cloudtasks-Taskexecutioncount": "0", "X-Cloudtasks-Taskretrycount": "1",
	} {
		check.Equal(t, fmt.Sprintf("%s after a time-out", header), second.Get(header), want)
	}
	b.settled(queue)
}
