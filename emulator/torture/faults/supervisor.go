package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/torture/retry"
)

// Supervisor starts the trading core again whenever its process has ended, as whoever
// runs it would.
type Supervisor struct {
	core *stack.Core

	mu      sync.Mutex
	tearing chan int64 // who waits for the next torn end; nil: nobody
	keep    int64      // of the bytes that no fsync has returned for
	starts  int
	failed  error
}

// Restarts is how often it has started a core again.
func (k *Supervisor) Restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts
}

// Failed is why a core did not start again, however often it was tried; nil: that
// did not happen.
func (k *Supervisor) Failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// Run keeps the core alive until ctx ends.
func (k *Supervisor) Run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil && k.Failed() == nil {
		select {
		case <-k.core.Process().Done():
		case <-ctx.Done():
			return
		}
		retry.Pause(ctx, randomDuration(r, 100*time.Millisecond, 1500*time.Millisecond)) // nobody notices at once
		k.Revive(context.WithoutCancel(ctx))
	}
}

// maxStarts are how often a start is tried: one may take too long on a busy machine.
const maxStarts = 3

// Revive starts a core that has ended, and tears the end of its log before if a fault
// asks for it.
func (k *Supervisor) Revive(ctx context.Context) {
	if err := k.core.Kill(); err != nil { // for the proxy to know
		k.fail(err)
		return
	}
	if err := k.tear(); err != nil {
		k.fail(fmt.Errorf("tear the log: %w", err))
		return
	}
	var err error
	for range maxStarts {
		if err = k.start(ctx); err == nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.starts++
			return
		}
	}
	k.fail(err)
}

func (k *Supervisor) start(ctx context.Context) error {
	const within = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return k.core.Start(ctx)
}

func (k *Supervisor) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
}

// tearNext has the log torn when the core has ended next. The channel tells how many
// bytes there were to tear, and is closed then. keep is how many of them stay.
func (k *Supervisor) tearNext(keep int64) <-chan int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tearing, k.keep = make(chan int64, 1), keep
	return k.tearing
}

// tear cuts nothing that was ever answered: an answer is given when the fsync has
// returned, and the mark beside the log says so.
func (k *Supervisor) tear() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tearing == nil {
		return nil
	}
	undurable, err := k.core.Tear(k.keep)
	k.tearing <- max(undurable-k.keep, 0)
	close(k.tearing)
	k.tearing = nil
	return err
}
