package cloudtasks

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Limits of tasks. Sources: comments of Task and of ListTasksRequest; the largest
// stored size was measured on the service.
const (
	defaultDeadline  = 10 * time.Minute
	shortestDeadline = 15 * time.Second
	longestDeadline  = 30 * time.Minute
	furthestSchedule = 30 * 24 * time.Hour
	largestTask      = 1<<20 - 7 // bytes, as stored and serialised
	largestTaskPage  = 1000
)

// task is one task. What it was created with never changes; its queue's lock
// guards the rest.
type task struct {
	name, id  string
	request   *cloudtaskspb.HttpRequest
	retry     *cloudtaskspb.RetryConfig // nil means the queue's
	deadline  time.Duration
	createdAt time.Time

	dueAt      time.Time // of the next attempt, or of the one in flight
	inFlight   int       // deliveries without an answer yet
	dispatches int       // attempts started
	responses  int       // attempts answered
	executions int       // attempts answered with anything but 5xx
	previous   int       // HTTP status of the last failure
	first      *cloudtaskspb.Attempt
	last       *cloudtaskspb.Attempt // replaced, never changed: answers share it
}

func (s *Server) CreateTask(ctx context.Context, r *cloudtaskspb.CreateTaskRequest) (*cloudtaskspb.Task, error) {
	fault := s.faults.Load()
	if fault.Unavailable {
		return nil, errUnavailable
	}
	if err := checkQueue(r.GetParent()); err != nil {
		return nil, err
	}
	t, err := newTask(r.GetParent(), r.GetTask(), time.Now())
	if err != nil {
		return nil, err
	}
	q, err := s.find(r.GetParent())
	if err != nil {
		return nil, err
	}
	if err := s.checkAccount(ctx, t.request); err != nil {
		return nil, err
	}
	stored, err := q.add(t, r.GetResponseView(), fault.hits(fault.Drop))
	if err != nil {
		return nil, err
	}
	if fault.hits(fault.DropResponse) {
		return nil, errUnavailable
	}
	return stored, nil
}

// newTask returns the stored form of a task that a caller sent, or an error.
func newTask(queue string, from *cloudtaskspb.Task, now time.Time) (*task, error) {
	t := &task{deadline: defaultDeadline, createdAt: now.Truncate(time.Second)}
	var err error
	if t.name, t.id, err = nameTask(queue, from.GetName()); err != nil {
		return nil, err
	}
	if t.dueAt, err = scheduleTime(from.GetScheduleTime(), now); err != nil {
		return nil, err
	}
	if d := from.GetDispatchDeadline(); d != nil {
		t.deadline = d.AsDuration().Truncate(time.Millisecond)
		if t.deadline < shortestDeadline || t.deadline > longestDeadline {
			return nil, invalid("Task.dispatchDeadline must be between [15s, 30m].")
		}
	}
	if c := from.GetRetryConfig(); c != nil {
		fillRetry(c)
		if err := checkRetry(c); err != nil {
			return nil, err
		}
		t.retry = c
	}
	if t.request, err = newRequest(from); err != nil {
		return nil, err
	}
	stored := t.message(cloudtaskspb.Task_FULL)
	stored.View = cloudtaskspb.Task_VIEW_UNSPECIFIED // not stored
	if proto.Size(stored) > largestTask {
		return nil, errTooLarge
	}
	return t, nil
}

// nameTask checks the name a caller chose or makes one up.
func nameTask(queue, name string) (full, id string, err error) {
	if name == "" {
		id = strconv.FormatUint(rand.Uint64(), 10)
		return queue + "/tasks/" + id, id, nil
	}
	owner, id, err := splitTask(name)
	if err != nil {
		return "", "", err
	}
	if owner != queue {
		return "", "", invalid("The queue name from request ('%s') must be the same as the queue name in the named task ('%s').", queue, owner)
	}
	return name, id, nil
}

func scheduleTime(asked *timestamppb.Timestamp, now time.Time) (time.Time, error) {
	at := asked.AsTime()
	if asked == nil || at.Before(now) {
		at = now
	}
	if at.Sub(now) > furthestSchedule {
		return at, invalid("The Task.scheduleTime, %s, is too far in the future. Schedule time must be no more than %.0fh in the future.",
			at.Format(time.RFC3339), furthestSchedule.Hours())
	}
	return at.Truncate(time.Microsecond), nil
}

