package acceptance

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	emulatorlocal "github.com/fencepost/fencepost/emulator/local"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// local is a running emulator as a person starts it, with what it prints.
type local struct {
	program string
	folder  string // of the shell that runs commands; "": the test's
	out     acceptancetest.Log
}

// localSettings are given by --set. Each differs from its default.
var localSettings = withSettings(quick, map[string]string{"FENCEPOST_EVENTS_WEBHOOK_TIMEOUT": "900ms"})

// startLocal starts the emulator until the end of t.
func startLocal(t *testing.T, args ...string) *local {
	t.Helper()
	l := &local{program: must(stack.BuildProgram(t.Context(), t.TempDir(), "emulator", acceptancetest.RaceFlags...))(t)}
	for variable, value := range localSettings {
		args = append(args, "--set", variable+"="+value)
	}
	core := must(ubscore.Build(t.Context(), t.TempDir()))(t)
	l.start(t, exec.Command(l.program, append(args, "--server", acceptancetest.Server.Path, "--core", core, "--control", "127.0.0.1:0")...))
	return l
}

// start runs the command, which runs the emulator, until the end of t. It returns when the emulator has printed what to paste.
func (l *local) start(t *testing.T, c *exec.Cmd) {
	t.Helper()
	c.Stdout, c.Stderr = &l.out, &l.out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all of it gets the signal, as by Ctrl-C
	check(t, c.Start())
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT) // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("the emulator printed:\n%s", &l.out)
		}
	})
	l.until(t, "the emulator never said what to paste", func() bool {
		select {
		case <-ended:
			t.Fatal("the emulator ended")
		default:
		}
		return strings.Contains(l.out.String(), "drill --list")
	})
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
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", exports+"\n"+commands)
	c.Dir = l.folder
	out, err := c.CombinedOutput()
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

// What the emulator prints works when it is pasted, and each drill ends as its runbook says. The restore is last.
func TestLocalEnvironment(t *testing.T) {
	t.Parallel()
	l := startLocal(t, "--transfers", "--events", "webhook", "--window", "3", "--block-time", "250ms", "--nodes", "3")
	l.signIn(t)
	l.paste(t)
	l.settings(t)
	folder := commandLine(t)
	l.examples(t, folder)
	l.decideAsOperator(t, folder)
	for _, d := range emulatorlocal.Drills {
		began := time.Now()
		out, err := l.drill(t, d.Name, "--solve", "--for", "1s").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "docs/runbooks/"+d.Runbook+" says") {
			t.Fatalf("drill %s: got %v\n%s", d.Name, err, out)
		}
		must(os.Stat("../../docs/runbooks/" + d.Runbook))(t)
		t.Logf("drill %s: %s", d.Name, time.Since(began).Round(100*time.Millisecond))
	}
	if out, err := l.drill(t, "no-such").CombinedOutput(); err == nil || !strings.Contains(string(out), "there is no drill no-such") {
		t.Errorf("an unknown drill: got %v, %s; want it refused", err, out)
	}
}

// drill returns the command that runs a drill on the emulator.
func (l *local) drill(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	control := regexp.MustCompile(`CONTROL=(\S+)`).FindStringSubmatch(l.out.String())[1]
	c := exec.CommandContext(t.Context(), l.program, append([]string{"drill"}, args...)...)
	c.Env = append(os.Environ(), "CONTROL="+control)
	return c
}

// decideAsOperator runs a drill that waits for the operator's call, and makes it by the program fencepost. Meanwhile no
// other drill runs.
func (l *local) decideAsOperator(t *testing.T, folder string) {
	t.Helper()
	var out acceptancetest.Log
	c := l.drill(t, "stuck")
	c.Stdout, c.Stderr = &out, &out
	check(t, c.Start())
	l.until(t, "the drill never said what to expect", func() bool { return strings.Contains(out.String(), "Expect:") })
	if second, err := l.drill(t, "reorg").CombinedOutput(); err == nil || !strings.Contains(string(second), "another drill is running") {
		t.Errorf("a second drill: got %v, %s; want it refused", err, second)
	}
	if strings.Contains(out.String(), "Ended") {
		t.Errorf("before the decision: got %s, want the drill to wait", &out)
	}
	id := regexp.MustCompile(`/api/v1/tx/(\S+)`).FindStringSubmatch(out.String())[1]
	l.shell(t, folder+"/fencepost tx decide "+id+" placeholder --reason 'not needed'")
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "has ended: FAILED PLACEHOLDER") {
		t.Errorf("after the decision: got %v, %s; want it ended by the placeholder", err, &out)
	}
}

// settings checks that the functions run by each setting that was given.
func (l *local) settings(t *testing.T) {
	t.Helper()
	var overview client.Overview
	text := l.shell(t, `curl -fsS "$API/admin/v1/overview" -H "Authorization: Bearer $OPERATOR_TOKEN"`)
	check(t, json.Unmarshal([]byte(text), &overview), text)
	shown := make(map[string]string)
	for _, s := range overview.Settings {
		shown[s.Variable] = s.Value
	}
	for variable, value := range localSettings {
		if d, err := time.ParseDuration(value); err == nil {
			value = d.String()
		}
		equal(t, "what the functions run by for "+variable, shown[variable], value)
	}
}

// signIn opens the printed URL of the console, which signs in once, and a new one. The code is not in the URL at
// which it ends.
func (l *local) signIn(t *testing.T) {
	t.Helper()
	printed := regexp.MustCompile(`(?m)^  (http://\S+/console/enter\?code=\S+)$`).FindStringSubmatch(l.out.String())
	if printed == nil {
		t.Fatal("the console's URL: got none printed")
	}
	opens := func(jar, url string) string {
		t.Helper()
		return l.shell(t, `curl -sS -L -o /dev/null -w '%{http_code} %{url_effective}' -b `+jar+` -c `+jar+` "`+url+`"`)
	}
	operator, viewer := t.TempDir()+"/operator", t.TempDir()+"/viewer"
	ended := l.shell(t, `echo "200 $API/console/"`)
	equal(t, "the printed URL", opens(operator, printed[1])+"\n", ended)
	if got := opens(viewer, printed[1]); !strings.HasPrefix(got, "403 ") {
		t.Errorf("the printed URL again: got %s, want 403", got)
	}
	again := strings.TrimSpace(l.shell(t, "curl -sS -X POST $CONTROL/console?as=viewer"))
	equal(t, "a viewer's URL", opens(viewer, again)+"\n", ended)
}

// paste runs the printed commands: tokens, an intent to its end, a transfer, a payout. The webhook receiver prints what it
// gets. No private key is shown unasked.
func (l *local) paste(t *testing.T) {
	t.Helper()
	for command, want := range map[string]string{
		l.printed(t, "-d '{\"submitter\""): `"txId":"`, l.printed(t, "/admin/v1/submitters/"): `"maxInFlight":3`,
		l.printed(t, "move-1"): `"COMMITTED"`, l.printed(t, "pay-1"): `"to":"CHAIN"`,
		"curl -sS $CONTROL/token/user/x": "invalid syntax",
	} {
		says(t, command, l.shell(t, command), want)
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
