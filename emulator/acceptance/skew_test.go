package acceptance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Processes whose clocks are an hour ahead or behind change nothing, even if one of them dies.
func TestClockSkewChangesNothing(t *testing.T) {
	t.Parallel()
	if !crash.MovesClock {
		t.Skip("SKIPPED: the wall clock of a process cannot be moved on this system")
	}
	b := setup(t, stack.Options{Processes: 1, TokenSpan: 3 * time.Hour, Settings: quick})
	folder := t.TempDir()
	for _, settings := range []map[string]string{
		{crash.ShiftVariable: "1h", crash.Variable: folder}, {crash.ShiftVariable: "-1h"},
	} {
		must(b.StartProcess(b.ctx, settings))(t)
	}
	hours := []int{-1, 0, 1}
	want := make(map[txmanager.Submitter]int)
	b.postUntil(t, want, func() bool { // until each process has had work
		skews := b.skews()
		return !slices.ContainsFunc(hours, func(h int) bool { return skews[h] == 0 })
	})
	check(t, crash.Arm(folder, "advance.stored", 1, crash.Kill))
	b.postUntil(t, want, func() bool { return crash.Hit(folder, "advance.stored") })
	b.ends(t, want)
	b.inOrder(t)
	b.calm(t)
	b.wantNoOldToken(t)
	b.wantCount(t, "changes at a wrong time", 0, `select count(*) from tx_history where abs(extract(epoch from at - clock_timestamp())) > 600`)
}

// postUntil posts and counts intents of each submitter until the condition is met.
func (b bench) postUntil(t *testing.T, posted map[txmanager.Submitter]int, met func() bool) {
	t.Helper()
	for !met() {
		if b.ctx.Err() != nil {
			t.Fatalf("posted %v, and still not so; advances by hours of skew: %v", posted, b.skews())
		}
		for _, s := range b.Submitters() {
			b.roomFor(t, s)
			b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", posted[s])))
			posted[s]++
		}
	}
}

// skews counts the advances by the error of their process' clock in hours, as the log shows it.
func (b bench) skews() map[int]int {
	skews := make(map[int]int)
	for _, line := range b.Log.Lines("invocation") {
		var entry struct {
			Timestamp         time.Time
			Message, Function string
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "invocation" && entry.Function == "advance" {
			skews[int(time.Until(entry.Timestamp).Round(time.Hour)/time.Hour)]++
		}
	}
	return skews
}
