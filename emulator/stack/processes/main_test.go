package processes_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/check"
	"go.uber.org/goleak"
)

// role makes this test binary a child, or a parent that has one.
const role = "PROCESSES_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "child":
		os.Exit(beChild())
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		os.Exit(beChild())
	case "broken":
		fmt.Fprintln(os.Stderr, "no such setting")
		os.Exit(7)
	case "racing":
		fmt.Fprintln(os.Stderr, "==================\nWARNING: DATA RACE\nWrite by "+os.Getenv("GORACE")+"\n==================\nno part of it")
		os.Exit(beChild())
	case "parent":
		os.Exit(beParent())
	}
	goleak.VerifyTestMain(m)
}

// beChild serves /healthz until SIGTERM.
func beChild() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if signal.Ignored(syscall.SIGTERM) {
		ctx = context.Background()
	}
	fmt.Println("to stdout")
	fmt.Fprint(os.Stderr, "to stderr, without an end")
	go func() {
		_ = http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}()
	<-ctx.Done()
	return 0
}

// beParent starts a child, prints its address, and waits to be killed.
func beParent() int {
	p, err := processes.Start(context.Background(), spec("child", nil))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.Addr())
	<-p.Done()
	return 2
}

func spec(as string, output func(string)) processes.Spec {
	env := append(os.Environ(), role+"="+as)
	return processes.Spec{Name: as, Path: os.Args[0], Env: env, Output: output}
}

// within returns a context that bounds a test's waits.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, s processes.Spec) *processes.Process {
	t.Helper()
	p := check.Value(processes.Start(within(t), s))(t)
	t.Cleanup(func() { _ = p.Kill(); <-p.Done() })
	return p
}

// next receives the next value. It fails the test if the channel has none in time and is not closed either.
func next[T any](t *testing.T, from <-chan T, what string) (received T) {
	t.Helper()
	select {
	case received = <-from:
	case <-within(t).Done():
		t.Fatalf("got no %s in time", what)
	}
	return received
}

// answers reports whether a listener at addr answers within the time.
func answers(addr string, patience time.Duration) bool {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/healthz")
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !retry.Await(within(t), 5*time.Millisecond, holds) {
		t.Fatalf("not in time: %s", what)
	}
}

// killedParent runs this binary as a parent and kills it by SIGKILL. It returns the child's address.
func killedParent(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(within(t), os.Args[0])
	cmd.Env = append(os.Environ(), role+"=parent")
	out := check.Value(cmd.StdoutPipe())(t)
	check.OK(t)(cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr := strings.TrimSpace(line)
	if err != nil || !answers(addr, time.Minute) {
		t.Fatalf("got %q, %v from the parent, want where a child answers", line, err)
	}
	check.OK(t)(cmd.Process.Kill())
	_ = cmd.Wait()
	return addr
}
