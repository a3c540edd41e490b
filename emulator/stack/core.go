package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/ledger/trading"
)

// Core is the trading core: successive processes on one folder, behind a proxy with a fixed address.
type Core struct {
	Proxy  *ubsproxy.Proxy // the core's address for the functions
	Secret string          // of its callers

	options ubscore.Options

	mu      sync.Mutex
	process *processes.Process
	ledger  *trading.Ledger
}

// CoreOptions describe how the trading core is run. The zero value is as in production.
type CoreOptions struct {
	Binary        string // see [ubscore.Build]; "": it is built
	CrashPoints   string // the folder of armed points; "": none
	SnapshotEvery int    // journal lines between two snapshots; 0: the core's own

	Horizon     time.Duration // the least time that keys are kept; 0: the core's default
	ForgetCalls bool          // the proxy records no calls
	Direct      bool          // the functions call the first process without the proxy, as when its cost is no part of what is measured

	Environment map[string]string // of the process, beside the core's variables
}

func (s *Stack) startCore(ctx context.Context) (err error) {
	defer steps.Return(&err)
	o := s.options.Core
	if o.Binary == "" {
		s.options.Log.Info("building the trading core")
		o.Binary = steps.Value(ubscore.Build(ctx, s.folder))
	}
	c := &Core{Secret: rand.Text()}
	c.options = ubscore.Options{
		Binary: o.Binary, Folder: s.path("ubscore-log"), Secret: c.Secret, SnapshotEvery: o.SnapshotEvery, Horizon: o.Horizon, CrashPoints: o.CrashPoints, Environment: o.Environment,
		Output: s.write,
	}
	c.Proxy = steps.Value(ubsproxy.Start(ubsproxy.Options{Keep: !o.ForgetCalls}))
	s.OnClose(c.Proxy.Close)
	steps.OK(c.Start(ctx))
	s.OnClose(c.Kill)
	s.Core = c
	return nil
}

// recoverWithin bounds the start of a core. A halted one answers, but is never healthy.
const recoverWithin = time.Minute

// Start starts a process on the core's folder after the previous one has ended, and waits for at most a
// minute until it has recovered.
func (c *Core) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil && c.process.Err() == nil {
		return fmt.Errorf("start the trading core: process %d runs", c.process.PID())
	}
	limited, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	p, err := ubscore.Start(limited, c.options)
	if err != nil {
		return fmt.Errorf("the trading core in %s: %w", c.options.Folder, err)
	}
	l, err := trading.New(trading.Options{URL: "http://" + p.Addr(), Secret: c.Secret, Timeout: 20 * time.Second})
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	c.process, c.ledger = p, l
	c.Proxy.SetTarget(p.Addr())
	return nil
}

// Process returns the process started last. It may have ended.
func (c *Core) Process() *processes.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// Ledger returns a client of the current process without the proxy. After a restart the caller needs a new
// one.
func (c *Core) Ledger() *trading.Ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger
}

// Kill ends the process by SIGKILL and waits for its end. Its folder has all that it answered.
func (c *Core) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Proxy.SetTarget("")
	err := c.process.Kill()
	<-c.process.Done()
	c.ledger.Close()
	return err
}

// Pause stops the process by SIGSTOP until [Core.Continue]: it answers no caller.
func (c *Core) Pause() error { return c.Process().Signal(syscall.SIGSTOP) }

// Continue resumes a paused process.
func (c *Core) Continue() error { return c.Process().Signal(syscall.SIGCONT) }

// Tear cuts the log of a killed core as a crash of the machine can: of the bytes without an fsync only the
// first keep stay. It returns the number of bytes without an fsync.
func (c *Core) Tear(keep int64) (undurable int64, err error) {
	return ubscore.Tear(c.options.Folder, keep)
}

// Folder is the folder of the core's log and snapshots.
func (c *Core) Folder() string { return c.options.Folder }
