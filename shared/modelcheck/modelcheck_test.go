package modelcheck

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jugs hold 3 and 5 litres. The riddle is to have an amount in the larger one.
type jugs struct{ three, five int }

// riddle looks for violation litres, from which one gets to end litres.
func riddle(violation, end int) Machine[jugs, string, string] {
	return Machine[jugs, string, string]{
		Key:      func(s jugs) string { return fmt.Sprint(s) },
		Describe: func(s jugs) string { return fmt.Sprintf("%d of 5, %d of 3", s.five, s.three) },
		Terminal: func(s jugs) bool { return s.five == end },
		Violation: func(s jugs, possible []string) string {
			if s.five == violation {
				return fmt.Sprintf("measured, %d steps possible", len(possible))
			}
			return ""
		},
		Next: func(s jugs, emit func(string, jugs)) {
			emit("fill 3", jugs{3, s.five})
			emit("fill 5", jugs{s.three, 5})
			emit("empty 3", jugs{0, s.five})
			emit("empty 5", jugs{s.three, 0})
			n := min(s.three, 5-s.five)
			emit("3 to 5", jugs{s.three - n, s.five + n})
			n = min(s.five, 3-s.three)
			emit("5 to 3", jugs{s.three + n, s.five - n})
		},
	}
}

func TestSearchFindsAShortestTrace(t *testing.T) {
	t.Parallel()
	got := Search(riddle(4, 0), 1000)
	want := []string{"fill 5", "5 to 3", "empty 3", "5 to 3", "fill 5", "5 to 3", "(4 of 5, 3 of 3)"}
	if diff := cmp.Diff(want, got.Trace); diff != "" || got.Violation != "measured, 6 steps possible" || got.Depth != 6 || !strings.HasSuffix(got.String(), "\n  7. (4 of 5, 3 of 3)") {
		t.Errorf("got %s, want measured at 6, and the state in the last line; trace -want +got:\n%s", got, diff)
	}
}

func TestSearchMeetsEveryStateOnce(t *testing.T) {
	t.Parallel()
	if got := Search(riddle(9, 0), 1000); got.Violation != "" || !got.Complete || got.States != 16 {
		t.Errorf("got %q, complete %t, %d states, want no violation, complete, 16", got.Violation, got.Complete, got.States)
	}
}

func TestSearchReportsThatItStoppedAtItsLimit(t *testing.T) {
	t.Parallel()
	if got := Search(riddle(9, 0), 5); got.Complete || got.Violation != "" {
		t.Errorf("got %q, complete %t, want no violation, incomplete", got.Violation, got.Complete)
	}
}

// One path of the fork ends, the other loops for ever. Without Terminal that is no
// violation.
func TestSearchFindsAStateWithoutAnEnd(t *testing.T) {
	t.Parallel()
	fork := Machine[int, int, string]{
		Key:       func(s int) int { return s },
		Terminal:  func(s int) bool { return s == 2 },
		Violation: func(int, []string) string { return "" },
		Next: func(s int, emit func(string, int)) {
			switch s {
			case 0:
				emit("on", 1)
				emit("off", 3)
			case 1:
				emit("end", 2)
			case 3, 4:
				emit("round", 7-s)
			}
		},
	}
	got := Search(fork, 100)
	if diff := cmp.Diff([]string{"off", "(3)"}, got.Trace); diff != "" || got.Violation != NoEnd {
		t.Errorf("got %q, want %q; trace -want +got:\n%s", got.Violation, NoEnd, diff)
	}
	fork.Terminal = nil
	if got := Search(fork, 100); got.Violation != "" || !got.Complete {
		t.Errorf("without Terminal: got %q, want no violation", got.Violation)
	}
}

// States that count as the same are represented by the one met first, in traces too.
func TestTracesLeadThroughRepresentatives(t *testing.T) {
	t.Parallel()
	m := Machine[int, int, string]{
		Start: 10,
		Key:   func(s int) int { return s / 10 },
		Next: func(s int, emit func(string, int)) {
			if s < 50 {
				emit("a", s+11)
				emit("b", s+10)
			}
		},
		Violation: func(s int, _ []string) string {
			if s/10 == 3 {
				return "three"
			}
			return ""
		},
	}
	if diff := cmp.Diff([]string{"a", "a", "(32)"}, Search(m, 100).Trace); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
