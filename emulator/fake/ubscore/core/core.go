// Package core is the running trading core. One goroutine decides requests in the order of their
// arrival, writes the decisions to the log, and answers after they are durable. Requests that arrive
// during a write share the next write and fsync.
//
// A failed write, a damaged log or a damaged snapshot halts the core: from then on every method
// returns a [*HaltError] until the process ends.
package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
	"github.com/fencepost/fencepost/shared/crash"
)

// Options are the folder of a core and its limits.
type Options struct {
	Folder        string        // used by one process at a time
	Horizon       time.Duration // the least time that keys are kept; 0: 30 days
	SnapshotEvery int           // lines between two snapshots; 0: 200,000
	SegmentBytes  int64         // of the log's files; 0: the default of [wal.Options]
	Disk          wal.Disk      // nil: [wal.System]

	Now     func() time.Time     // nil: time.Now
	Elapsed func() time.Duration // since any moment, by a clock that is never set; nil: since Open
	Points  crash.Points
	Log     *slog.Logger // nil: slog.Default
}

// The defaults.
const (
	DefaultHorizon       = 30 * 24 * time.Hour
	DefaultSnapshotEvery = 200_000
)

const (
	maxWaiting = 16 << 10 // requests; further ones get [ErrBusy]
	maxBatch   = 4 << 10  // requests in one commit
)

// ErrBusy reports that too many requests wait. The request was not decided.
var ErrBusy = errors.New("too many requests wait")

// ErrEvidence reports a line of the journal that does not prove the statement.
var ErrEvidence = errors.New("that line of the journal says something else, or there is no such line")

// ErrClosed reports that the core is closed. The result of the request is unknown.
var ErrClosed = errors.New("the core is closed")

// Core is a trading core. Make one with [Open]. Any goroutine can call its methods.
type Core struct {
	options Options
	log     *slog.Logger
	wal     *wal.Log
	book    *book.Book // used only by the core's goroutine
	jobs    chan job
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed at the goroutine's end
	closing sync.Once
	halted  atomic.Pointer[HaltError]
	views   views
	clock   clock // used only by the core's goroutine

	lines     [][]byte      // of one commit, in the log's format
	snapshot  uint64        // the line of the newest snapshot
	snapshots chan struct{} // receives a value after each attempt to write a snapshot
	writing   bool          // whether a snapshot is being written
}

// job is a request, or a query of the book.
type job struct {
	request book.Request
	rules   book.Rules       // without the time, which is that of the decision
	query   func(*book.Book) // called when all entries of the book are durable
	done    chan result
}

type result struct {
	entry book.Entry
	err   error
}

// Open recovers the state in the folder, or begins a new one if it is empty. It fails with
// [wal.ErrLocked] if another process has the folder. If the state is damaged, it returns a halted
// core without an error.
func Open(o Options) (*Core, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		opened := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(opened) }
	}
	o.Log, o.Disk = cmp.Or(o.Log, slog.Default()), cmp.Or[wal.Disk](o.Disk, wal.System{})
	o.Horizon, o.SnapshotEvery = cmp.Or(o.Horizon, DefaultHorizon), cmp.Or(o.SnapshotEvery, DefaultSnapshotEvery)
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

// Do applies the request once, and returns the line stored under its key. With an error of package
// book nothing is stored; with any other the result of the request is unknown.
func (c *Core) Do(ctx context.Context, r book.Request) (book.Entry, error) {
	return c.ask(ctx, job{request: r})
}

// Resolve returns the line stored under the request's key, or stores that it is refused for ever.
// The errors are those of [Core.Do].
func (c *Core) Resolve(ctx context.Context, r book.Request) (book.Entry, error) {
	return c.ask(ctx, job{request: r, rules: book.Rules{Resolve: true}})
}

// Record stores an operator's statement about a request whose key may have been forgotten. It
// returns the line stored under the request's key. A line other than 0 is a line of the journal
// that must prove the statement: the request's own line. For a refund that was not applied it is the
// withdrawal's line. The errors are those of [Core.Do], and [ErrEvidence].
func (c *Core) Record(ctx context.Context, r book.Request, applied bool, line uint64) (book.Entry, error) {
	word := book.Word{Applied: applied}
	if line != 0 {
		var proof book.Entry // the zero entry proves nothing
		if _, err := c.Journal(line-1, 1, func(e book.Entry) bool { proof = e; return true }); err != nil {
			return book.Entry{}, err
		}
		if !word.ProvedBy(r, proof) {
			return book.Entry{}, ErrEvidence
		}
		word.Refused = proof.Refused
	}
	return c.ask(ctx, job{request: r, rules: book.Rules{Record: &word}})
}

