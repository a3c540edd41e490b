package anvil_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/shared/chain/anvil"
	"github.com/fencepost/fencepost/shared/check"
)

// parent makes this test binary a process that has a node and waits to be killed.
const parent = "ANVIL_TEST_PARENT"

// Each node of these tests is closed, so a running goroutine is a leak.
func TestMain(m *testing.M) {
	if os.Getenv(parent) != "" {
		fmt.Println(beParent())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// beParent prints its node's address. It returns only on failure.
func beParent() error {
	chain, err := anvil.Start(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(chain.URL())
	_, err = os.Stdin.Read(make([]byte, 1)) // the test never writes
	return fmt.Errorf("not killed: %v, %v", err, chain.Close())
}

// A process that is killed leaves no node behind.
func TestNodeDiesWithItsParent(t *testing.T) {
	t.Parallel()
	_ = setup(t) // skips if there is no anvil
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), parent+"=1", "TMPDIR="+t.TempDir())
	stdin := check.Value(cmd.StdinPipe())(t)
	defer stdin.Close()
	out := check.Value(cmd.StdoutPipe())(t)
	check.OK(t)(cmd.Start())
	said, _ := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(said), "http://")
	if !ok || !listens(address) {
		t.Errorf("the parent says %q, want the address of its node", said)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	await(t, "the node to be gone", func() bool { return !listens(address) })
}

// Neither a closed chain nor a start that timed out leaves files behind, here or in the home folder. The test
// does not run in parallel, because it sets the folders for all.
func TestLeavesNoFiles(t *testing.T) {
	_ = setup(t) // with the unchanged folders: the program is looked up once
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Setenv("HOME", folder)
	chain := check.Value(anvil.Start(t.Context()))(t)
	check.OK(t)(errors.Join(chain.Mine(1), chain.Reorg(nil), chain.Close()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := anvil.Start(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, anvil.ErrNotThere) {
		t.Errorf("start without time: got %v, want the context's error", err)
	}
	check.Equal(t, "files left", len(check.Value(os.ReadDir(folder))(t)), 0)
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
