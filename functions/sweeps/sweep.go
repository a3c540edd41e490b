package sweeps

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteSweep serves the function sweep.
func (a *Server) RouteSweep(mux *web.Mux) {
	a.HandleInternal(mux, "sweep", a.sweep)
}

type sweepResponse struct {
	Overdue   int `json:"overdue"`   // submitters found with overdue work
	Protected int `json:"protected"` // submitters in PROTECT that no invocation watches
	Reorged   int `json:"reorged"`   // submitters whose last final block was reorged out
	Transfers int `json:"transfers"` // transfers that are due or have lost their worker
	Events    int `json:"events"`    // delivery queues that no invocation serves
	Acts      int `json:"acts"`      // acts on accounts whose answer is not known
	Enqueued  int `json:"enqueued"`  // tasks made; the others already have a task of this minute
}

// sweep finds the work of lost tasks and enqueues it again. One failure does not stop the rest; all
// are reported.
func (a *Server) sweep(w http.ResponseWriter, r *http.Request) error {
	var out sweepResponse
	r = r.WithContext(telemetry.WithReading(r.Context()))
	marked := a.within(r.Context(), 6, func(ctx context.Context) error {
		a.Mark.Sweep(ctx, a.Log)
		return a.Store.ProtectRestored(ctx)
	})
	began, failures := a.sweepOverdue(r.Context(), &out)
	failures = append(failures, marked)
	if !began.IsZero() {
		failures = append(failures, a.within(r.Context(), 5, func(ctx context.Context) error {
			return errors.Join(a.sweepProtected(ctx, &out, began), a.sweepReorged(ctx, &out, began))
		}))
	}
	failures = append(failures, a.readGauges(r.Context(), "late_transfers", a.alarm), a.within(r.Context(), 20, a.warnOfBusy))
	failures = append(failures, a.within(r.Context(), 6, func(ctx context.Context) error { return a.sweepTransfers(ctx, &out) }))
	failures = append(failures, a.within(r.Context(), 12, func(ctx context.Context) error { return a.sweepActs(ctx, &out) }))
	failures = append(failures, a.within(r.Context(), 12, func(ctx context.Context) error { return a.sweepEvents(ctx, &out) }))
	failures = append(failures, a.gauge(r.Context()))
	failures = append(failures, a.within(r.Context(), 20, func(ctx context.Context) error { return telemetry.ShowReading(ctx, began, a.Store) }))
	failures = append(failures, a.within(r.Context(), 20, a.Store.CountMinutes))
	_, err := a.Store.KeepPartitions(r.Context())
	if err := errors.Join(append(failures, err)...); err != nil {
		return err
	}
	if out != (sweepResponse{}) {
		a.Log.InfoContext(r.Context(), "sweep found work without a task", "overdue", out.Overdue,
			"protected", out.Protected, "reorged", out.Reorged, "transfers", out.Transfers, "acts", out.Acts, "events", out.Events, "enqueued", out.Enqueued)
	}
	return web.Reply(w, r, http.StatusOK, out)
}

// within runs one part of the sweep with 1/share of the sweep's time.
func (a *Server) within(ctx context.Context, share time.Duration, part func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.Deadline/share)
	defer cancel()
	return part(ctx)
}

// sweepOverdue enqueues all overdue submitters, each once and batch by batch, until half the sweep's
// time is used. The next sweep handles a submitter whose task was not made or failed. It returns the
// database's time at its start, whose minute names the sweep's tasks.
func (a *Server) sweepOverdue(ctx context.Context, out *sweepResponse) (began time.Time, failures []error) {
	half, cancel := context.WithTimeout(ctx, a.Deadline/2)
	defer cancel()
	for half.Err() == nil {
		found, now, err := a.Store.Overdue(ctx, a.Grace, a.Batch, began)
		if err != nil {
			return began, append(failures, err)
		}
		if began.IsZero() {
			began = now
		}
		if len(found) > 0 {
			a.Points.At("sweep.found")
		}
		out.Overdue += len(found)
		failures = append(failures, a.sweepTasks(half, out, found, txmanager.KindAdvance, began))
		if len(found) < a.Batch {
			break
		}
	}
	return began, failures
}