// Adjust makes the adjustment, once for its ReqID, if the account has the balance found. The errors
// are those of [Core.Do].
func (c *Core) Adjust(ctx context.Context, r book.Request, found uint64) (book.Entry, error) {
	return c.ask(ctx, job{request: r, rules: book.Rules{Found: found}})
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
	select { // the goroutine may have served it last
	case r := <-j.done:
		return r.entry, r.err
	default:
		return book.Entry{}, ErrClosed
	}
}

func (c *Core) run() {
	defer close(c.stopped)
	batch := make([]job, 0, maxBatch)
	for {
		select {
		case j := <-c.jobs:
			batch = append(batch[:0], j)
			for len(batch) < maxBatch && len(c.jobs) > 0 { // those that already wait
				batch = append(batch, <-c.jobs)
			}
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

// serve decides the batch and answers each request: with its durable line, or with the halt.
func (c *Core) serve(batch []job) {
	results := c.decide(batch)
	if c.Halted() == nil {
		c.commit()
	}
	for i, j := range batch {
		switch h := c.Halted(); {
		case h != nil:
			results[i] = result{err: h}
		case j.query != nil:
			j.query(c.book)
		}
		j.done <- results[i]
	}
}

// decide decides the requests one after the other, each with the effect of the earlier ones.
func (c *Core) decide(batch []job) []result {
	c.lines = c.lines[:0]
	results := make([]result, len(batch))
	now := c.clock.read()
	for i, j := range batch {
		if j.query != nil || c.Halted() != nil {
			continue
		}
		c.options.Points.At("ubscore.received")
		c.clock.observe(j.request.CreatedAt, now)
		j.rules.Now = now
		entry, fresh, err := c.book.Decide(j.request, j.rules)
		if results[i] = (result{entry, err}); fresh {
			c.apply(entry)
		}
	}
	c.clock.compare(now)
	return results
}

// apply applies the entry to the book and appends it to the lines to be written.
func (c *Core) apply(e book.Entry) {
	if err := c.book.Apply(e); err != nil {
		c.halt(fmt.Errorf("a decision that cannot be applied: %w", err))
		return
	}
	c.lines = append(c.lines, e.Append(nil))
}

func (c *Core) commit() {
	if len(c.lines) == 0 {
		return
	}
	c.options.Points.At("ubscore.applied")
	if err := c.wal.Append(c.lines); err != nil {
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

// Close ends the core after the current batch and releases its folder. A second call does nothing.
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

// HaltError is the reason why a core answers no more, and advice for the operator. Every method returns
// it from then on.
type HaltError struct {
	Cause  error
	Advice string // for an operator
}

func (h *HaltError) Error() string { return "halted: " + h.Cause.Error() + "; " + h.Advice }

func (h *HaltError) Unwrap() error { return h.Cause }

// errSnapshot reports that no snapshot is complete, or none fits the log.
var errSnapshot = errors.New("the snapshots do not fit")

func advice(cause error) string {
	_, damaged := errors.AsType[*wal.DamageError](cause)
	switch {
	case errors.Is(cause, wal.ErrFailed):
		return "the disk refused a write: make room or replace it, then start the core again; an unanswered request is then either complete or gone"
	case damaged:
		return "do not delete anything: copy the whole folder, then bring back the file from a replica or a backup that has every line that was answered, and start the core again"
	case errors.Is(cause, errSnapshot):
		return "copy the whole folder, then bring back a snapshot from a backup, or move all snapshots away so that the core reads the whole log, and start it again"
	}
	return "copy the whole folder and find out why before the core is started again"
}

// Halted returns why the core is halted; nil: it works.
func (c *Core) Halted() *HaltError { return c.halted.Load() }

// halt halts the core, once. State in memory may not be durable, so no caller gets it any more.
func (c *Core) halt(cause error) {
	h := &HaltError{Cause: cause, Advice: advice(cause)}
	if c.halted.CompareAndSwap(nil, h) {
		c.log.Error("HALTED", "cause", cause.Error(), "advice", h.Advice, "folder", c.options.Folder)
	}
}
