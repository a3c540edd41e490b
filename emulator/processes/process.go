// Package processes runs real operating-system processes of one binary, each
// listening on a port of its own, so that the emulator and the tests can kill,
// pause and restart what in production are instances.
//
// A child dies with its parent, even if that is killed by SIGKILL and can clean
// up nothing. On Linux the kernel does it: the child has SIGKILL as its
// parent-death signal (prctl(2), PR_SET_PDEATHSIG). "Parent" there means the
// thread that made the child, not the process; so each child is started and
// waited for by one goroutine that keeps its thread for as long as the child
// lives. Without that the Go runtime could end the thread, and the kernel would
// kill a healthy child. Elsewhere than on Linux there is no such signal, and a
// killed parent leaves its children behind.
package processes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	healthPoll = 10 * time.Millisecond
	healthCall = time.Second // one question to /healthz; a child may be paused

	// outputDelay is how long a dead child's output may be kept open by a child
	// of its own.
	outputDelay = 2 * time.Second
)

// Spec says what to run.
type Spec struct {
	Name string   // of the service, for errors and output
	Path string   // the binary
	Args []string // without the binary's own name
	Env  []string // the whole environment, as KEY=value; PORT is added to it, and GORACE if this process has it

	// Output, if not nil, is called for each line that the child writes, one at
	// a time for each child. While it runs the child may be unable to write.
	Output func(Line)
}

// Line is one line of a child's output, without its end. Lines longer than
// 64 KiB come in pieces.
type Line struct {
	Name   string // the Spec's
	PID    int
	Stderr bool // else standard output
	Text   string
}

// Process is one running child. Its methods may be called from several
// goroutines, and after its end.
type Process struct {
	spec    Spec
	port    int
	cmd     *exec.Cmd
	started chan error    // gets the result of starting it
	done    chan struct{} // closed at its end
	err     error         // why it ended; read after done only
	said    atomic.Pointer[string]
}

// Start starts a child on a free port of 127.0.0.1 and waits until GET /healthz
// answers 200. The error says how the child ended, with the last line that it
// wrote, or that it was not healthy before the end of ctx; either way it is gone
// then. A ctx that ends later changes nothing.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	port, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{spec: spec, port: port, started: make(chan error, 1), done: make(chan struct{})}
	go p.run()
	if err := <-p.started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	if err := p.awaitHealth(ctx); err != nil {
		_ = p.Kill()
		<-p.done
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return p, nil
}

// run is the child's life, on one thread; the package comment says why.
func (p *Process) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer releasePort(p.port)
	defer close(p.done)
	p.cmd = exec.Command(p.spec.Path, p.spec.Args...)
	p.cmd.Env = slices.Concat(raceSettings(), p.spec.Env, []string{"PORT=" + strconv.Itoa(p.port)})
	p.cmd.SysProcAttr = attributes()
	p.cmd.WaitDelay = outputDelay
	var lock sync.Mutex
	stdout, stderr := &lineWriter{process: p, lock: &lock}, &lineWriter{process: p, lock: &lock, stderr: true}
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	err := p.cmd.Start()
	p.started <- err
	if err != nil {
		p.err = err
		return
	}
	p.err = p.cmd.Wait()
	stdout.flush()
	stderr.flush()
}

func (p *Process) awaitHealth(ctx context.Context) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: healthCall}
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		if p.healthy(ctx, client) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("it ended before it was healthy: %w; its last line: %q", p.Err(), p.lastLine())
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy: %w; its last line: %q", ctx.Err(), p.lastLine())
		}
	}
}

func (p *Process) healthy(ctx context.Context, client *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr()+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// ErrExited stands for a child that ended with status 0.
var ErrExited = errors.New("exit status 0")

// Addr is where the child listens, as host:port.
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// PID is the child's process id; after its end another process may have it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and all its output is delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is nil while the child runs; then it is [ErrExited] for status 0, or says
// the status or the signal that ended it.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	if p.err == nil {
		return ErrExited
	}
	return p.err
}

// Signal sends a signal, such as SIGSTOP to pause the child and SIGCONT to let
// it go on. The error is [os.ErrProcessDone] if the child has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill sends SIGKILL and does not wait; see [Process.Done]. A child that has
// ended is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.spec.Name, err)
	}
	return nil
}

// Stop sends SIGTERM, and SIGCONT in case the child is paused, and waits for its
// end. At the end of ctx it is killed, and the error says so; it has ended in
// any case when Stop returns.
func (p *Process) Stop(ctx context.Context) error {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", p.spec.Name, err)
		}
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	err := p.Kill()
	<-p.done
	return errors.Join(fmt.Errorf("stop %s: killed, since it did not end: %w", p.spec.Name, ctx.Err()), err)
}

func (p *Process) lastLine() string {
	if said := p.said.Load(); said != nil {
		return *said
	}
	return ""
}
