package cloudtasks_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/shared/check"
)

func TestTaskReachesItsTargetAsItWasCreated(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	task := b.task(queue, "put")
	r := task.GetHttpRequest()
	r.Url, r.HttpMethod = b.target.url+"/a/b?c=d", cloudtaskspb.HttpMethod_PUT
	r.Headers = map[string]string{
		"content-type": "text/plain", "X-Mine": "kept", "Host": "elsewhere", "user-agent": "mine",
		"X-Google-Mine": "no", "x-appengine-mine": "no", "X-CloudTasks-TaskRetryCount": "77",
	}
	b.create(queue, task)
	got := b.wait(1)[0]
	if got.method != "PUT" || got.path != "/a/b?c=d" || got.body != "body of put" || "http://"+got.host != b.target.url {
		t.Errorf("got %s %s on %s with %q, want PUT /a/b?c=d with the body", got.method, got.path, got.host, got.body)
	}
	for header, want := range map[string]string{
		"Content-Type": "text/plain", "X-Mine": "kept", "User-Agent": "Google-Cloud-Tasks",
		"X-Google-Mine": "", "X-Appengine-Mine": "", "X-CloudTasks-TaskRetryCount": "0",
	} {
		check.Equal(t, header, got.header.Get(header), want)
	}
}

func TestDefaultsArePostAndOctetStreamForABody(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	empty := b.task(queue, "empty")
	empty.GetHttpRequest().Body = nil
	b.create(queue, empty)
	b.create(queue, b.task(queue, "full"))
	for _, got := range b.wait(2) {
		want := map[string]string{"empty": "", "full": "application/octet-stream"}[got.header.Get("X-CloudTasks-TaskName")]
		if value := got.header.Get("Content-Type"); got.method != "POST" || value != want {
			t.Errorf("got %s with content type %q, want POST with %q", got.method, value, want)
		}
	}
}

func TestScheduleTimeIsNeverEarlyAndIsTheETA(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	later := time.Now().Add(300 * time.Millisecond).Truncate(time.Microsecond)
	for i, after := range []time.Duration{100, 0, 50} { // made in another order than due
		task := b.task(queue, fmt.Sprint("t", i))
		task.ScheduleTime = timestamppb.New(later.Add(after * time.Millisecond))
		b.create(queue, task)
	}
	for _, got := range b.wait(3) {
		id := got.header.Get("X-CloudTasks-TaskName")
		due := later.Add(map[string]time.Duration{"t0": 100, "t1": 0, "t2": 50}[id] * time.Millisecond)
		if early := due.Sub(got.at); early > 0 {
			t.Errorf("got task %s %v early", id, early)
		}
		want := fmt.Sprintf("%d.%06d", due.Unix(), due.Nanosecond()/1000)
		check.Equal(t, "ETA of task "+id, got.header.Get("X-CloudTasks-TaskETA"), want)
	}
}

func TestRetriesBackOffAndAreCountedOnTheTask(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	queue := b.queue("q", &cloudtaskspb.Queue{RetryConfig: &cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(50 * time.Millisecond)}})
	release := make(chan struct{})
	b.target.answers(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 3 {
			w.WriteHeader(500 - 96*(n%2)) // 500, 404, 500
			return
		}
		<-release
	})
	name := b.create(queue, b.task(queue, "x")).Name
	calls := b.wait(4)
	for i, least := range []time.Duration{50, 100, 200} {
		if got := calls[i+1].at.Sub(calls[i].at); got < least*time.Millisecond {
			t.Errorf("got retry %d after %v, want at least %dms", i+1, got, least)
		}
	}
	got := check.Value(b.get(name))(t)
	if got.DispatchCount != 4 || got.ResponseCount != 3 || got.LastAttempt.ResponseTime != nil {
		t.Errorf("got %d dispatches, %d responses and %v, want 4, 3 and an attempt in flight", got.DispatchCount, got.ResponseCount, got.LastAttempt)
	}
	if first := got.FirstAttempt.DispatchTime.AsTime(); !first.Before(got.LastAttempt.DispatchTime.AsTime()) || got.FirstAttempt.ScheduleTime != nil {
		t.Errorf("got first attempt %v, want only its dispatch time", got.FirstAttempt)
	}
	close(release)
	b.settled(queue)
}

func TestTaskRetryConfigOverridesTheQueues(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	queue := b.queue("q", &cloudtaskspb.Queue{RetryConfig: &cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(time.Hour)}})
	b.target.statuses(500, 500, 500, 500)
	task := b.task(queue, "x")
	task.RetryConfig = &cloudtaskspb.RetryConfig{MaxAttempts: 3, MinBackoff: durationpb.New(time.Millisecond)}
	b.create(queue, task)
	b.wait(3)
	b.settled(queue)
	check.Equal(t, "attempts (the task's own number)", len(b.target.got()), 3)
}

