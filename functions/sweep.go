package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

func (a *App) routeSweep(mux *web.Mux) {
	inner := web.NewMux()
	a.handle(inner, "sweep", "POST /internal/sweep", a.sweep)
	mux.Handle("POST /internal/sweep", a.internalOnly(inner))
}

type sweepResponse struct {
	Overdue   int `json:"overdue"`   // submitters found with overdue work
	Protected int `json:"protected"` // submitters in PROTECT found unwatched
	Reorged   int `json:"reorged"`   // submitters whose last final block is no longer the chain's
	Transfers int `json:"transfers"` // transfers found that are due, or have lost their worker
	Events    int `json:"events"`    // streams of events found that nobody is at
	Enqueued  int `json:"enqueued"`  // so many got a task; others have had this minute's already
}

// sweep finds what lost tasks left behind and enqueues it again. One failure
// does not stop the rest; all are reported.
func (a *App) sweep(w http.ResponseWriter, r *http.Request) error {
	var out sweepResponse
	marked := a.within(r.Context(), 6, a.sweepMark)
	began, failures := a.sweepOverdue(r.Context(), &out)
	failures = append(failures, marked)
	if !began.IsZero() {
		failures = append(failures, a.within(r.Context(), 5, func(ctx context.Context) error {
			return errors.Join(a.sweepProtected(ctx, &out, began), a.sweepReorged(ctx, &out, began))
		}))
	}
	failures = append(failures, a.within(r.Context(), 6, func(ctx context.Context) error { return a.sweepTransfers(ctx, &out) }))
	failures = append(failures, a.within(r.Context(), 12, func(ctx context.Context) error { return a.sweepEvents(ctx, &out) }))
	failures = append(failures, a.within(r.Context(), 20, a.gauge))
	_, err := a.store.KeepPartitions(r.Context())
	failures = append(failures, err)
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if out != (sweepResponse{}) {
		a.log.InfoContext(r.Context(), "sweep found work without a task", "overdue", out.Overdue,
			"protected", out.Protected, "reorged", out.Reorged, "transfers", out.Transfers, "events", out.Events, "enqueued", out.Enqueued)
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// within gives one part of the sweep its share of the time: 1 in so many.
func (a *App) within(ctx context.Context, share time.Duration, part func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.config.Tasks.DispatchDeadline/share)
	defer cancel()
	return part(ctx)
}

// sweepOverdue goes batch by batch, each submitter once, until all that is overdue
// was taken or half its time is up: those taken that got no task by then, or
// whose task failed, are the next sweep's. It returns when it began, by the
// database's clock: the minute of that names the sweep's tasks.
func (a *App) sweepOverdue(ctx context.Context, out *sweepResponse) (began time.Time, failures []error) {
	half, cancel := context.WithTimeout(ctx, a.config.Tasks.DispatchDeadline/2)
	defer cancel()
	for half.Err() == nil {
		found, now, err := a.store.Overdue(ctx, a.config.Sweep.Grace, a.config.Sweep.Batch, began)
		if err != nil {
			return began, append(failures, err)
		}
		if began.IsZero() {
			began = now
		}
		if len(found) > 0 {
			a.points.At("sweep.found")
		}
		out.Overdue += len(found)
		failures = append(failures, a.sweepTasks(half, out, found, txmanager.KindAdvance, began))
		if len(found) < a.config.Sweep.Batch {
			break
		}
	}
	return began, failures
}

// sweepProtected lets submitters in PROTECT be watched on.
func (a *App) sweepProtected(ctx context.Context, out *sweepResponse, began time.Time) error {
	found, err := a.store.OverdueProtected(ctx, a.config.Sweep.Grace, a.config.Sweep.Batch)
	if err != nil {
		return err
	}
	out.Protected = len(found)
	return a.sweepTasks(ctx, out, found, txmanager.KindConfirm, began)
}

// sweptBlocks is how far back the sweep looks for a reorg under what is final.
const sweptBlocks = 100

// sweepReorged asks each chain for the last final block of every submitter, each
// block once, and has those submitters looked at whose block is another one now.
// One look proves nothing; it only makes the next. One chain that does not answer
// keeps no other from being asked.
func (a *App) sweepReorged(ctx context.Context, out *sweepResponse, began time.Time) error {
	each := make([]sweepResponse, len(a.chains))
	err := a.eachChain(func(i int, c *servedChain) error {
		defer c.gauge(ctx)
		return a.sweepReorgedOf(ctx, c, &each[i], began)
	})
	for _, one := range each {
		out.Reorged, out.Enqueued = out.Reorged+one.Reorged, out.Enqueued+one.Enqueued
	}
	return err
}

// eachChain does one for each chain, all at once: the time that a silent one takes is
// nobody else's. The errors name their chains.
func (a *App) eachChain(one func(i int, c *servedChain) error) error {
	failures := make([]error, len(a.chains))
	var group sync.WaitGroup
	for i, c := range a.chains {
		group.Go(func() {
			if err := one(i, c); err != nil {
				failures[i] = fmt.Errorf("chain %d: %w", c.ID, err)
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

func (a *App) sweepReorgedOf(ctx context.Context, chain *servedChain, out *sweepResponse, began time.Time) error {
	v, err := chain.Query(ctx, txmanager.ChainQuery{})
	if err != nil {
		return err
	}
	blocks, err := a.store.FinalBlocks(ctx, chain.ID, v.Head.Number-min(v.Head.Number, sweptBlocks))
	if err != nil || len(blocks) == 0 {
		return err
	}
	var heights []uint64
	for _, b := range blocks {
		if len(heights) == 0 || heights[len(heights)-1] != b.Number {
			heights = append(heights, b.Number)
		}
	}
	if v, err = chain.Query(ctx, txmanager.ChainQuery{HashesAt: heights[max(0, len(heights)-sweptBlocks):]}); err != nil {
		return err
	}
	var failures []error
	for _, b := range blocks {
		if hash, seen := v.HashesAt[b.Number]; !seen || hash == b.Hash {
			continue
		}
		found, err := a.store.FinalIn(ctx, b)
		out.Reorged += len(found)
		failures = append(failures, err, a.sweepTasks(ctx, out, found, txmanager.KindConfirm, began))
	}
	return errors.Join(failures...)
}

// sweepTasks makes a task for each, and says how many it could not make.
func (a *App) sweepTasks(ctx context.Context, out *sweepResponse, found []txmanager.Submitter, kind txmanager.Kind, began time.Time) error {
	var enqueued atomic.Int64
	failed, first := makeTasks(ctx, found, func(s txmanager.Submitter) error {
		made, err := a.tasks.Sweep(ctx, s, kind, began)
		if made {
			enqueued.Add(1)
		}
		return err
	})
	out.Enqueued += int(enqueued.Load())
	if failed > 0 {
		return fmt.Errorf("no %s task for %d of %d submitters: %w", kind, failed, len(found), first)
	}
	return nil
}

// tasksAtOnce is how many CreateTask calls one request has under way.
const tasksAtOnce = 16

// makeTasks calls one for each of what was found, some at once. Where one fails it goes on;
// when ctx ends it begins no further. It returns for how many there was no task,
// and the first error.
func makeTasks[T any](ctx context.Context, found []T, one func(T) error) (failed int, first error) {
	var (
		group sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
	)
	for range min(tasksAtOnce, len(found)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(found); i = int(next.Add(1)) - 1 {
				err := ctx.Err()
				if err == nil {
					err = one(found[i])
				}
				if err != nil {
					mu.Lock()
					failed, first = failed+1, cmp.Or(first, err)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return failed, first
}
