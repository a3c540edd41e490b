package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// queueBound is the default of queue.maxPerSubmitter.
const queueBound = 100_000

// How many connections repeat refused creates, and how many post those of another submitter. Processes delay
// the answers to the first refused ones. So that as many as refusedClients are answered at once, more
// connect when the cost is measured.
const (
	refusedClients   = 16
	neighbourClients = 8
	delayedClients   = 32 * processes
)

// beside fills the queue of the first submitter. It measures creates that the full queue refuses, those
// that the second submitter's queue accepts, and the latter beside refused ones.
func beside(ctx context.Context, r run, h *environment) result {
	h.fill(ctx)
	n := min(r.transactions, 5000)
	refused := h.creates(ctx, 0, "refused", n, delayedClients+refusedClients)
	accepted := h.creates(ctx, 2, "accepted", n, refusedClients)
	alone := h.creates(ctx, 1, "alone", n, neighbourClients)
	crowded := h.crowd(ctx, n)
	return result{figures: figures{
		acceptedPerS: accepted.rate(), refusedPerS: refused.rate(), refusedCPU: refused.busy / accepted.busy,
		neighbour: crowded.rate() / alone.rate(), createP50: quantile(crowded.Latencies, 0.5), createP99: quantile(crowded.Latencies, 0.99),
	}}
}

// fill posts until the first submitter's queue is full.
func (h *environment) fill(ctx context.Context) {
	for _, n := range []int{queueBound, queueBound / 100} { // some of the first are confirmed meanwhile
		steps.Value(h.createsOf(0, "fill-"+time.Now().Format("150405.000"), n, h.bench.clients).run(ctx))
	}
}

// creates posts n creates of one submitter.
func (h *environment) creates(ctx context.Context, submitter int, name string, n, clients int) posted {
	from := h.mark()
	done := steps.Value(h.createsOf(submitter, name, n, clients).run(ctx))
	to := h.mark()
	done.busy = to.functions + to.postgres - from.functions - from.postgres
	return done
}

// crowd posts n creates of the second submitter while others repeat creates that are refused.
func (h *environment) crowd(ctx context.Context, n int) posted {
	refused, own := h.createsOf(0, "crowd", 50*n, refusedClients), h.createsOf(1, "crowded", n, neighbourClients)
	crowd, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := refused.run(crowd)
		ended <- err
	}()
	own.StartAt = time.Now().Add(2 * time.Second) // the others have begun by then
	p, err := own.run(ctx)
	if len(ended) > 0 {
		err = errors.Join(err, <-ended, errors.New("the refused creates ended before the others"))
	}
	return steps.Value(p, err)
}

// createsOf returns n creates of one submitter, which may be refused.
func (h *environment) createsOf(submitter int, name string, n, clients int) load {
	l := h.load(name, n)
	l.Clients, l.Submitters = clients, h.Submitters()[submitter:submitter+1]
	if submitter == 0 {
		l.Statuses = append(l.Statuses, http.StatusTooManyRequests)
	}
	return l
}
