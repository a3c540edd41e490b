package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/processes"
	"github.com/fencepost/fencepost/emulator/ubscore"
	"github.com/fencepost/fencepost/emulator/ubsproxy"
	"github.com/fencepost/fencepost/shared/ledger/trading"
)

// Core is the trading core beside the functions: one process after the other on
// one folder, behind a proxy that is its address.
type Core struct {
	Proxy  *ubsproxy.Proxy // where the functions find it, whichever process it is
	Secret string          // that its callers show

	options ubscore.Options

	mu      sync.Mutex
	process *processes.Process
	ledger  *trading.Ledger
}

// ErrNoCore reports that no process of the core runs.
var ErrNoCore = errors.New("no process of the trading core runs")

// CoreOptions say how the trading core is run. The zero value is production's.
type CoreOptions struct {
	Binary        string // see [ubscore.Build]; "": it is built
	CrashPoints   string // the folder of armed points; "": none
	SnapshotEvery int    // journal lines between two snapshots; 0: the core's own

	Horizon     time.Duration // how long keys are kept at least; 0: the core's own
	ForgetCalls bool          // the proxy takes no calls down: nothing can be replayed

	Environment map[string]string // of the process, beside the core's own variables
}

func (s *Stack) startCore(ctx context.Context) (err error) {
	o := s.options.Core
	if o.Binary == "" {
		if o.Binary, err = ubscore.Build(ctx, s.folder); err != nil {
			return err
		}
	}
	c := &Core{Secret: rand.Text()}
	c.options = ubscore.Options{
		Binary: o.Binary, Folder: s.path("ubscore"), Secret: c.Secret, SnapshotEvery: o.SnapshotEvery, Horizon: o.Horizon, CrashPoints: o.CrashPoints, Environment: o.Environment,
		Output: func(line processes.Line) { s.write(line.Text) },
	}
	if c.Proxy, err = ubsproxy.Start(ubsproxy.Options{Keep: !o.ForgetCalls}); err != nil {
		return err
	}
	s.onClose(c.Proxy.Close)
	s.Core = c
	s.onClose(c.Kill)
	return c.Start(ctx)
}

// Start starts a process on the core's folder, in place of one that has ended,
// and waits until it has recovered.
func (c *Core) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil && c.process.Err() == nil {
		return fmt.Errorf("start the trading core: process %d runs", c.process.PID())
	}
	p, err := ubscore.Start(ctx, c.options)
	if err != nil {
		return err
	}
	l, err := trading.New(trading.Options{URL: "http://" + p.Addr(), Secret: c.Secret, Timeout: 20 * time.Second})
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	c.process, c.ledger = p, l
	c.Proxy.SetTarget(p.Addr())
	return nil
}

// Process is the process that was started last. It may have ended.
func (c *Core) Process() *processes.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// Ledger leads to the core itself, past the proxy: for what comes from outside,
// and for who looks behind the functions' back. It is the process' own: who has
// restarted the core asks again.
func (c *Core) Ledger() *trading.Ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger
}

// Kill ends the process by SIGKILL and waits for its end. What it had answered
// is in its folder.
func (c *Core) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return nil
	}
	c.Proxy.SetTarget("")
	err := c.process.Kill()
	<-c.process.Done()
	c.ledger.Close()
	return err
}

// Pause stops the process by SIGSTOP until [Core.Continue]: its callers hear
// nothing.
func (c *Core) Pause() error { return c.signal(syscall.SIGSTOP) }

// Continue lets a paused process go on.
func (c *Core) Continue() error { return c.signal(syscall.SIGCONT) }

func (c *Core) signal(s syscall.Signal) error {
	p := c.Process()
	if p == nil {
		return ErrNoCore
	}
	return p.Signal(s)
}

// Tear cuts the log of a core that was killed, as a crash of the machine may: of
// the bytes that no fsync has returned for, the first keep are left. It says how
// many there were.
func (c *Core) Tear(keep int64) (undurable int64, err error) {
	return ubscore.Tear(c.options.Folder, keep)
}

// Folder is where the core's log and snapshots are.
func (c *Core) Folder() string { return c.options.Folder }