// sweepProtected enqueues submitters in PROTECT, so that they stay watched.
func (a *Server) sweepProtected(ctx context.Context, out *sweepResponse, began time.Time) error {
	found, err := a.Store.OverdueProtected(ctx, a.Grace, a.Batch)
	if err != nil {
		return err
	}
	out.Protected = len(found)
	return a.sweepTasks(ctx, out, found, txmanager.KindConfirm, began)
}

// sweptBlocks is how far back the sweep checks final blocks for a reorg.
const sweptBlocks = 100

// sweepReorged asks each chain for the last final block of every submitter, each block once. It
// enqueues the submitters whose block has been replaced. One observation proves nothing; the next
// iteration evaluates it. A chain that does not answer does not stop the others.
func (a *Server) sweepReorged(ctx context.Context, out *sweepResponse, began time.Time) error {
	each := make([]sweepResponse, len(a.Chains))
	err := a.eachChain(func(i int, c *serve.Chain) error {
		defer gaugeExcluded(ctx, c)
		return a.sweepReorgedOf(ctx, c, &each[i], began)
	})
	for _, one := range each {
		out.Reorged, out.Enqueued = out.Reorged+one.Reorged, out.Enqueued+one.Enqueued
	}
	return err
}

// eachChain calls one for all chains concurrently, so that an unresponsive chain delays no other. The
// errors name their chains.
func (a *Server) eachChain(one func(i int, c *serve.Chain) error) error {
	failures := make([]error, len(a.Chains))
	serve.Each(len(a.Chains), a.Chains, func(i int, c *serve.Chain) {
		if err := one(i, c); err != nil {
			failures[i] = fmt.Errorf("chain %d: %w", c.ID, err)
		}
	})
	return errors.Join(failures...)
}

func (a *Server) sweepReorgedOf(ctx context.Context, chain *serve.Chain, out *sweepResponse, began time.Time) error {
	v, err := chain.Connector.Query(ctx, txmanager.ChainQuery{})
	if err != nil {
		return err
	}
	blocks, err := a.Store.FinalBlocks(ctx, chain.Namespace, chain.ID, v.Head.Number-min(v.Head.Number, sweptBlocks))
	if err != nil || len(blocks) == 0 {
		return err
	}
	var heights []uint64
	for _, b := range blocks {
		if len(heights) == 0 || heights[len(heights)-1] != b.Number {
			heights = append(heights, b.Number)
		}
	}
	if v, err = chain.Connector.Query(ctx, txmanager.ChainQuery{HashesAt: heights[max(0, len(heights)-sweptBlocks):]}); err != nil {
		return err
	}
	var failures []error
	for _, b := range blocks {
		if hash, seen := v.HashesAt[b.Number]; !seen || hash == b.Hash {
			continue
		}
		found, err := a.Store.FinalIn(ctx, b)
		out.Reorged += len(found)
		failures = append(failures, err, a.sweepTasks(ctx, out, found, txmanager.KindConfirm, began))
	}
	return errors.Join(failures...)
}

// sweepTasks enqueues a task for each submitter.
func (a *Server) sweepTasks(ctx context.Context, out *sweepResponse, found []txmanager.Submitter, kind txmanager.Kind, began time.Time) error {
	return enqueueEach(ctx, out, work{string(kind), "submitters"}, found, func(s txmanager.Submitter) (bool, error) { return a.Tasks.Sweep(ctx, s, kind, began) })
}

// work names a kind of tasks and the things that they are for.
type work struct{ kind, of string }

// enqueueEach makes a task for each element, and returns an error that counts the failures.
func enqueueEach[T any](ctx context.Context, out *sweepResponse, w work, found []T, one func(T) (made bool, err error)) error {
	var enqueued atomic.Int64
	failed, first := serve.MakeTasks(ctx, found, func(t T) error {
		made, err := one(t)
		if made {
			enqueued.Add(1)
		}
		return err
	})
	out.Enqueued += int(enqueued.Load())
	if failed > 0 {
		return fmt.Errorf("no %s task for %d of %d %s: %w", w.kind, failed, len(found), w.of, first)
	}
	return nil
}
