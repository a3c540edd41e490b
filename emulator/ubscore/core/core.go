// Package core is the trading core at work: one goroutine that decides requests
// in the order in which they come, writes what it decided to the log, and tells
// nobody before that is durable. Requests that wait while the disk works share
// the next write and fsync.
//
// What a core does not know to be so it does not say: after a failed write, or
// with a log or a snapshot that is not as it was written, it is halted, which
// means that every method answers with a [*Halt] for as long as the process
// lives.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/ubscore/book"
	"github.com/fencepost/fencepost/emulator/ubscore/wal"
	"github.com/fencepost/fencepost/shared/crash"
)

// Options say where a core keeps what it knows, and for how long.
type Options struct {
	Folder        string        // its own; another process that wants it does not start
	Horizon       time.Duration // how long keys are kept at least; 0: 30 days
	SnapshotEvery int           // lines between two snapshots; 0: 200,000
	SegmentBytes  int64         // of the log's files; 0: as [wal.Options] has it
	Disk          wal.Disk      // nil: [wal.System]

	Now     func() time.Time     // nil: time.Now
	Elapsed func() time.Duration // since any moment, by a clock that nobody sets; nil: since Open
	Points  crash.Points
	Log     *slog.Logger // nil: slog.Default
}

// The defaults.
const (
	DefaultHorizon       = 30 * 24 * time.Hour
	DefaultSnapshotEvery = 200_000
)

const (
	maxWaiting = 16 << 10 // requests; more are told [ErrBusy]
	maxBatch   = 4 << 10  // requests that share a commit
)

// ErrBusy reports that too many requests wait; nothing was done.
var ErrBusy = errors.New("too many requests wait")

// ErrClosed reports that the core is closed; what became of the request is
// unknown.
var ErrClosed = errors.New("the core is closed")

// Core is a trading core. Make one with [Open]; its methods may be called from
// any goroutine.
type Core struct {
	options Options
	log     *slog.Logger
	wal     *wal.Log
	book    *book.Book // the goroutine's own
	jobs    chan job
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed at the goroutine's end
	closing sync.Once
	halted  atomic.Pointer[Halt]
	views   views
	clock   clock // the goroutine's own

	lines      lines
	snapshot   uint64        // the line of the newest snapshot
	snapshots  chan struct{} // gets one when a snapshot was written, or was not
	writing    bool          // whether one is being written
	recordings []result
}

// job is a request, or a look at the book.
type job struct {
	request book.Request
	resolve bool
	record  *book.Word       // nil: it is not about a forgotten key
	found   uint64           // of an adjustment: the balance that it was decided by
	look    func(*book.Book) // called when everything that the book holds is durable
	done    chan result
}

type result struct {
	entry book.Entry
	err   error
}

// Open recovers what the folder holds, or begins anew in an empty one. The error
// says why the core cannot even be halted: the folder is another process', which
// is [wal.ErrLocked]. A core that had to halt is returned without an error.
func Open(o Options) (*Core, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		opened := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(opened) }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Disk == nil {
		o.Disk = wal.System{}
	}
	if o.Horizon == 0 {
		o.Horizon = DefaultHorizon
	}
	if o.SnapshotEvery == 0 {
		o.SnapshotEvery = DefaultSnapshotEvery
	}
	c := &Core{
		options: o, log: o.Log, jobs: make(chan job, maxWaiting),
		stop: make(chan struct{}), stopped: make(chan struct{}), snapshots: make(chan struct{}, 1),
		clock: newClock(o, 0),
	}
	if err := c.recover(); errors.Is(err, wal.ErrLocked) {
		return nil, err
	} else if err != nil {
		c.halt(err)
	}
	go c.run()
	return c, nil
}

// Do does what is asked, once, and answers the line that is stored under the
// request's key. The error is one of [book]'s, and then nothing is stored; or it
// leaves open what became of the request.
func (c *Core) Do(ctx context.Context, r book.Request) (book.Entry, error) {
	return c.ask(ctx, job{request: r})
}

// Resolve answers the line that is stored under the request's key, or stores that
// it is refused for ever. The errors are those of [Core.Do].
func (c *Core) Resolve(ctx context.Context, r book.Request) (book.Entry, error) {
	return c.ask(ctx, job{request: r, resolve: true})
}

func (c *Core) ask(ctx context.Context, j job) (book.Entry, error) {
	if h := c.Halted(); h != nil {
		return book.Entry{}, h
	}
	j.done = make(chan result, 1)
	select {
	case c.jobs <- j:
	default:
		return book.Entry{}, ErrBusy
	}
	select {
	case r := <-j.done:
		return r.entry, r.err
	case <-ctx.Done():
		return book.Entry{}, ctx.Err()
	case <-c.stopped:
	}
	select { // it may have been the last to be served
	case r := <-j.done:
		return r.entry, r.err
	default:
		return book.Entry{}, ErrClosed
	}
}

// run is the core's goroutine.
func (c *Core) run() {
	defer close(c.stopped)
	batch := make([]job, 0, maxBatch)
	for {
		select {
		case j := <-c.jobs:
			batch = c.more(append(batch[:0], j))
			c.serve(batch)
			c.maybeSnapshot()
		case <-c.snapshots:
			c.writing = false
		case <-c.stop:
			if c.writing {
				<-c.snapshots
			}
			return
		}
	}
}

// more takes what waits already.
func (c *Core) more(batch []job) []job {
	for len(batch) < maxBatch {
		select {
		case j := <-c.jobs:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// serve does the batch and answers all of it: with what is durable, or with the
// halt.
func (c *Core) serve(batch []job) {
	results := c.decide(batch)
	if c.Halted() == nil {
		c.commit()
	}
	for i, j := range batch {
		switch h := c.Halted(); {
		case h != nil:
			results[i] = result{err: h}
		case j.look != nil:
			j.look(c.book)
		}
		j.done <- results[i]
	}
}

// decide decides the requests one after the other, each after the effect of the
// one before.
func (c *Core) decide(batch []job) []result {
	c.lines.reset()
	results := c.recordings[:0]
	rules := book.Rules{Now: c.clock.read()}
	for _, j := range batch {
		var r result
		if j.look == nil && c.Halted() == nil {
			c.options.Points.At("ubscore.received")
			c.clock.witness(j.request.CreatedAt, rules.Now)
			rules.Resolve, rules.Record, rules.Found = j.resolve, j.record, j.found
			var fresh bool
			if r.entry, fresh, r.err = c.book.Decide(j.request, rules); fresh {
				c.apply(r.entry)
			}
		}
		results = append(results, r)
	}
	c.recordings = results
	c.clock.compare(rules.Now)
	return results
}

// apply makes the entry the book's and the next line to be written.
func (c *Core) apply(e book.Entry) {
	if err := c.book.Apply(e); err != nil {
		c.halt(fmt.Errorf("a decision that cannot be applied: %w", err))
		return
	}
	c.lines.add(e)
}

// commit makes the lines durable.
func (c *Core) commit() {
	if c.lines.none() {
		return
	}
	c.options.Points.At("ubscore.applied")
	if err := c.wal.Append(c.lines.list()); err != nil {
		c.halt(err)
		return
	}
	c.options.Points.At("ubscore.appended")
	if err := c.wal.Sync(); err != nil {
		c.halt(err)
		return
	}
	c.options.Points.At("ubscore.synced")
}

// Close ends the core after what is being served, and gives its folder free. A
// second call does nothing.
func (c *Core) Close() (err error) {
	c.closing.Do(func() {
		close(c.stop)
		<-c.stopped
		if c.wal != nil {
			err = c.wal.Close()
		}
	})
	return err
}
