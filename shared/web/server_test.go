package web_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// The variables that make this test binary serve as a function's process.
const (
	childPort  = "WEB_TEST_PORT"
	childDrain = "WEB_TEST_DRAIN"
)

// serveAsChild is the child's main: /slow writes "in" and then waits for the end of standard input,
// /patient for the end of its context.
func serveAsChild(port string) int {
	drain, err := time.ParseDuration(os.Getenv(childDrain))
	if err != nil {
		return 3
	}
	gate := web.NewGate()
	mux := web.NewMux()
	mux.HandleHealth(func(context.Context) error { return nil })
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("in")
		_, _ = io.ReadAll(os.Stdin)
		web.Reply(w, r, http.StatusOK, "done")
	})
	mux.HandleFunc("GET /patient", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("in")
		<-r.Context().Done()
		fmt.Printf("gives up, stopping: %t\n", gate.Stopping())
		web.Reply(w, r, http.StatusOK, "done")
	})
	functions.HTTP("child", web.Edge(gate, mux).ServeHTTP)
	err = web.Serve(context.Background(), web.ServeOptions{
		Port: port, Gate: gate, Drain: drain,
		Hooks: []func(context.Context) error{
			func(context.Context) error { fmt.Println("first hook"); return errors.New("hook failed") },
			func(context.Context) error { fmt.Println("second hook"); return nil },
		},
	})
	fmt.Println(err)
	if err == nil || !strings.Contains(err.Error(), "hook failed") {
		return 4
	}
	return 0
}

type child struct {
	cmd    *exec.Cmd
	url    string
	stdin  io.Closer
	lines  *bufio.Scanner
	client *http.Client
}

func startChild(t *testing.T, drain time.Duration) *child {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // then the child is killed, and the waiting test fails
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childPort+"="+port, childDrain+"="+drain.String(), "FUNCTION_TARGET=child")
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	check.OK(t)(errors.Join(errIn, errOut, cmd.Start()))
	transport := &http.Transport{}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait(); transport.CloseIdleConnections() })
	c := &child{cmd: cmd, url: "http://127.0.0.1:" + port, stdin: stdin, lines: bufio.NewScanner(stdout), client: &http.Client{Transport: transport}}
	c.await(t, http.StatusOK)
	return c
}

// await calls /healthz until it answers with the status.
func (c *child) await(t *testing.T, status int) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.Tick(5 * time.Millisecond); ; {
		resp, err := c.client.Get(c.url + "/healthz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == status {
				return resp
			}
		}
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("got %v, %v from /healthz, want %d in time", resp, err, status)
		}
	}
}

// ask calls a path and waits until the child is in its handler.
func (c *child) ask(t *testing.T, path string) <-chan error {
	t.Helper()
	answered := make(chan error, 1)
	go func() {
		resp, err := c.client.Get(c.url + path)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
		}
		answered <- err
	}()
	for c.lines.Scan() {
		if c.lines.Text() == "in" {
			return answered
		}
	}
	t.Fatal("got the end of the child's output, want it in its handler")
	return nil
}

func (c *child) wantCleanExit(t *testing.T) {
	t.Helper()
	var output string
	for c.lines.Scan() {
		output += c.lines.Text() + "\n"
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("got %v with output %q, want exit status 0", err, output)
	}
	if want := "first hook\nsecond hook\n"; !strings.Contains(output, want) {
		t.Errorf("got output %q, want both hooks to have run", output)
	}
}

func TestSIGTERMLetsTheRequestInFlightEndAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	c := startChild(t, time.Minute)
	answered := c.ask(t, "/slow")
	check.OK(t)(c.cmd.Process.Signal(syscall.SIGTERM))
	if refused := c.await(t, http.StatusServiceUnavailable); !refused.Close || refused.Header.Get("Retry-After") == "" {
		t.Errorf("got header %v, want Connection: close and a Retry-After", refused.Header)
	}
	c.stdin.Close()
	check.Err(t, "the request in flight at SIGTERM", nil)(<-answered)
	c.wantCleanExit(t)
}

func TestTheDrainEndsThoughARequestDoesNot(t *testing.T) {
	t.Parallel()
	c := startChild(t, time.Millisecond)
	answered := c.ask(t, "/slow")
	check.OK(t)(c.cmd.Process.Signal(syscall.SIGTERM))
	c.wantCleanExit(t)
	if err := <-answered; err == nil {
		t.Error("got an answer from a request that never ended, want the connection lost")
	}
}

// A handler that waits for its context returns early enough to be answered.
func TestTheContextEndsBeforeTheDrain(t *testing.T) {
	t.Parallel()
	c := startChild(t, 3*time.Second)
	answered := c.ask(t, "/patient")
	check.OK(t)(c.cmd.Process.Signal(syscall.SIGTERM))
	check.Err(t, "the request in flight at SIGTERM", nil)(<-answered)
	if !c.lines.Scan() || c.lines.Text() != "gives up, stopping: true" {
		t.Errorf("got %q, want it to give up while the instance stops", c.lines.Text())
	}
	c.wantCleanExit(t)
}
