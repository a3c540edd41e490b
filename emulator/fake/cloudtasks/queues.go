package cloudtasks

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/protobuf/proto"
)

// Limits and defaults of queues. Source: comments of RateLimits and
// ListQueuesRequest; docs.cloud.google.com/tasks/docs/configuring-queues.
const (
	maxPerSecond      = 500
	maxConcurrent     = 5000
	defaultConcurrent = 1000
	largestQueuePage  = 9800
)

// queue is one queue and all its tasks.
type queue struct {
	name, id string
	wake     chan struct{} // makes the dispatcher check the queue again

	mu         sync.Mutex
	config     *cloudtaskspb.Queue // replaced, never changed: answers share it
	pace       pace
	tasks      map[string]*task // by short id
	due        schedule
	burnt      burntNames
	running    int // deliveries in flight
	created    int
	dispatched int
}

func (s *service) CreateQueue(_ context.Context, r *cloudtaskspb.CreateQueueRequest) (*cloudtaskspb.Queue, error) {
	if err := checkLocation(r.GetParent()); err != nil {
		return nil, err
	}
	location, id, err := splitQueue(r.GetQueue().GetName())
	if err != nil {
		return nil, err
	}
	if location != r.GetParent() {
		return nil, invalid("The queue %q is not in the location %q of the request.", r.GetQueue().GetName(), r.GetParent())
	}
	config, err := newConfig(r.GetQueue())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[config.Name] != nil {
		return nil, errQueueExists
	}
	now := time.Now()
	q := &queue{
		name: config.Name, id: id, wake: make(chan struct{}, 1), config: config, tasks: make(map[string]*task),
		pace: newPace(config.RateLimits.MaxDispatchesPerSecond, float64(config.RateLimits.MaxBurstSize), now),
	}
	s.queues[q.name] = q
	s.launch(q)
	return config, nil
}

// newConfig makes a complete, running configuration out of what a caller sent.
func newConfig(from *cloudtaskspb.Queue) (*cloudtaskspb.Queue, error) {
	if from.GetHttpTarget() != nil || from.GetAppEngineRoutingOverride() != nil {
		return nil, unsupported("http_target and app_engine_routing_override of queues")
	}
	c := proto.CloneOf(from)
	c.State, c.PurgeTime = cloudtaskspb.Queue_RUNNING, nil
	c.RateLimits = cmp.Or(c.RateLimits, &cloudtaskspb.RateLimits{})
	c.RetryConfig = cmp.Or(c.RetryConfig, &cloudtaskspb.RetryConfig{})
	l := c.RateLimits
	l.MaxDispatchesPerSecond = cmp.Or(l.MaxDispatchesPerSecond, maxPerSecond)
	l.MaxConcurrentDispatches = cmp.Or(l.MaxConcurrentDispatches, defaultConcurrent)
	if err := checkRates(l); err != nil {
		return nil, err
	}
	// Output only; "generally at least equal to max_dispatches_per_second".
	l.MaxBurstSize = max(1, int32(math.Ceil(l.MaxDispatchesPerSecond)))
	fillRetry(c.RetryConfig)
	return c, checkRetry(c.RetryConfig)
}

func checkRates(l *cloudtaskspb.RateLimits) error {
	switch {
	case l.MaxDispatchesPerSecond > maxPerSecond:
		return invalid("RateLimits.maxDispatchesPerSecond must be less than or equal to %d.", maxPerSecond)
	case !(l.MaxDispatchesPerSecond > 0): // not a number, too
		return invalid("RateLimits.maxDispatchesPerSecond cannot be negative.")
	case l.MaxConcurrentDispatches > maxConcurrent:
		return invalid("RateLimits.maxConcurrentDispatches must be less than or equal to %d.", maxConcurrent)
	case l.MaxConcurrentDispatches < 0:
		return invalid("RateLimits.maxConcurrentDispatches cannot be negative.")
	}
	return nil
}

func (s *service) GetQueue(_ context.Context, r *cloudtaskspb.GetQueueRequest) (*cloudtaskspb.Queue, error) {
	q, err := s.find(r.GetName())
	if err != nil {
		return nil, err
	}
	return q.snapshot(), nil
}

func (s *service) PauseQueue(_ context.Context, r *cloudtaskspb.PauseQueueRequest) (*cloudtaskspb.Queue, error) {
	return s.setState(r.GetName(), cloudtaskspb.Queue_PAUSED)
}

func (s *service) ResumeQueue(_ context.Context, r *cloudtaskspb.ResumeQueueRequest) (*cloudtaskspb.Queue, error) {
	return s.setState(r.GetName(), cloudtaskspb.Queue_RUNNING)
}

func (s *service) setState(name string, state cloudtaskspb.Queue_State) (*cloudtaskspb.Queue, error) {
	q, err := s.find(name)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.config = proto.CloneOf(q.config)
	q.config.State = state
	q.poke()
	return q.config, nil
}

// ListQueues implements the RPC of that name, without filters.
func (s *service) ListQueues(_ context.Context, r *cloudtaskspb.ListQueuesRequest) (*cloudtaskspb.ListQueuesResponse, error) {
	if err := checkLocation(r.GetParent()); err != nil {
		return nil, err
	}
	if r.GetFilter() != "" {
		return nil, unsupported("filters of ListQueues")
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.queues)), func(name string) bool {
		return !strings.HasPrefix(name, r.GetParent()+"/queues/")
	})
	names, next, err := page(names, int(r.GetPageSize()), largestQueuePage, r.GetPageToken())
	if err != nil {
		return nil, err
	}
	answer := &cloudtaskspb.ListQueuesResponse{NextPageToken: next}
	for _, name := range names {
		answer.Queues = append(answer.Queues, s.queues[name].snapshot())
	}
	return answer, nil
}

// find returns the queue with that full name, or the error of the RPC.
func (s *service) find(name string) (*queue, error) {
	if _, _, err := splitQueue(name); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[name]; q != nil {
		return q, nil
	}
	return nil, errNoQueue
}

func (q *queue) snapshot() *cloudtaskspb.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.config
}

func (q *queue) stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueStats{Created: q.created, Dispatched: q.dispatched, Pending: len(q.tasks)}
}

// clear throws all tasks away and returns how many there were.
func (q *queue) clear(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	had := len(q.tasks)
	for id := range q.tasks {
		q.burnt.burn(id, now)
	}
	clear(q.tasks)
	q.due = nil
	return had
}

// poke makes the dispatcher check the queue again.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default: // it has a signal already
	}
}
