package cloudtasks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/shared/check"
)

func TestNameIsBurntBySuccessExhaustionDeleteAndPurgeForTheWindowOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(b *bench, queue, task string)
	}{
		{"success", func(b *bench, queue, _ string) { b.resume(queue) }},
		{"exhaustion", func(b *bench, queue, _ string) { b.target.statuses(500, 500); b.resume(queue) }},
		{"delete", func(b *bench, _, task string) {
			check.OK(b)(b.client.DeleteTask(b.Context(), &cloudtaskspb.DeleteTaskRequest{Name: task}))
		}},
		{"purge", func(b *bench, queue, _ string) {
			check.OK(b)(b.client.PurgeQueue(b.Context(), &cloudtaskspb.PurgeQueueRequest{Name: queue}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, window := range []time.Duration{0, 2 * time.Second, cloudtasks.NoWindow} {
				b := newBench(t, cloudtasks.Options{DedupWindow: window})
				queue := b.pausedQueue("q")
				task := b.task(queue, "one")
				task.RetryConfig = &cloudtaskspb.RetryConfig{MaxAttempts: 2}
				name := b.create(queue, task).Name
				c.end(b, queue, name)
				b.settled(queue)
				err := b.try(queue, task)
				if window == cloudtasks.NoWindow {
					b.want(err, codes.OK, "")
					continue
				}
				b.want(err, codes.AlreadyExists, "Requested entity already exists")
				if window > 0 {
					b.eventually("a free name", func() bool { return b.try(queue, task) == nil })
				}
			}
		})
	}
}

func TestUnnamedTasksGetUniqueNames(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	first, second := b.create(queue, b.task(queue, "")), b.create(queue, b.task(queue, ""))
	if first.Name == second.Name || !strings.HasPrefix(first.Name, queue+"/tasks/") {
		t.Errorf("got names %q and %q, want two different ones of the queue", first.Name, second.Name)
	}
	check.OK(t)(b.get(first.Name))
}

func TestOnlyTheFullViewHasTheBody(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	name := b.create(queue, b.task(queue, "x")).Name
	for view, want := range map[cloudtaskspb.Task_View]string{
		cloudtaskspb.Task_VIEW_UNSPECIFIED: "", cloudtaskspb.Task_BASIC: "", cloudtaskspb.Task_FULL: "body of x",
	} {
		got := check.Value(b.client.GetTask(t.Context(), &cloudtaskspb.GetTaskRequest{Name: name, ResponseView: view}))(t)
		if body := string(got.GetHttpRequest().GetBody()); body != want || got.GetHttpRequest().Url == "" {
			t.Errorf("view %v: got body %q, want %q and the URL", view, body, want)
		}
		listed := drain(t, b.client.ListTasks(t.Context(), &cloudtaskspb.ListTasksRequest{Parent: queue, ResponseView: view}).Next)
		if len(listed) != 1 || string(listed[0].GetHttpRequest().GetBody()) != want {
			t.Errorf("view %v: got %v listed, want one task with body %q", view, listed, want)
		}
	}
}

func TestStoredTaskHasItsTimesAndDefaults(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	before := time.Now()
	got := b.create(queue, b.task(queue, "x"))
	if at := got.CreateTime.AsTime(); at.Nanosecond() != 0 || at.After(time.Now()) || before.Sub(at) > time.Second {
		t.Errorf("got create time %v, want the second of the call", at)
	}
	if at := got.ScheduleTime.AsTime(); at.Before(before.Truncate(time.Microsecond)) || at.After(time.Now()) {
		t.Errorf("got schedule time %v, want that of the call", at)
	}
	if got.DispatchDeadline.AsDuration() != 10*time.Minute || got.GetHttpRequest().HttpMethod != cloudtaskspb.HttpMethod_POST {
		t.Errorf("got deadline %v and method %v, want 10m and POST", got.DispatchDeadline.AsDuration(), got.GetHttpRequest().HttpMethod)
	}
	past := b.task(queue, "y")
	past.ScheduleTime = timestamppb.New(before.Add(-time.Hour))
	if at := b.create(queue, past).ScheduleTime.AsTime(); at.Before(before.Truncate(time.Microsecond)) {
		t.Errorf("got schedule time %v for one in the past, want now", at)
	}
}

func TestListTasksPagesThroughAll(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	want := make(map[string]bool)
	for i := range 7 {
		want[b.create(queue, b.task(queue, fmt.Sprint("t", i))).Name] = true
	}
	it := b.client.ListTasks(t.Context(), &cloudtaskspb.ListTasksRequest{Parent: queue, PageSize: 3})
	it.PageInfo().MaxSize = 3
	got := make(map[string]bool)
	for _, task := range drain(t, it.Next) {
		got[task.Name] = true
	}
	check.Same(t, "tasks", got, want)
	_, err := b.client.ListTasks(t.Context(), &cloudtaskspb.ListTasksRequest{Parent: queue, PageToken: "?"}).Next()
	b.want(err, codes.InvalidArgument, "page_token")
}

func TestCreateTaskRefusesWhatTheRequestCannotHave(t *testing.T) {
	t.Parallel()
	b, queue := paused(t)
	for _, c := range []struct {
		text string
		edit func(*cloudtaskspb.Task)
	}{
		{"body", func(t *cloudtaskspb.Task) { t.GetHttpRequest().HttpMethod = cloudtaskspb.HttpMethod_GET }},
		{"httpMethod", func(t *cloudtaskspb.Task) { t.GetHttpRequest().HttpMethod = 99 }},
		{"2083", func(t *cloudtaskspb.Task) {
			t.GetHttpRequest().Url = "http://example.com/" + strings.Repeat("x", 2083)
		}},
		{"headers", func(t *cloudtaskspb.Task) {
			t.GetHttpRequest().Headers = map[string]string{"X": strings.Repeat("x", 80<<10)}
		}},
		{"maxAttempts", func(t *cloudtaskspb.Task) { t.RetryConfig = &cloudtaskspb.RetryConfig{MaxAttempts: -2} }},
		{"500 characters", func(t *cloudtaskspb.Task) { t.Name = queue + "/tasks/" + strings.Repeat("x", 501) }},
		{"Task name must be formatted", func(t *cloudtaskspb.Task) { t.Name = "x" }},
	} {
		task := b.task(queue, "")
		c.edit(task)
		b.want(b.try(queue, task), codes.InvalidArgument, c.text)
	}
	b.want(b.try("x", b.task(queue, "")), codes.InvalidArgument, "Queue name must be formatted")
}

// accounts is a token source that knows one account.
type accounts string

func (a accounts) Token(_ context.Context, email, audience string) (string, error) {
	if email != string(a) {
		return "", fmt.Errorf("account %q: %w", email, cloudtasks.ErrUnknownAccount)
	}
	return email + " for " + audience, nil
}

func withToken(task *cloudtaskspb.Task, email, audience string) *cloudtaskspb.Task {
	task.GetHttpRequest().AuthorizationHeader = &cloudtaskspb.HttpRequest_OidcToken{
		OidcToken: &cloudtaskspb.OidcToken{ServiceAccountEmail: email, Audience: audience}}
	return task
}

func TestTasksCarryAnOIDCTokenOfTheirAccountAndAudience(t *testing.T) {
	t.Parallel()
	b := newBench(t, cloudtasks.Options{Tokens: accounts("caller@p")})
	queue := b.queue("q", nil)
	b.create(queue, withToken(b.task(queue, "set"), "caller@p", "https://service"))
	b.create(queue, withToken(b.task(queue, "default"), "caller@p", ""))
	for _, c := range b.wait(2) {
		want := "Bearer caller@p for https://service"
		if c.header.Get("X-CloudTasks-TaskName") == "default" {
			want = "Bearer caller@p for " + b.target.url + "/step"
		}
		check.Equal(t, "answer", c.header.Get("Authorization"), want)
	}
	b.want(b.try(queue, withToken(b.task(queue, "x"), "nobody@p", "")), codes.NotFound, "nobody@p")
	check.Equal(t, "tasks created (the refused one is not stored)", b.server.Stats()[queue].Created, 2)
	bare := newBench(t, cloudtasks.Options{})
	q := bare.pausedQueue("q")
	bare.want(bare.try(q, withToken(bare.task(q, "x"), "caller@p", "")), codes.FailedPrecondition, "TokenSource")
}