func TestRunTaskGoesWhateverTheQueueSays(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	task := b.task(queue, "x")
	task.ScheduleTime = timestamppb.New(time.Now().Add(time.Hour))
	task.RetryConfig = &cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(time.Minute)}
	name := b.create(queue, task).Name
	b.target.statuses(500)
	called := time.Now()
	check.OK(t)(b.client.RunTask(t.Context(), &cloudtaskspb.RunTaskRequest{Name: name}))
	b.wait(1)
	b.answered(name)
	got := check.Value(b.get(name))(t)
	if late := got.ScheduleTime.AsTime().Sub(called) - time.Minute; late < -time.Millisecond || late > 5*time.Second {
		t.Errorf("got the next attempt %v off, want the time of the call plus the backoff of a minute", late)
	}
	check.OK(t)(b.client.RunTask(t.Context(), &cloudtaskspb.RunTaskRequest{Name: name}))
	b.settled(queue)
	b.want(errOf(b.client.RunTask(t.Context(), &cloudtaskspb.RunTaskRequest{Name: name})), codes.NotFound, taskGone)
}

func TestRunTaskDispatchesATaskThatIsRunningAlready(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	release := make(chan struct{})
	b.target.answers(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			<-release
			w.WriteHeader(500)
		}
	})
	name := b.create(queue, b.task(queue, "x")).Name
	b.wait(1)
	check.OK(t)(b.client.RunTask(t.Context(), &cloudtaskspb.RunTaskRequest{Name: name}))
	b.settled(queue)
	close(release) // its failure comes too late to matter
	check.Equal(t, "requests", len(b.target.got()), 2)
}

func TestMaxConcurrentDispatchesIsHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	const limit = 3
	queue := b.queue("q", &cloudtaskspb.Queue{RateLimits: &cloudtaskspb.RateLimits{MaxConcurrentDispatches: limit}})
	var mu sync.Mutex
	running, peak := 0, 0
	add := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		running += n
		peak = max(peak, running)
	}
	release := make(chan struct{})
	b.target.answers(func(int, http.ResponseWriter, *http.Request) {
		add(1)
		<-release
		add(-1)
	})
	b.createSome(queue, 20)
	b.wait(limit)
	check.Equal(t, "dispatched while none has answered", b.server.Stats()[queue].Dispatched, limit)
	close(release)
	b.settled(queue)
	check.Equal(t, "at once", peak, limit)
}

func TestDispatchRateIsHeldAfterTheBurst(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{})
	const rate, tasks = 20, 35 // a burst of 20, then 15 more at 20 a second
	name := b.pausedQueue("q")
	if _, err := b.client.UpdateQueue(t.Context(), &cloudtaskspb.UpdateQueueRequest{Queue: &cloudtaskspb.Queue{
		Name: name, RateLimits: &cloudtaskspb.RateLimits{MaxDispatchesPerSecond: rate}}}); err != nil {
		t.Fatalf("update: %v", err)
	}
	b.createSome(name, tasks)
	begun := time.Now()
	b.resume(name)
	calls := b.wait(tasks)
	if took, least := calls[tasks-1].at.Sub(begun), time.Duration(tasks-rate)*time.Second/rate; took < least {
		t.Errorf("got %d requests in %v, want at least %v", tasks, took, least)
	}
	b.settled(name)
}

func TestRetryAfterHoldsBackTheTaskAndTheWholeQueue(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.target.answers(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	name := b.create(queue, b.task(queue, "busy")).Name
	b.answered(name)
	b.create(queue, b.task(queue, "other"))
	calls := b.wait(3)
	for i, c := range calls[1:] {
		if got := c.at.Sub(calls[0].at); got < time.Second {
			t.Errorf("got request %d %v after Retry-After: 1, want at least a second", i+1, got)
		}
	}
	b.settled(queue)
}

func TestRetryAfterDelaysItsOwnTaskInFull(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	b.target.answers(func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	begun := time.Now()
	name := b.create(queue, b.task(queue, "busy")).Name
	b.eventually("a retry a minute later, beyond the hold of the queue", func() bool {
		got, err := b.get(name)
		return err == nil && got.ScheduleTime.AsTime().Sub(begun) >= time.Minute
	})
}

func TestUnreachableTargetIsRetried(t *testing.T) {
	t.Parallel()
	b, queue := running(t)
	var mu sync.Mutex
	seen := ""
	b.target.answers(func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 0 {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		mu.Lock()
		defer mu.Unlock()
		seen = r.Header.Get("X-CloudTasks-TaskPreviousResponse")
	})
	b.create(queue, b.task(queue, "x"))
	b.settled(queue)
	check.Equal(t, "previous response", seen, "503")
}

func TestLateAnswerOfADeletedTaskChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{DedupWindow: cloudtasks.NoWindow})
	queue := b.queue("q", nil)
	release := make(chan struct{})
	b.target.answers(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			<-release
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	name := b.create(queue, b.task(queue, "x")).Name
	b.wait(1)
	check.OK(t)(b.client.DeleteTask(t.Context(), &cloudtaskspb.DeleteTaskRequest{Name: name}))
	close(release)
	last := b.task(queue, "last") // long after a wrong retry would be due
	last.ScheduleTime = timestamppb.New(time.Now().Add(200 * time.Millisecond))
	b.create(queue, last)
	b.settled(queue)
	check.Equal(t, "requests (the deleted task is not retried)", len(b.target.got()), 2)
}
