package acceptance

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
)

// local is a running emulator as a person starts it, with what it prints.
type local struct {
	program string
	out     lockedText
}

type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startLocal starts the emulator until the end of t.
func startLocal(t *testing.T, args ...string) *local {
	t.Helper()
	l := &local{program: must(stack.BuildProgram(t.Context(), t.TempDir(), "emulator", acceptancetest.RaceFlags...))(t)}
	core := must(ubscore.Build(t.Context(), t.TempDir()))(t)
	c := exec.Command(l.program, append(args, "--server", binary, "--core", core, "--control", "127.0.0.1:0")...)
	c.Stdout, c.Stderr = &l.out, &l.out
	check(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGINT) // it may have ended
		_ = c.Wait()
		if t.Failed() {
			t.Logf("the emulator printed:\n%s", &l.out)
		}
	})
	l.until(t, "the emulator never said what to paste", func() bool { return strings.Contains(l.out.String(), "More: curl") })
	return l
}

func (l *local) until(t *testing.T, wrong string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
	defer cancel()
	check(t, poll(ctx, met), wrong)
}

// shell runs commands in a shell that got the printed exports, and returns what they print.
func (l *local) shell(t *testing.T, commands string) string {
	t.Helper()
	exports := strings.Join(regexp.MustCompile(`(?m)^export .*$`).FindAllString(l.out.String(), -1), "\n")
	out, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", exports+"\n"+commands).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// printed returns the printed command that contains the text.
func (l *local) printed(t *testing.T, text string) string {
	t.Helper()
	for _, command := range regexp.MustCompile(`(?m)^curl (?:.*\\\n)*.*$`).FindAllString(l.out.String(), -1) {
		if strings.Contains(command, text) {
			return command
		}
	}
	t.Fatalf("printed commands: got none with %q", text)
	return ""
}

// What the emulator prints works when it is pasted: tokens, an intent to its end, a transfer, a payout, and
// the webhook receiver. No private key is shown unasked.
func TestPastedCommandsWork(t *testing.T) {
	t.Parallel()
	l := startLocal(t, "--transfers", "--events", "webhook", "--window", "3", "--block-time", "250ms", "--nodes", "3")
	for command, want := range map[string]string{
		l.printed(t, "-d '{\"submitter\""): `"txId":"`, l.printed(t, "/admin/v1/submitters/"): `"maxInFlight":3`,
		l.printed(t, "move-1"): `"COMMITTED"`, l.printed(t, "pay-1"): `"to":"CHAIN"`,
		"curl -sS $CONTROL/token/user/x": "invalid syntax",
	} {
		if got := l.shell(t, command); !strings.Contains(got, want) {
			t.Errorf("%s\ngot %s, want %s", command, got, want)
		}
	}
	end := l.printed(t, "requestId=hello-1")
	l.until(t, "the pasted intent never ended", func() bool { return strings.Contains(l.shell(t, end), `"state":"CONFIRMED"`) })
	l.until(t, "the pasted payout never ended", func() bool {
		return strings.Count(l.shell(t, `curl -sS "$API/api/v1/internal_transfer" -H "Authorization: Bearer $USER_TOKEN"`), `"COMMITTED"`) == 2
	})
	l.until(t, "the receiver printed no TxConfirmed", func() bool { return strings.Contains(l.out.String(), `webhook: got {"type" : "TxConfirmed"`) })
	if info := l.shell(t, "curl -sS $CONTROL/info"); !strings.Contains(info, `"submitters"`) || strings.Contains(info, "privateKey") {
		t.Errorf("info: got %s, want the submitters without keys", info)
	}
}
