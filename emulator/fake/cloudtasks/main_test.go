package cloudtasks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gcp "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	location = "projects/p/locations/europe-west1"
	deadline = 2 * time.Minute // for whatever a test waits for
)

// bench is an emulator, the real client against it and a target that records.
type bench struct {
	testing.TB
	server *cloudtasks.Server
	client *gcp.Client
	target *target
}

func newBench(t testing.TB, o cloudtasks.Options) *bench {
	t.Helper()
	server := check.Value(cloudtasks.Start(context.Background(), o))(t)
	t.Cleanup(server.Close)
	client := check.Value(server.Client(t.Context()))(t)
	t.Cleanup(func() { client.Close() })
	return &bench{TB: t, server: server, client: client, target: newTarget(t)}
}

// running is a bench with a queue that retries fast, and paused one with a queue that dispatches nothing.
func running(t testing.TB) (b *bench, queue string) {
	t.Helper()
	b = newBench(t, cloudtasks.Options{})
	return b, b.queue("q", nil)
}

func paused(t testing.TB) (b *bench, queue string) {
	t.Helper()
	b = newBench(t, cloudtasks.Options{})
	return b, b.pausedQueue("q")
}

// queue creates a queue and returns its full name. With nil settings it retries
// fast, so that tests need not wait.
func (b *bench) queue(id string, settings *cloudtaskspb.Queue) string {
	b.Helper()
	if settings == nil {
		settings = &cloudtaskspb.Queue{RetryConfig: &cloudtaskspb.RetryConfig{
			MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(5 * time.Millisecond)}}
	}
	settings.Name = location + "/queues/" + id
	check.OK(b)(b.client.CreateQueue(b.Context(), &cloudtaskspb.CreateQueueRequest{Parent: location, Queue: settings}))
	return settings.Name
}

// pausedQueue creates a queue that dispatches nothing.
func (b *bench) pausedQueue(id string) string {
	b.Helper()
	name := b.queue(id, nil)
	check.OK(b)(b.client.PauseQueue(b.Context(), &cloudtaskspb.PauseQueueRequest{Name: name}))
	return name
}

func (b *bench) resume(queue string) {
	b.Helper()
	check.OK(b)(b.client.ResumeQueue(b.Context(), &cloudtaskspb.ResumeQueueRequest{Name: queue}))
}

// task is a POST to the target, named id in the queue, or unnamed for no id.
func (b *bench) task(queue, id string) *cloudtaskspb.Task {
	task := &cloudtaskspb.Task{MessageType: &cloudtaskspb.Task_HttpRequest{
		HttpRequest: &cloudtaskspb.HttpRequest{Url: b.target.url + "/step", Body: []byte("body of " + id)}}}
	if id != "" {
		task.Name = queue + "/tasks/" + id
	}
	return task
}

func (b *bench) try(queue string, task *cloudtaskspb.Task) error {
	return errOf(b.client.CreateTask(b.Context(), &cloudtaskspb.CreateTaskRequest{Parent: queue, Task: task}))
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

func (b *bench) create(queue string, task *cloudtaskspb.Task) *cloudtaskspb.Task {
	b.Helper()
	return check.Value(b.client.CreateTask(b.Context(), &cloudtaskspb.CreateTaskRequest{Parent: queue, Task: task}))(b)
}

// createSome creates n tasks, t0, t1 and so on.
func (b *bench) createSome(queue string, n int) {
	b.Helper()
	for i := range n {
		b.create(queue, b.task(queue, fmt.Sprint("t", i)))
	}
}

func (b *bench) get(name string) (*cloudtaskspb.Task, error) {
	return b.client.GetTask(b.Context(), &cloudtaskspb.GetTaskRequest{Name: name, ResponseView: cloudtaskspb.Task_FULL})
}

// settled waits until the queue has no task left.
func (b *bench) settled(queue string) {
	b.Helper()
	b.eventually("an empty queue", func() bool { return b.server.Stats()[queue].Pending == 0 })
}

// answered waits until an answer to the task is recorded.
func (b *bench) answered(name string) {
	b.Helper()
	b.eventually("one answer to be recorded", func() bool {
		got, err := b.get(name)
		return err == nil && got.ResponseCount == 1
	})
}

func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if !retry.Await(ctx, time.Millisecond, holds) {
		b.Fatalf("got nothing in %v, want %s", deadline, what)
	}
}

// want checks the code of err and that its text contains text.
func (b *bench) want(err error, code codes.Code, text string) {
	b.Helper()
	if got := status.Convert(err); got.Code() != code || !strings.Contains(got.Message(), text) {
		b.Errorf("got %v %q, want %v %q", got.Code(), got.Message(), code, text)
	}
}

type call struct {
	at     time.Time
	method string
	path   string
	host   string
	header http.Header
	body   string
}

// target is a real HTTP server. It answers 200, or what answer says.
type target struct {
	url string

	mu     sync.Mutex
	calls  []call
	answer func(n int, w http.ResponseWriter, r *http.Request) // n counts calls from 0
}

func newTarget(t testing.TB) *target {
	tg := &target{}
	server := httptest.NewServer(tg)
	t.Cleanup(server.Close)
	tg.url = server.URL
	return tg
}

func (tg *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	tg.mu.Lock()
	n, answer := len(tg.calls), tg.answer
	tg.calls = append(tg.calls, call{time.Now(), r.Method, r.URL.RequestURI(), r.Host, r.Header.Clone(), string(body)})
	tg.mu.Unlock()
	if answer != nil {
		answer(n, w, r)
	}
}

// statuses answers the n-th call with the n-th code, and 200 from then on.
func (tg *target) statuses(codes ...int) {
	tg.answers(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < len(codes) {
			w.Header().Set("Location", tg.url+"/elsewhere")
			w.WriteHeader(codes[n])
		}
	})
}

func (tg *target) answers(f func(n int, w http.ResponseWriter, r *http.Request)) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	tg.answer = f
}

func (tg *target) got() []call {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return slices.Clone(tg.calls)
}

func (b *bench) wait(n int) []call {
	b.Helper()
	b.eventually(fmt.Sprintf("%d requests to the target", n), func() bool { return len(b.target.got()) >= n })
	return b.target.got()
}
