package anvil

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// stopTime bounds the node's own shutdown.
const stopTime = 3 * time.Second

// child is one running node. It dies with this process, even if that is killed by SIGKILL: on Linux by the
// parent-death signal (prctl(2), PR_SET_PDEATHSIG). That signal follows the thread that made the child, so
// one goroutine starts it, waits for it, and keeps its thread meanwhile.
type child struct {
	cmd     *exec.Cmd
	end     context.CancelFunc // asks the node to end; it is killed if it does not within stopTime
	banner  banner
	address string     // host:port
	started chan error // gets the result of the start
	done    chan struct{}
	err     error // how it ended; read after done only
}

// startChild runs the node until it has printed its address.
func startChild(ctx context.Context, path string, args []string) (*child, error) {
	life, end := context.WithCancel(context.Background())
	c := &child{cmd: exec.CommandContext(life, path, args...), end: end, banner: banner{address: make(chan string, 1)},
		started: make(chan error, 1), done: make(chan struct{})}
	go c.run()
	if err := <-c.started; err != nil {
		return nil, err
	}
	select {
	case c.address = <-c.banner.address:
		return c, nil
	case <-c.done:
		return nil, fmt.Errorf("it ended before it listened: %v; it said: %s", c.err, c.banner.tail())
	case <-ctx.Done():
		c.stop()
		return nil, fmt.Errorf("it does not listen: %w; it said: %s", ctx.Err(), c.banner.tail())
	}
}

func (c *child) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	defer c.end()
	c.cmd.SysProcAttr = attributes()
	c.cmd.Stdout, c.cmd.Stderr = &c.banner, &c.banner
	c.cmd.Cancel, c.cmd.WaitDelay = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }, stopTime
	err := c.cmd.Start()
	c.started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

// stop asks the node to end, and kills it if it does not.
func (c *child) stop() {
	c.end()
	<-c.done
}

// banner keeps the node's output up to the line with its address, and drops the rest.
type banner struct {
	said    []byte
	address chan string // gets the address, once
	over    bool
}

var listening = regexp.MustCompile(`Listening on (\S+)\n`)

// Write never fails.
func (b *banner) Write(text []byte) (int, error) {
	if b.over {
		return len(text), nil
	}
	b.said = append(b.said, text...)
	if at := listening.FindSubmatch(b.said); at != nil {
		b.over = true
		b.address <- string(at[1])
	}
	return len(text), nil
}

// tail returns the last output before the address. It may be called when the node has ended.
func (b *banner) tail() []byte {
	said := bytes.TrimSpace(b.said)
	return said[max(0, len(said)-500):]
}
