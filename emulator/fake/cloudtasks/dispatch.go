package cloudtasks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// untilPoked is how long a dispatcher sleeps that has nothing to wait for.
const untilPoked = time.Hour

// idleConnections is how many unused connections are kept per target.
const idleConnections = 256

// newClient is the client that sends tasks. A redirect is an answer like any
// other, recorded as a failed attempt.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, idleConnections
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dispatch sends the tasks of one queue until the server is closed or the queue is
// deleted.
func (s *Server) dispatch(q *queue) {
	timer := time.NewTimer(untilPoked)
	defer timer.Stop()
	for {
		timer.Reset(s.startDue(q))
		select {
		case <-s.open.Done():
			return
		case <-q.gone:
			return
		case <-q.wake:
		case <-timer.C:
		}
	}
}

// startDue starts every attempt that may start now and returns how long to wait
// for the next.
func (s *Server) startDue(q *queue) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if pause := q.wait(time.Now()); pause > 0 {
			return pause
		}
		q.pace.take()
		s.start(q, q.due.earliest(), time.Time{})
	}
}

// wait is how long the queue's next task has to wait; zero means it may go.
func (q *queue) wait(now time.Time) time.Duration {
	switch {
	case q.config.State != cloudtaskspb.Queue_RUNNING,
		len(q.due) == 0,
		q.running >= int(q.config.RateLimits.MaxConcurrentDispatches):
		return untilPoked
	case now.Before(q.due[0].dueAt):
		return q.due[0].dueAt.Sub(now)
	}
	return q.pace.wait(now)
}

// delivery is one request of one attempt.
type delivery struct {
	task      *task
	header    http.Header
	pause     time.Duration // by [Faults] before it leaves
	scheduled time.Time
	started   time.Time
	forced    time.Time // when RunTask was called; zero for other attempts
}

// start begins an attempt. The caller holds q.mu.
func (s *Server) start(q *queue, t *task, forced time.Time) {
	now := time.Now()
	header := t.dispatchHeaders(q.id)
	t.dispatches++
	t.last = &cloudtaskspb.Attempt{ScheduleTime: timestamppb.New(t.dueAt), DispatchTime: microseconds(now)}
	if t.first == nil {
		t.first = &cloudtaskspb.Attempt{DispatchTime: t.last.DispatchTime}
	}
	for _, pause := range s.faults.Load().delays() {
		d := delivery{task: t, header: header.Clone(), pause: pause, scheduled: t.dueAt, started: now, forced: forced}
		t.inFlight++
		q.running++
		q.dispatched++
		s.work.Go(func() {
			a := s.deliver(s.open, d)
			if !a.succeeded() {
				s.log.DebugContext(s.open, "attempt failed", "task", t.name, "status", a.status, "error", a.err)
			}
			q.settle(d, a, time.Now())
		})
	}
}

// answer is the result of a delivery.
type answer struct {
	// status is the target's HTTP status. Without an answer it is 504 after the
	// deadline, as recorded, and 503 otherwise, by analogy.
	status     int
	answered   bool          // the target answered
	retryAfter time.Duration // what the target asked for, or zero
	err        error         // why no answer came
}

func (a answer) succeeded() bool { return a.status/100 == 2 }

// overloaded tells whether the target asked the queue to slow down.
func (a answer) overloaded() bool {
	return a.answered && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable)
}

// deliver sends one request and waits for its answer, at most until the dispatch
// deadline. The extra pause is not part of that.
func (s *Server) deliver(ctx context.Context, d delivery) answer {
	if d.pause > 0 {
		select {
		case <-ctx.Done():
			return unanswered(ctx, ctx.Err())
		case <-time.After(d.pause):
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.task.deadline)
	defer cancel()
	response, err := s.send(ctx, d)
	if err != nil {
		return unanswered(ctx, err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return unanswered(ctx, fmt.Errorf("read the answer: %w", err))
	}
	a := answer{status: response.StatusCode, answered: true}
	if !a.succeeded() {
		a.retryAfter = retryAfter(response.Header.Get("Retry-After"), time.Now())
	} else if fault := s.faults.Load(); fault.hits(fault.DropAck) {
		return answer{status: http.StatusGatewayTimeout, err: errors.New("acknowledgement dropped by a fault")}
	}
	return a
}

func (s *Server) send(ctx context.Context, d delivery) (*http.Response, error) {
	r := d.task.request
	request, err := http.NewRequestWithContext(ctx, r.HttpMethod.String(), r.Url, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	request.Header = d.header
	if wanted := r.GetOidcToken(); wanted != nil {
		token, err := s.tokens.Token(ctx, wanted.GetServiceAccountEmail(), audience(r))
		if err != nil {
			return nil, fmt.Errorf("mint a token for %s: %w", wanted.GetServiceAccountEmail(), err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return s.client.Do(request)
}

func unanswered(ctx context.Context, err error) answer {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return answer{status: http.StatusGatewayTimeout, err: err}
	}
	return answer{status: http.StatusServiceUnavailable, err: err}
}

// retryAfter reads a Retry-After header, seconds or a date; zero means none.
func retryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// settle takes in the answer to a delivery: the task is done, given up or
// scheduled again. A failed copy waits for the copies still in flight.
func (q *queue) settle(d delivery, a answer, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.poke()
	t := d.task
	q.running--
	t.inFlight--
	q.pace.heed(a, now)
	if q.tasks[t.id] != t {
		return // deleted meanwhile, or done by another copy
	}
	t.record(d, a, now)
	retry := cmp.Or(t.retry, q.config.RetryConfig)
	switch {
	case a.succeeded():
		q.end(t, now)
	case t.inFlight > 0:
	case exhausted(retry, t.dispatches, t.createdAt, t.first.DispatchTime.AsTime(), now):
		q.end(t, now)
	default:
		from := cmp.Or(d.forced, now)
		pause := max(backoff(retry, t.dispatches), a.retryAfter)
		t.dueAt = from.Add(pause).Truncate(time.Microsecond)
		q.due.add(t)
	}
}

// record notes the answer on the task.
func (t *task) record(d delivery, a answer, now time.Time) {
	t.previous = a.status
	t.last = &cloudtaskspb.Attempt{
		ScheduleTime: timestamppb.New(d.scheduled), DispatchTime: microseconds(d.started),
		ResponseTime: microseconds(now), ResponseStatus: a.rpcStatus(),
	}
	if !a.answered {
		return
	}
	t.responses++
	if a.status/100 != 5 {
		t.executions++
	}
}

// codeOf maps HTTP status codes. Source: the comments of google.rpc.Code.
var codeOf = map[int]codes.Code{
	400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.NotFound,
	409: codes.AlreadyExists, 429: codes.ResourceExhausted, 499: codes.Canceled, 500: codes.Internal,
	501: codes.Unimplemented, 503: codes.Unavailable, 504: codes.DeadlineExceeded,
}

// rpcStatus is the answer as google.rpc.Status.
func (a answer) rpcStatus() *rpc.Status {
	code, known := codeOf[a.status]
	if !known && !a.succeeded() {
		code = codes.Unknown
	}
	return &rpc.Status{Code: int32(code), Message: fmt.Sprintf("HTTP status code %d", a.status)}
}

func microseconds(at time.Time) *timestamppb.Timestamp {
	return timestamppb.New(at.Truncate(time.Microsecond))
}
