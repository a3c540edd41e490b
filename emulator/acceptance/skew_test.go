package acceptance

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/crash"
)

// buildSkewed builds the function server with a wall clock that can be put forward or
// back.
func buildSkewed(t *testing.T) (path string) {
	t.Helper()
	folder := t.TempDir()
	overlay, err := stack.WrongClock(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
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
		{stack.ShiftVariable: "1h", crash.Variable: folder}, {stack.ShiftVariable: "-1h"},
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
