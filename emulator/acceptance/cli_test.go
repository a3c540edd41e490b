package acceptance

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
)

// commandLine builds the program fencepost and returns a folder that has it.
func commandLine(t *testing.T) (folder string) {
	t.Helper()
	program := must(stack.BuildProgram(t.Context(), t.TempDir(), "shared/client/cmd/fencepost", acceptancetest.RaceFlags...))(t)
	folder = t.TempDir()
	check(t, os.Symlink(program, filepath.Join(folder, "fencepost")))
	return folder
}

// operate runs the program fencepost of the folder as an operator, and returns its exit code and what it prints.
func (b bench) operate(t *testing.T, folder string, args ...string) (code int, printed string) {
	t.Helper()
	c := exec.CommandContext(b.ctx, filepath.Join(folder, "fencepost"), args...)
	c.Env = append(os.Environ(), "FENCEPOST_API="+b.URLMap.PublicURL(), "FENCEPOST_OPERATOR_TOKEN="+must(b.Issuer.Token(b.ctx, stack.OperatorAccount, stack.PublicAudience))(t))
	out, err := c.CombinedOutput()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// examples runs all examples of docs/cli.md in one shell, with the variables that the emulator printed. While the sweep
// has not counted a whole minute, doctor has one problem.
func (l *local) examples(t *testing.T, folder string) {
	t.Helper()
	var script strings.Builder
	blocks := regexp.MustCompile("(?ms)^```bash\n(.*?)^```").FindAllSubmatch(must(os.ReadFile("../../docs/cli.md"))(t), -1)
	for _, block := range blocks {
		script.Write(block[1])
	}
	if len(blocks) < 8 {
		t.Fatalf("examples of docs/cli.md: got %d, too few to be all", len(blocks))
	}
	commands := strings.Replace(script.String(), "fencepost doctor\n", "fencepost doctor || [ $? -eq 1 ]\n", 1)
	out := l.shell(t, "export PATH="+folder+":$PATH\n"+commands)
	says(t, "examples of docs/cli.md", out, "request id cli-1:", "CONFIRMED", `"requestId":"cli-1"`, "was carried out before", "till", "COMMITTED", "TxConfirmed",
		"ok       database", "3 of 3 nodes answer", "ok       queues")
	if n := strings.Count(out, "\nPROBLEM ") - strings.Count(out, "\nPROBLEM  sweep "); n > 0 {
		t.Errorf("doctor: got %d problems in\n%s", n, out)
	}
}
