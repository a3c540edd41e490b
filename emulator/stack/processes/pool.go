package processes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// How long a pool waits after a failed start: doubling from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	startLimit = 30 * time.Second // for a child to become healthy
)

// PoolOptions describe the children of a pool and its callbacks.
type PoolOptions struct {
	Spec Spec
	Size int // number of children

	// Started, if not nil, is called with each child once it is healthy. Ended, if not nil, is called
	// after the end of each such child, before the next is started. The error err is the child's, and
	// unexpected is false while the pool is being stopped. The calls for one child are sequential, those for several
	// may overlap. Neither may call the pool's Stop.
	Started func(*Process)
	Ended   func(p *Process, err error, unexpected bool)
}

// Pool keeps a number of children running: whenever one ends unexpectedly, it starts another. Make one with
// [StartPool].
type Pool struct {
	options  PoolOptions
	stop     context.CancelFunc
	stopping <-chan struct{}
	keepers  sync.WaitGroup

	mu   sync.Mutex
	live []*Process
}

// StartPool starts the children and returns when all are healthy. If one fails to start, or ctx ends before,
// it stops the others and returns the error. ctx bounds the start only.
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

// Processes returns the running children that have been healthy, oldest first.
func (pool *Pool) Processes() []*Process {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	return slices.Clone(pool.live)
}

// Stop ends the pool: it starts no more children and stops each by [Process.Stop]. All have ended when it
// returns. A second call does nothing.
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

// Kill is [Pool.Stop] by SIGKILL.
func (pool *Pool) Kill() error {
	pool.stop()
	var errs []error
	for _, p := range pool.Processes() {
		errs = append(errs, p.Kill())
	}
	pool.keepers.Wait()
	return errors.Join(errs...)
}

// keep watches one child of the pool and its successors.
func (pool *Pool) keep(ctx context.Context, p *Process) {
	for p != nil {
		<-p.Done()
		pool.remove(p, ctx.Err() == nil)
		p = pool.successor(ctx)
	}
}

// successor starts a child, and tries until it is healthy; nil if the pool stops.
func (pool *Pool) successor(ctx context.Context) *Process {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		limited, cancel := context.WithTimeout(ctx, startLimit)
		p, err := Start(limited, pool.options.Spec)
		cancel()
		switch {
		case err == nil && pool.add(p):
			return p
		case err == nil: // the pool began to stop meanwhile
			_ = p.Kill()
			<-p.Done()
			return nil
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

// add adds p to the pool's children, unless the pool is stopping: Stop must see every child.
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
