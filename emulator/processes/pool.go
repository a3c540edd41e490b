package processes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// How long a pool waits before it starts the next child after one that could
// not be started: doubling from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	startLimit = 30 * time.Second // for a child to become healthy
)

// PoolOptions say what a pool keeps alive and whom it tells.
type PoolOptions struct {
	Spec Spec
	Size int // how many children

	// Started, if not nil, is called with each child once it is healthy. Ended,
	// if not nil, is called with each such child after its end, before the next
	// is started; err is the child's, and unexpected says that the pool was not
	// being stopped. For one child the calls follow one another; for several
	// they may overlap. Neither may call the pool's Stop.
	Started func(*Process)
	Ended   func(p *Process, err error, unexpected bool)

	// Failed, if not nil, is called when a replacement could not be started; the
	// pool goes on trying.
	Failed func(error)
}

// Pool keeps a number of children alive: whenever one ends unexpectedly, however
// it did, another is started. Make one with [StartPool].
type Pool struct {
	options  PoolOptions
	stop     context.CancelFunc
	stopping <-chan struct{}
	keepers  sync.WaitGroup

	mu   sync.Mutex
	live []*Process
}

// StartPool starts the children and returns when all are healthy. If one cannot
// be started, or ctx ends before, it stops the others and returns why. ctx
// bounds the start only.
func StartPool(ctx context.Context, o PoolOptions) (*Pool, error) {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	pool := &Pool{options: o, stop: cancel, stopping: background.Done()}
	first := make([]*Process, o.Size)
	errs := make([]error, o.Size)
	var starts sync.WaitGroup
	for i := range first {
		starts.Go(func() { first[i], errs[i] = Start(ctx, o.Spec) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		cancel()
		for _, p := range first {
			if p != nil {
				_ = p.Kill()
				<-p.Done()
			}
		}
		return nil, err
	}
	for _, p := range first {
		pool.add(p)
		pool.keepers.Go(func() { pool.keep(background, p) })
	}
	return pool, nil
}

// Processes are the children that are alive and have been healthy, the oldest
// first.
func (pool *Pool) Processes() []*Process {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	return slices.Clone(pool.live)
}

// Stop ends the pool: nothing is started any more, and every child is stopped as
// by [Process.Stop]. When it returns, all children have ended. Stopping again is
// harmless.
func (pool *Pool) Stop(ctx context.Context) error {
	pool.stop()
	children := pool.Processes()
	errs := make([]error, len(children))
	var stops sync.WaitGroup
	for i, p := range children {
		stops.Go(func() { errs[i] = p.Stop(ctx) })
	}
	stops.Wait()
	pool.keepers.Wait()
	return errors.Join(errs...)
}

// keep watches one place of the pool: p, and after it its successors.
func (pool *Pool) keep(ctx context.Context, p *Process) {
	for p != nil {
		<-p.Done()
		pool.remove(p, ctx.Err() == nil)
		p = pool.successor(ctx)
	}
}

// successor starts a child, trying until it is healthy; nil if the pool stops.
func (pool *Pool) successor(ctx context.Context) *Process {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		limited, cancel := context.WithTimeout(ctx, startLimit)
		p, err := Start(limited, pool.options.Spec)
		cancel()
		switch {
		case err == nil && pool.add(p):
			return p
		case err == nil: // the pool began to stop in the meantime
			_ = p.Kill()
			<-p.Done()
			return nil
		case ctx.Err() == nil && pool.options.Failed != nil:
			pool.options.Failed(fmt.Errorf("replace a child: %w", err))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// add makes p one of the pool's children, unless the pool is stopping: whoever
// stops it must have seen every child.
func (pool *Pool) add(p *Process) bool {
	pool.mu.Lock()
	select {
	case <-pool.stopping:
		pool.mu.Unlock()
		return false
	default:
	}
	pool.live = append(pool.live, p)
	pool.mu.Unlock()
	if pool.options.Started != nil {
		pool.options.Started(p)
	}
	return true
}

func (pool *Pool) remove(p *Process, unexpected bool) {
	pool.mu.Lock()
	pool.live = slices.DeleteFunc(pool.live, func(q *Process) bool { return q == p })
	pool.mu.Unlock()
	if pool.options.Ended != nil {
		pool.options.Ended(p, p.Err(), unexpected)
	}
}
