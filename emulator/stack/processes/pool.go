package processes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
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
	options PoolOptions
	running context.Context // ends when the pool stops
	stop    context.CancelFunc
	keepers sync.WaitGroup

	mu   sync.Mutex
	live []*Process
}

// StartPool starts the children and returns when all are healthy. If one fails to start, or ctx ends before,
// it stops the others and returns the error. ctx bounds the start only.
func StartPool(ctx context.Context, o PoolOptions) (*Pool, error) {
	pool := &Pool{options: o}
	pool.running, pool.stop = context.WithCancel(context.WithoutCancel(ctx))
	first := make([]*Process, o.Size)
	err := together(o.Size, func(i int) (err error) {
		first[i], err = Start(ctx, o.Spec)
		return err
	})
	if err != nil {
		pool.stop()
		for _, p := range first {
			if p != nil {
				p.end()
			}
		}
		return nil, err
	}
	for _, p := range first {
		pool.add(p)
		pool.keepers.Go(func() { pool.keep(p) })
	}
	return pool, nil
}

// together calls the function at once for each number below n, and joins the errors.
func together(n int, call func(i int) error) error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = call(i) })
	}
	calls.Wait()
	return errors.Join(errs...)
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
	return pool.end(func(p *Process) error { return p.Stop(ctx) })
}

// Kill is [Pool.Stop] by SIGKILL.
func (pool *Pool) Kill() error { return pool.end((*Process).Kill) }

func (pool *Pool) end(endOne func(*Process) error) error {
	pool.stop()
	children := pool.Processes()
	err := together(len(children), func(i int) error { return endOne(children[i]) })
	pool.keepers.Wait()
	return err
}

// keep watches one child of the pool and its successors.
func (pool *Pool) keep(p *Process) {
	for p != nil {
		<-p.Done()
		pool.remove(p, pool.running.Err() == nil)
		p = pool.successor()
	}
}

// successor starts a child, and tries until it is healthy; nil if the pool stops.
func (pool *Pool) successor() *Process {
	for pause := firstPause; pool.running.Err() == nil; pause = min(2*pause, lastPause) {
		limited, cancel := context.WithTimeout(pool.running, startLimit)
		p, err := Start(limited, pool.options.Spec)
		cancel()
		switch {
		case err == nil && pool.add(p):
			return p
		case err == nil: // the pool began to stop meanwhile
			p.end()
			return nil
		}
		retry.Pause(pool.running, pause)
	}
	return nil
}

// add adds p to the pool's children, unless the pool is stopping: Stop must see every child.
func (pool *Pool) add(p *Process) bool {
	pool.mu.Lock()
	stopping := pool.running.Err() != nil
	if !stopping {
		pool.live = append(pool.live, p)
	}
	pool.mu.Unlock()
	if !stopping && pool.options.Started != nil {
		pool.options.Started(p)
	}
	return !stopping
}

func (pool *Pool) remove(p *Process, unexpected bool) {
	pool.mu.Lock()
	pool.live = slices.DeleteFunc(pool.live, func(q *Process) bool { return q == p })
	pool.mu.Unlock()
	if pool.options.Ended != nil {
		pool.options.Ended(p, p.Err(), unexpected)
	}
}
