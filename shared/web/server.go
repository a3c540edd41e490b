package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
)

// Cloud Run sends SIGKILL 10 s after SIGTERM. The drain leaves a part of them to the hooks. The
// contexts of requests end before the drain does, so that an aborted request can still release its
// lease or record an answer.
const (
	defaultDrain = 8 * time.Second
	hookDeadline = 1500 * time.Millisecond
	orderly      = 2500 * time.Millisecond
)

// Gate counts running requests, and once closed admits no further one. [Edge] passes requests through it. Create it with
// [NewGate].
type Gate struct {
	shutting context.Context // ended by shut
	close    context.CancelFunc
	gone     context.Context    // ended by abandon
	abandon  context.CancelFunc // ends the contexts of all running requests

	mu       sync.Mutex
	inFlight int
	idle     chan struct{} // closed once the gate is closed and no request runs
}

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{idle: make(chan struct{})}
	g.shutting, g.close = context.WithCancel(context.Background())
	g.gone, g.abandon = context.WithCancel(context.Background())
	return g
}

// enter returns the context of an admitted request, and the function that ends it; ok is false once the
// gate is closed.
func (g *Gate) enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Stopping() {
		return ctx, nil, false
	}
	g.inFlight++
	ctx, cancel := g.untilGone(context.WithValue(ctx, gateKey{}, g))
	return ctx, func() {
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inFlight--
		if g.Stopping() && g.inFlight == 0 {
			close(g.idle)
		}
	}, true
}

// untilGone returns ctx, bounded by abandon.
func (g *Gate) untilGone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.gone, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

type gateKey struct{}

// Detached returns a context for work that continues after its caller has left. It ends, as each
// request's does, when the instance stops: see [Serve].
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	g, ok := ctx.Value(gateKey{}).(*Gate)
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return context.WithCancel(ctx)
	}
	return g.untilGone(ctx)
}

// closing returns a channel that is closed when the gate closes that has admitted the request of ctx; nil
// without a gate.
func closing(ctx context.Context) <-chan struct{} {
	g, ok := ctx.Value(gateKey{}).(*Gate)
	if !ok {
		return nil
	}
	return g.shutting.Done()
}

// Stopping reports whether the gate is closed: work that another instance can do should not begin.
func (g *Gate) Stopping() bool { return g.shutting.Err() != nil }

// shut closes the gate permanently; the channel is closed once no request runs.
func (g *Gate) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.Stopping() {
		g.close()
		if g.inFlight == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

// InFlight returns the number of running requests.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

func (g *Gate) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, ok := g.enter(r.Context())
		if !ok {
			w.Header().Set("Connection", "close")
			Fail(w, r, &Problem{Code: Unavailable, Detail: "this instance is shutting down; try again", RetryAfter: unavailableRetryAfter})
			return
		}
		defer leave()
		next.ServeHTTP(w, r.WithContext(ctx))
		if g.Stopping() { // the process ends with the last request: its answer must be sent before
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// ServeOptions configure [Serve].
type ServeOptions struct {
	Port  string        // TCP port, in decimal
	Gate  *Gate         // the gate of each registered function's [Edge]
	Drain time.Duration // how long running requests can continue after SIGTERM; 0: 8 s

	// Hooks run after the drain, one after the other, within 1.5 s together. Each runs even if an
	// earlier one failed.
	Hooks []func(context.Context) error
}

// Serve serves the functions registered with functions-framework-go until SIGTERM, SIGINT or the end of
// ctx. Then new requests are refused with UNAVAILABLE and "Connection: close". Running ones have until
// Drain, and their contexts end 2.5 s before that. Then the hooks run. Serve returns nil even if
// requests were left, which is logged; the program then ends with status 0. An error is the framework's
// (unknown FUNCTION_TARGET, port in use) or the hooks'.
//
// The framework calls a bare http.ListenAndServe (v1.9.2), which cannot be shut down: its goroutine and
// its listener end only with the process. So main must call Serve once.
func Serve(ctx context.Context, o ServeOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- funcframework.Start(o.Port) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on port %s: %w", o.Port, err)
	case <-ctx.Done():
	}
	return o.drain()
}

func (o ServeOptions) drain() error {
	within := cmp.Or(o.Drain, defaultDrain)
	timer := time.NewTimer(within)
	defer timer.Stop()
	abandon := time.AfterFunc(max(0, within-orderly), o.Gate.abandon)
	defer abandon.Stop()
	select {
	case <-o.Gate.shut():
	case <-timer.C:
		slog.Warn("drain ended with requests in flight", "inFlight", o.Gate.InFlight())
	}
	ctx, cancel := context.WithTimeout(context.Background(), hookDeadline)
	defer cancel()
	var errs []error
	for i, hook := range o.Hooks {
		if err := hook(ctx); err != nil {
			errs = append(errs, fmt.Errorf("shutdown hook %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}
