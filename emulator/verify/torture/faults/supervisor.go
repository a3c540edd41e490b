package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// Supervisor restarts the trading core whenever its process has ended.
type Supervisor struct {
	core *stack.Core

	mu      sync.Mutex
	tearing chan int64 // receives the length of the next torn end; nil: no tear requested
	keep    int64      // of the bytes not covered by an fsync
	starts  int
	failed  error
}

// Restarts returns how often it has restarted the core.
func (k *Supervisor) Restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts
}

// Failed returns why the last restart failed after all its tries, or nil.
func (k *Supervisor) Failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// Run keeps the core running until ctx ends.
func (k *Supervisor) Run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil && k.Failed() == nil {
		select {
		case <-k.core.Process().Done():
		case <-ctx.Done():
			return
		}
		retry.Pause(ctx, randomDuration(r, 100*time.Millisecond, 1500*time.Millisecond)) // a real supervisor needs time to notice
		k.Revive(context.WithoutCancel(ctx))
	}
}

// maxStarts is how often a start is tried: one can time out on a busy machine.
const maxStarts = 3

// Revive starts a core that has ended. It first tears the end of the log if a fault asked for
// it.
func (k *Supervisor) Revive(ctx context.Context) {
	err := k.revive(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = err; err == nil {
		k.starts++
	}
}

func (k *Supervisor) revive(ctx context.Context) error {
	if err := k.core.Kill(); err != nil { // so that the proxy knows
		return err
	}
	if err := k.tear(); err != nil {
		return fmt.Errorf("tear the log: %w", err)
	}
	const within = 30 * time.Second
	for tries := 1; ; tries++ {
		once, cancel := context.WithTimeout(ctx, within)
		err := k.core.Start(once)
		cancel()
		if err == nil || tries == maxStarts {
			return err
		}
	}
}

// tearNext tears the log after the next end of the core, and leaves keep of the bytes without
// an fsync. The channel receives the number of bytes torn, and is closed.
func (k *Supervisor) tearNext(keep int64) <-chan int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tearing, k.keep = make(chan int64, 1), keep
	return k.tearing
}

// tear cuts only bytes that were never answered: the core answers after the fsync, and the mark
// beside the log has the durable length.
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
