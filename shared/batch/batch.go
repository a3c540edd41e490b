// Package batch lets concurrent calls of one process share a round trip to a database, a node or
// another service.
//
// A [Group] has one kind of call. A call that finds no round trip under way starts
// one, at once unless it may wait for others. Calls that arrive meanwhile share the next one.
package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Options configure a [Group].
type Options[Call, Answer any] struct {
	// Send makes one round trip for all calls and returns an answer for each, in their order. Its
	// context has the values of the first call's context. It ends with it where there is only one
	// call. Otherwise it ends after Timeout. A call that is answered with an [AloneError] is sent
	// again alone, by its caller and in its context.
	Send func(ctx context.Context, all []Call) []Result[Answer]

	// Key names what two calls must not both touch in one round trip; nil: every call may join.
	Key func(Call) string

	// Size is what a call adds to a round trip, and MaxSize the limit of their sum. A larger call
	// goes alone. nil: calls have no size.
	Size    func(Call) int
	MaxSize int

	MaxCalls int           // limit of the calls of one round trip
	Timeout  time.Duration // limit of a round trip with several calls, whose contexts cannot end it

	// Wait is how long a call waits for others if it finds no round trip under way and MayWait is
	// true of it. The round trip starts at once when it is full, or with a call that may not wait.
	Wait    time.Duration
	MayWait func(Call) bool

	// SlowAfter is when a round trip of one call counts as slow, and the next may start beside it. It
	// may have met a row that another session has locked. Each further call adds a fifth of it, up
	// to eightfold: otherwise a busy database would get more and smaller round trips, which cost it more.
	// The other groups of a lane wait for SlowAfter at most, however many calls there are.
	SlowAfter time.Duration

	// Lane holds back a round trip while one of another group in the lane is under way, and not slow.
	// On a busy database each then has more calls. nil: the group waits for its own alone. A group has
	// a lane or Parallel, not both.
	Lane *Lane

	// Alone is how many of the calls that must be made alone are made at once; 0: all. A call that takes
	// longer than SlowAfter does not count: it may have met a row that another session has locked.
	Alone int

	// Parallel starts as many round trips at once as the waiting calls need. Otherwise calls that do
	// not fit one wait for its end.
	Parallel bool
}

// Result is the answer to one call of a round trip.
type Result[Answer any] struct {
	Value Answer
	Err   error
}

// ErrUnanswered is the error of a call whose round trip ended without an answer to it. It may have
// been carried out.
var ErrUnanswered = errors.New("the round trip of this call ended without an answer")

// AloneError is the answer to a call for which a shared round trip did nothing that must not be repeated,
// because of Cause.
type AloneError struct{ Cause error }

func (e AloneError) Error() string { return fmt.Sprintf("the call must be made alone: %v", e.Cause) }

func (e AloneError) Unwrap() error { return e.Cause }

// Group shares round trips among concurrent calls. It is safe for concurrent use.
type Group[Call, Answer any] struct {
	options Options[Call, Answer]
	alone   chan struct{} // has an element for each call that is made alone, and is not slow; nil: no limit

	mu      sync.Mutex
	running bool // a round trip is under way, and is not slow
	waiting []*pending[Call, Answer]
}

// pending is one waiting call. It is answered once.
type pending[Call, Answer any] struct {
	ctx    context.Context
	call   Call
	answer chan Result[Answer] // buffered for the one answer
}

// New returns a group without calls.
func New[Call, Answer any](o Options[Call, Answer]) *Group[Call, Answer] {
	g := &Group[Call, Answer]{options: o}
	if o.Alone > 0 {
		g.alone = make(chan struct{}, o.Alone)
	}
	return g
}

// Do makes one call. If ctx ends before a round trip has taken the call, the call is not made. If
// it ends later, Do returns with the error of ctx at once, and the call may have been carried out.
func (g *Group[Call, Answer]) Do(ctx context.Context, call Call) (Answer, error) {
	return g.do(ctx, call, false)
}

// Finish is [Group.Do] for a caller that must know the answer of a round trip that has taken its
// call, even after ctx has ended.
func (g *Group[Call, Answer]) Finish(ctx context.Context, call Call) (Answer, error) {
	return g.do(ctx, call, true)
}

func (g *Group[Call, Answer]) do(ctx context.Context, call Call, finish bool) (none Answer, err error) {
	p := g.join(ctx, call)
	select {
	case r := <-p.answer:
		return g.settle(ctx, call, r)
	case <-ctx.Done():
	}
	if g.leave(p) || !finish && len(p.answer) == 0 {
		return none, ctx.Err()
	}
	return g.settle(ctx, call, <-p.answer)
}

// settle makes a call again that must be made alone. If ctx ends before it may begin, it is not made again.
func (g *Group[Call, Answer]) settle(ctx context.Context, call Call, r Result[Answer]) (Answer, error) {
	if _, ok := errors.AsType[AloneError](r.Err); !ok {
		return r.Value, r.Err
	}
	leave, err := g.enterAlone(ctx)
	if err != nil {
		return r.Value, err
	}
	defer leave()
	r = g.send(ctx, []Call{call})[0]
	return r.Value, r.Err
}