// checkAccount asks for a token to learn whether the task's account exists. The
// code is recorded from the service; the text is ours.
func (s *Server) checkAccount(ctx context.Context, r *cloudtaskspb.HttpRequest) error {
	wanted := r.GetOidcToken()
	if wanted == nil {
		return nil
	}
	if s.tokens == nil {
		return status.Error(codes.FailedPrecondition, "the Cloud Tasks emulator was started without a TokenSource, so tasks cannot carry an oidc_token")
	}
	email := wanted.GetServiceAccountEmail()
	_, err := s.tokens.Token(ctx, email, audience(r))
	switch {
	case errors.Is(err, ErrUnknownAccount):
		return status.Errorf(codes.NotFound, "The service account %q does not exist.", email)
	case err != nil:
		return status.Errorf(codes.Unavailable, "mint a token for %q: %v", email, err)
	}
	return nil
}

// add stores the task and returns it as the caller sees it. A lost task is
// acknowledged and not stored.
func (q *queue) add(t *task, view cloudtaskspb.Task_View, lost bool) (*cloudtaskspb.Task, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.gone:
		return nil, errNoQueue
	default:
	}
	now := time.Now()
	if q.tasks[t.id] != nil || q.burnt.has(t.id, now) {
		return nil, errTaskExists
	}
	if lost {
		q.burnt.burn(t.id, now, q.window)
		return t.message(view), nil
	}
	q.tasks[t.id] = t
	q.created++
	q.due.add(t)
	if q.due[0] == t { // otherwise the dispatcher waits for an earlier one anyway
		q.poke()
	}
	return t.message(view), nil
}

// end removes the task and burns its name. The caller holds q.mu.
func (q *queue) end(t *task, now time.Time) {
	delete(q.tasks, t.id)
	q.due.drop(t)
	q.burnt.burn(t.id, now, q.window)
}

// withTask runs do on the named task, under the lock of its queue.
func (s *Server) withTask(name string, do func(*queue, *task)) error {
	owner, id, err := splitTask(name)
	if err != nil {
		return err
	}
	q, err := s.find(owner)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tasks[id]
	switch {
	case t != nil:
		do(q, t)
		return nil
	case q.burnt.has(id, time.Now()):
		return errTaskGone
	}
	return errNoEntity
}

func (s *Server) GetTask(_ context.Context, r *cloudtaskspb.GetTaskRequest) (m *cloudtaskspb.Task, err error) {
	err = s.withTask(r.GetName(), func(_ *queue, t *task) { m = t.message(r.GetResponseView()) })
	return m, err
}

// DeleteTask lets a request in flight run on, and ignores its answer.
func (s *Server) DeleteTask(_ context.Context, r *cloudtaskspb.DeleteTaskRequest) (*emptypb.Empty, error) {
	err := s.withTask(r.GetName(), func(q *queue, t *task) { q.end(t, time.Now()) })
	return &emptypb.Empty{}, err
}

// RunTask starts an attempt whatever the queue's state and limits.
func (s *Server) RunTask(_ context.Context, r *cloudtaskspb.RunTaskRequest) (m *cloudtaskspb.Task, err error) {
	err = s.withTask(r.GetName(), func(q *queue, t *task) {
		q.due.drop(t)
		t.dueAt = time.Now().Truncate(time.Microsecond)
		m = t.message(r.GetResponseView())
		s.start(q, t, t.dueAt)
	})
	return m, err
}

func (s *Server) ListTasks(_ context.Context, r *cloudtaskspb.ListTasksRequest) (*cloudtaskspb.ListTasksResponse, error) {
	q, err := s.find(r.GetParent())
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ids, next, err := page(slices.Sorted(maps.Keys(q.tasks)), int(r.GetPageSize()), largestTaskPage, r.GetPageToken())
	if err != nil {
		return nil, err
	}
	answer := &cloudtaskspb.ListTasksResponse{NextPageToken: next}
	for _, id := range ids {
		answer.Tasks = append(answer.Tasks, q.tasks[id].message(r.GetResponseView()))
	}
	return answer, nil
}

// message is the task as the API shows it: only the full view has the body. The
// caller holds the queue's lock.
func (t *task) message(view cloudtaskspb.Task_View) *cloudtaskspb.Task {
	request := t.request
	if view != cloudtaskspb.Task_FULL {
		view = cloudtaskspb.Task_BASIC
		request = &cloudtaskspb.HttpRequest{
			Url: t.request.Url, HttpMethod: t.request.HttpMethod, Headers: t.request.Headers,
			AuthorizationHeader: t.request.AuthorizationHeader,
		}
	}
	return &cloudtaskspb.Task{
		Name:             t.name,
		MessageType:      &cloudtaskspb.Task_HttpRequest{HttpRequest: request},
		ScheduleTime:     timestamppb.New(t.dueAt),
		CreateTime:       timestamppb.New(t.createdAt),
		DispatchDeadline: durationpb.New(t.deadline),
		DispatchCount:    int32(t.dispatches),
		ResponseCount:    int32(t.responses),
		FirstAttempt:     t.first,
		LastAttempt:      t.last,
		View:             view,
		RetryConfig:      t.retry,
	}
}
