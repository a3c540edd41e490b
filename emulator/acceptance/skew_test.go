package acceptance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/crash"
)

// shiftVariable is by how much the wall clock of a server from buildSkewed is
// wrong.
const shiftVariable = "TIME_SHIFT"

// buildSkewed builds the function server with a time.Now whose wall clock can be
// put forward or back; its monotonic clock stays right, as a machine's does. (Go
// reads the clock without a system call that something outside could change.)
func buildSkewed(t *testing.T) (path string) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const reading = "sec, nsec, mono := runtimeNow()\n"
	if n := strings.Count(string(source), reading); n != 1 {
		t.Fatalf("%s reads the clock at %d places like %q, want 1", original, n, reading)
	}
	text := strings.Replace(string(source), reading, reading+"\tsec += shift\n", 1)
	text = strings.Replace(text, "import (\n", "import (\n\t\"syscall\"\n", 1) + `
var shift = func() int64 {
	text, _ := syscall.Getenv("` + shiftVariable + `")
	d, _ := ParseDuration(text)
	return int64(d / Second)
}()
`
	folder := t.TempDir()
	replacement, overlay := filepath.Join(folder, "time.go"), filepath.Join(folder, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{replacement: []byte(text), overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, err = stack.Build(t.Context(), folder, "-overlay", overlay)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Processes whose clocks are an hour ahead and an hour behind change nothing,
// also when one of them dies in the middle.
func TestClockSkewChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Binary: buildSkewed(t), Processes: 1, TokenSpan: 3 * time.Hour, Settings: quick})
	folder := t.TempDir()
	if err := crash.Arm(folder, "advance.stored", 2, crash.Kill); err != nil {
		t.Fatal(err)
	}
	for _, settings := range []map[string]string{
		{shiftVariable: "1h", crash.Variable: folder}, {shiftVariable: "-1h"},
	} {
		if _, err := b.StartProcess(b.ctx, settings); err != nil {
			t.Fatal(err)
		}
	}
	want := b.postAll(t, 6)
	b.killed(t, folder, "advance.stored")
	b.ends(t, want)
	b.inOrder(t)
	b.calm(t)
	b.wantNoOldToken(t)
	skews := b.log.skews()
	for _, hours := range []int{-1, 0, 1} {
		if skews[hours] == 0 {
			t.Errorf("advances by hours of skew: got %v, want some of each of -1, 0 and 1", skews)
		}
	}
	if n := b.count(`select count(*) from tx_history where abs(extract(epoch from at - clock_timestamp())) > 600`); n != 0 {
		t.Errorf("changes at a wrong time: got %d, want none", n)
	}
}

// skews counts the advances by the hours by which the clock of their process is
// wrong, as their log lines show it.
func (l *testLog) skews() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	skews := make(map[int]int)
	for line := range bytes.Lines(l.text) {
		var entry struct {
			Timestamp         time.Time
			Message, Function string
		}
		if json.Unmarshal(line, &entry) == nil && entry.Message == "invocation" && entry.Function == "advance" {
			skews[int(time.Until(entry.Timestamp).Round(time.Hour)/time.Hour)]++
		}
	}
	return skews
}