// enterAlone waits until fewer than Alone calls are made alone, without the slow ones.
func (g *Group[Call, Answer]) enterAlone(ctx context.Context) (leave func(), err error) {
	if g.alone == nil {
		return func() {}, nil
	}
	select {
	case g.alone <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-g.alone })
	if g.options.SlowAfter == 0 {
		return free, nil
	}
	slow := time.AfterFunc(g.options.SlowAfter, free)
	return func() {
		slow.Stop()
		free()
	}, nil
}

func (g *Group[Call, Answer]) join(ctx context.Context, call Call) *pending[Call, Answer] {
	p := &pending[Call, Answer]{ctx, call, make(chan Result[Answer], 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, p)
	switch {
	case g.running:
	case g.options.Wait == 0 || !g.options.MayWait(call) || len(g.waiting) == g.options.MaxCalls:
		g.start()
	case len(g.waiting) == 1:
		time.AfterFunc(g.options.Wait, g.startIdle)
	}
	return p
}

// startIdle starts a round trip if none is under way.
func (g *Group[Call, Answer]) startIdle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running {
		g.start()
	}
}

// leave removes p. It reports false if a round trip has taken p.
func (g *Group[Call, Answer]) leave(p *pending[Call, Answer]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.waiting)
	g.waiting = slices.DeleteFunc(g.waiting, func(x *pending[Call, Answer]) bool { return x == p })
	return len(g.waiting) < before
}

// start starts a round trip for waiting calls, if there are any. The caller holds the lock.
func (g *Group[Call, Answer]) start() {
	g.running = len(g.waiting) > 0
	if g.options.Lane != nil {
		if g.running {
			g.options.Lane.enter(g.startNow)
		}
		return
	}
	for more := g.running; more; more = g.options.Parallel && len(g.waiting) > 0 {
		go g.run(g.take())
	}
}

// startNow starts a round trip in the lane that the group has entered.
func (g *Group[Call, Answer]) startNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.running = false
		go g.options.Lane.exit()
		return
	}
	go g.run(g.take())
}

// next starts the next round trip.
func (g *Group[Call, Answer]) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start()
}

// take removes the calls of one round trip from those that wait, in the order of their arrival. A
// call whose key another one has waits for the next. The caller holds the lock.
func (g *Group[Call, Answer]) take() (taken []*pending[Call, Answer]) {
	size, keys, left := 0, make(map[string]bool), g.waiting[:0:0]
	for i, p := range g.waiting {
		if len(taken) == g.options.MaxCalls || len(taken) > 0 && g.options.Size != nil && size+g.options.Size(p.call) > g.options.MaxSize {
			left = append(left, g.waiting[i:]...)
			break
		}
		if g.options.Key != nil {
			key := g.options.Key(p.call)
			if keys[key] {
				left = append(left, p)
				continue
			}
			keys[key] = true
		}
		if g.options.Size != nil {
			size += g.options.Size(p.call)
		}
		taken = append(taken, p)
	}
	g.waiting = left
	return taken
}

// run makes one round trip and answers every call of it.
func (g *Group[Call, Answer]) run(all []*pending[Call, Answer]) {
	var freed, ended sync.Once
	free := func(calls int, took time.Duration) { freed.Do(func() { g.options.Lane.exitAfter(calls, took) }) }
	end := func(calls int, took time.Duration) { ended.Do(func() { free(calls, took); g.next() }) }
	began := time.Now()
	defer func() { end(len(all), time.Since(began)) }()
	if slowAfter := g.options.SlowAfter; slowAfter > 0 {
		inLane := time.AfterFunc(slowAfter, func() { free(1, 0) })
		defer inLane.Stop()
		slow := time.AfterFunc(slowAfter+time.Duration(min(len(all)-1, 40))*slowAfter/5, func() { end(1, 0) })
		defer slow.Stop()
	}
	calls := make([]Call, len(all))
	for i, p := range all {
		calls[i] = p.call
	}
	ctx := all[0].ctx
	if len(all) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), g.options.Timeout)
		defer cancel()
	}
	results := g.send(ctx, calls)
	for i, p := range all {
		p.answer <- results[i]
	}
}

// send returns a result for each call. It turns a panic into the error of every call: it would end
// the process, and not only one request.
func (g *Group[Call, Answer]) send(ctx context.Context, calls []Call) (results []Result[Answer]) {
	defer func() {
		if p := recover(); p != nil {
			results = make([]Result[Answer], len(calls))
			for i := range results {
				results[i].Err = fmt.Errorf("%w: panic: %v", ErrUnanswered, p)
			}
		}
	}()
	results = g.options.Send(ctx, calls)
	for len(results) < len(calls) {
		results = append(results, Result[Answer]{Err: ErrUnanswered})
	}
	return results
}
