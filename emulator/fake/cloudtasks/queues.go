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
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
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
	window   time.Duration // how long names of gone tasks stay burnt
	wake     chan struct{} // makes the dispatcher check the queue again
	gone     chan struct{} // closed when the queue is deleted

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

func (s *Server) CreateQueue(_ context.Context, r *cloudtaskspb.CreateQueueRequest) (*cloudtaskspb.Queue, error) {
	if err := checkLocation(r.GetParent()); err != nil {
		return nil, err
	}
	if err := checkQueue(r.GetQueue().GetName()); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(r.GetQueue().GetName(), r.GetParent()+"/queues/") {
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
	return s.add(config)
}

// UpdateQueue creates a queue that does not exist.
func (s *Server) UpdateQueue(_ context.Context, r *cloudtaskspb.UpdateQueueRequest) (*cloudtaskspb.Queue, error) {
	if err := checkQueue(r.GetQueue().GetName()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[r.GetQueue().GetName()]
	if q == nil {
		config, err := newConfig(r.GetQueue())
		if err != nil {
			return nil, err
		}
		return s.add(config)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	merged := r.GetQueue()
	if paths := r.GetUpdateMask().GetPaths(); len(paths) > 0 {
		merged = proto.CloneOf(q.config)
		for _, path := range paths {
			if !copyField(merged.ProtoReflect(), r.GetQueue().ProtoReflect(), path) {
				return nil, invalid("update_mask has the unknown path %q.", path)
			}
		}
	}
	config, err := newConfig(merged)
	if err != nil {
		return nil, err
	}
	config.Name, config.State, config.PurgeTime = q.config.Name, q.config.State, q.config.PurgeTime
	q.configure(config)
	return config, nil
}

// add adds a queue and starts its dispatcher. The caller holds s.mu and knows
// that no queue has that name.
func (s *Server) add(config *cloudtaskspb.Queue) (*cloudtaskspb.Queue, error) {
	now := time.Now()
	if s.blocks.has(config.Name, now) {
		return nil, errQueueRecent
	}
	_, id, _ := strings.Cut(config.Name, "/queues/")
	q := &queue{
		name: config.Name, id: id, window: s.window,
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
		config: config, tasks: make(map[string]*task),
		pace: newPace(config.RateLimits.MaxDispatchesPerSecond, float64(config.RateLimits.MaxBurstSize), now),
	}
	s.queues[q.name] = q
	s.work.Go(func() { s.dispatch(q) })
	return config, nil
}

// newConfig makes a complete, running configuration out of what a caller sent.
func newConfig(from *cloudtaskspb.Queue) (*cloudtaskspb.Queue, error) {
	if from.GetHttpTarget() != nil || from.GetAppEngineRoutingOverride() != nil {
		return nil, unsupported("http_target and app_engine_routing_override of queues")
	}
	c := proto.CloneOf(from)
	c.State, c.PurgeTime = cloudtaskspb.Queue_RUNNING, nil
	if c.RateLimits == nil {
		c.RateLimits = &cloudtaskspb.RateLimits{}
	}
	if c.RetryConfig == nil {
		c.RetryConfig = &cloudtaskspb.RetryConfig{}
	}
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

// copyField sets the field of to that the path of an update mask names, such as
// "retry_config.max_attempts", to its value in from. It tells whether the path
// names one.
func copyField(to, from protoreflect.Message, path string) bool {
	name, rest, nested := strings.Cut(path, ".")
	field := to.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case field == nil, nested && (field.Message() == nil || field.Cardinality() == protoreflect.Repeated):
		return false
	case nested:
		return copyField(to.Mutable(field).Message(), from.Get(field).Message(), rest)
	case from.Has(field):
		to.Set(field, from.Get(field))
	default:
		to.Clear(field)
	}
	return true
}

func (s *Server) GetQueue(_ context.Context, r *cloudtaskspb.GetQueueRequest) (*cloudtaskspb.Queue, error) {
	q, err := s.find(r.GetName())
	if err != nil {
		return nil, err
	}
	return q.snapshot(), nil
}

func (s *Server) PauseQueue(_ context.Context, r *cloudtaskspb.PauseQueueRequest) (*cloudtaskspb.Queue, error) {
	return s.change(r.GetName(), func(_ *queue, c *cloudtaskspb.Queue) { c.State = cloudtaskspb.Queue_PAUSED })
}

func (s *Server) ResumeQueue(_ context.Context, r *cloudtaskspb.ResumeQueueRequest) (*cloudtaskspb.Queue, error) {
	return s.change(r.GetName(), func(_ *queue, c *cloudtaskspb.Queue) { c.State = cloudtaskspb.Queue_RUNNING })
}

// PurgeQueue takes effect at once.
func (s *Server) PurgeQueue(_ context.Context, r *cloudtaskspb.PurgeQueueRequest) (*cloudtaskspb.Queue, error) {
	return s.change(r.GetName(), func(q *queue, c *cloudtaskspb.Queue) {
		now := time.Now()
		q.removeAll(now)
		c.PurgeTime = timestamppb.New(now.Truncate(time.Microsecond))
	})
}

// change runs edit on a copy of the queue's configuration, under its lock, and
// returns the copy, which is the configuration from then on.
func (s *Server) change(name string, edit func(*queue, *cloudtaskspb.Queue)) (*cloudtaskspb.Queue, error) {
	q, err := s.find(name)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := proto.CloneOf(q.config)
	edit(q, c)
	q.configure(c)
	return c, nil
}

// DeleteQueue lets requests in flight run on, and ignores their answers.
func (s *Server) DeleteQueue(_ context.Context, r *cloudtaskspb.DeleteQueueRequest) (*emptypb.Empty, error) {
	if err := checkQueue(r.GetName()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[r.GetName()]
	if q == nil {
		return nil, errNoEntity
	}
	delete(s.queues, q.name)
	s.blocks.burn(q.name, time.Now(), s.tombstone)
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.gone)
	q.removeAll(time.Now())
	return &emptypb.Empty{}, nil
}

// ListQueues has no filters.
func (s *Server) ListQueues(_ context.Context, r *cloudtaskspb.ListQueuesRequest) (*cloudtaskspb.ListQueuesResponse, error) {
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
func (s *Server) find(name string) (*queue, error) {
	if err := checkQueue(name); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[name]; q != nil {
		return q, nil
	}
	return nil, errNoQueue
}

// configure replaces the configuration. The caller holds q.mu.
func (q *queue) configure(c *cloudtaskspb.Queue) {
	q.config = c
	q.pace.limit(c.RateLimits.MaxDispatchesPerSecond, float64(c.RateLimits.MaxBurstSize), time.Now())
	q.poke()
}

func (q *queue) snapshot() *cloudtaskspb.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.config
}

// removeAll ends every task. The caller holds q.mu.
func (q *queue) removeAll(now time.Time) {
	for id := range q.tasks {
		q.burnt.burn(id, now, q.window)
	}
	clear(q.tasks)
	q.due = nil
}

// poke makes the dispatcher check the queue again.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default: // it has a signal already
	}
}
