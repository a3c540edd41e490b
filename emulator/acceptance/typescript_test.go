package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client/typescripttest"
)

// The TypeScript client's tests and the examples of its README pass against a deployment. Its receiver of webhooks
// verifies a delivery, and so does that of the command line.
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	folder := typescripttest.Copy(t, "../../shared/client/typescript")
	typescripttest.Build(t, folder)
	port, commands := freePort(t), freePort(t)
	b := setup(t, stack.Options{Submitters: 2, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_TIMEOUT": "900ms",
		"FENCEPOST_EVENTS_WEBHOOK_URLS":    fmt.Sprintf("ts=http://127.0.0.1:%d/,cli=http://127.0.0.1:%d/", port, commands),
		"FENCEPOST_EVENTS_WEBHOOK_SECRETS": "ts=" + hookSecret + ",cli=" + hookSecret,
	})})
	environment := append(os.Environ(),
		"API="+b.URLMap.PublicURL(), "SUBMITTER="+string(b.Submitters()[0]),
		"TOKEN="+must(b.Issuer.Token(b.ctx, stack.CallerAccount, stack.PublicAudience))(t),
		"OPERATOR_TOKEN="+must(b.Issuer.Token(b.ctx, stack.OperatorAccount, stack.PublicAudience))(t),
		"WEBHOOK_SECRET="+hookSecret, "FENCEPOST_WEBHOOK_SECRET="+hookSecret, fmt.Sprint("WEBHOOK_PORT=", port))
	receiver, examples := readmeExamples(t, folder)
	received := start(t, environment, folder, "node", receiver)
	listened := start(t, environment, folder, commandLine(t)+"/fencepost", "webhook", "listen", "--listen", fmt.Sprint("127.0.0.1:", commands))

	tests := must(filepath.Glob(filepath.Join(folder, "build", "*.test.js")))(t)
	out, err := node(b.ctx, folder, environment, append([]string{"--test", "--test-reporter=tap"}, tests...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "# fail 0") || strings.Contains(string(out), "# pass 0") {
		t.Errorf("node --test: %v\n%s", err, out)
	}
	wanted := []string{"CONFIRMED 0x", "payload.to want an address, 0x and 40 hex digits", "order-4711 CONFIRMED"}
	environment = append(environment, "SUBMITTER="+string(b.Submitters()[1])) // whose queue is empty
	for i, path := range examples {
		out, err := node(b.ctx, folder, environment, path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), wanted[i]) {
			t.Errorf("%s of the README: got %v, want %q in\n%s", filepath.Base(path), err, wanted[i], out)
		}
	}
	b.until(t, "the receiver verified no TxConfirmed of the example's intent", func() bool {
		return strings.Contains(received.String(), " TxConfirmed order-4711\n")
	})
	b.until(t, "the command line verified no TxConfirmed", func() bool { return strings.Contains(listened.String(), "  TxConfirmed  ") })
}

// readmeExamples returns the programs of the README: the receiver of webhooks, and the others in their order.
func readmeExamples(t *testing.T, folder string) (receiver string, others []string) {
	t.Helper()
	all := must(filepath.Glob(filepath.Join(folder, "build", "readme-*.js")))(t)
	slices.Sort(all)
	for _, path := range all {
		if bytes.Contains(must(os.ReadFile(path))(t), []byte("verifyWebhook")) {
			receiver = path
		} else {
			others = append(others, path)
		}
	}
	if receiver == "" || len(others) != 3 {
		t.Fatalf("examples of the README: got %v, want a receiver and three others", all)
	}
	return receiver, others
}

func node(ctx context.Context, folder string, environment []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "node", args...)
	c.Dir, c.Env = folder, environment
	return c
}

// start runs a program in the folder until the end of t, and returns what it prints.
func start(t *testing.T, environment []string, folder, program string, args ...string) *acceptancetest.Log {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := new(acceptancetest.Log)
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Env = folder, environment
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = 5 * time.Second
	check(t, c.Start())
	t.Cleanup(func() {
		cancel()
		_ = c.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s printed:\n%s", filepath.Base(program), out)
		}
	})
	return out
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
