// Package processes runs processes of one binary, each listening on its own port. The emulator and the tests
// can kill, pause and restart them like the instances of production.
//
// A child ends with its parent, even if the parent is killed by SIGKILL. On Linux the kernel does this: the
// child has SIGKILL as its parent-death signal (prctl(2), PR_SET_PDEATHSIG). "Parent" means the thread that
// started the child, not the process. So one goroutine starts each child and waits for it, and keeps its
// thread for that time. Otherwise the Go runtime could end the thread, and the kernel would kill a healthy
// child. Other systems have no such signal, and the children of a killed parent stay.
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
	healthCall = time.Second // one request of /healthz; a child can be paused

	// outputDelay is how long a grandchild may keep an ended child's output open.
	outputDelay = 2 * time.Second
)

// Spec describes the process to run.
type Spec struct {
	Name string   // of the service, for errors and output
	Path string   // the binary
	Args []string // without the binary's own name
	Env  []string // the whole environment, as KEY=value; PORT is added, and GORACE if this process has it

	// Output, if not nil, is called for each line that the child writes, without its end, one at a time for
	// each child. Lines longer than 64 KiB are split. The child may be blocked in its write meanwhile.
	Output func(line string)
}

// Process is one child. Several goroutines can use it, also after its end.
type Process struct {
	spec        Spec
	port        int
	held        net.PacketConn // the reservation of the port
	cmd         *exec.Cmd
	started     chan error    // receives the result of the start
	done        chan struct{} // closed at its end
	err         error         // why it ended; read after done only
	lastWritten atomic.Value  // the last line, a string
}

// Start starts a child on a free port of 127.0.0.1 and waits until GET /healthz answers 200. The error has
// the child's end with its last line, or reports that it was not healthy before the end of ctx. The child
// has then ended. Later ctx has no effect.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	port, held, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{spec: spec, port: port, held: held, started: make(chan error, 1), done: make(chan struct{})}
	go p.run()
	if err = <-p.started; err == nil {
		if err = p.awaitHealth(ctx); err == nil {
			return p, nil
		}
		p.end()
	}
	return nil, fmt.Errorf("start %s: %w", spec.Name, err)
}

// end kills the child and waits for its end.
func (p *Process) end() {
	_ = p.Kill()
	<-p.done
}

// run runs the child on one thread; the package comment has the reason.
func (p *Process) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer p.held.Close()
	defer close(p.done)
	p.cmd = exec.Command(p.spec.Path, p.spec.Args...)
	p.cmd.Env = slices.Concat(raceSettings(), p.spec.Env, []string{"PORT=" + strconv.Itoa(p.port)})
	p.cmd.SysProcAttr = Attributes()
	p.cmd.WaitDelay = outputDelay
	var lock sync.Mutex
	stdout, stderr := newStream(p, &lock), newStream(p, &lock)
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	err := p.cmd.Start()
	p.started <- err
	if err != nil {
		p.err = err
		return
	}
	p.err = p.cmd.Wait()
	stdout.end()
	stderr.end()
}

func (p *Process) awaitHealth(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: healthCall}
	for !p.healthy(ctx, client) {
		select {
		case <-time.After(healthPoll):
		case <-p.done:
			return fmt.Errorf("it ended before it was healthy: %w; its last line: %q", p.Err(), p.lastLine())
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy: %w; its last line: %q", ctx.Err(), p.lastLine())
		}
	}
	return nil
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

// ErrExited is the error of a child that ended with status 0.
var ErrExited = errors.New("exit status 0")

// Addr is the child's address, as host:port.
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// PID is the child's process id; after its end another process may have it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and all its output is delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is nil while the child runs. Then it is [ErrExited] for status 0, or an error with the status or the
// signal.
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

// Signal sends a signal, such as SIGSTOP to pause the child and SIGCONT to resume it. The error is
// [os.ErrProcessDone] if the child has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill sends SIGKILL without a wait; see [Process.Done]. It does nothing for an ended child.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.spec.Name, err)
	}
	return nil
}

// Stop sends SIGTERM, and SIGCONT in case the child is paused, and waits for its end. At the end of ctx it
// kills the child and returns an error. The child has ended when Stop returns.
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
	line, _ := p.lastWritten.Load().(string)
	return line
}
