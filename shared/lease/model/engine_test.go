package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jugs holds 3 and 5 litres; the riddle is to measure 4.
type jugs struct{ three, five int }

func (jugs) start() jugs     { return jugs{} }
func (jugs) key(s jugs) jugs { return s }

func (jugs) next(s jugs, out func(string, jugs)) {
	out("fill 3", jugs{3, s.five})
	out("fill 5", jugs{s.three, 5})
	out("empty 3", jugs{0, s.five})
	out("empty 5", jugs{s.three, 0})
	n := min(s.three, 5-s.five)
	out("3 to 5", jugs{s.three - n, s.five + n})
	n = min(s.five, 3-s.three)
	out("5 to 3", jugs{s.three + n, s.five - n})
}

func (j jugs) judge(s jugs, _ []string) Verdict {
	if s.five == j.five {
		return Lost
	}
	return Holds
}

func TestSearchFindsAShortestTrace(t *testing.T) {
	t.Parallel()
	got := search[jugs, jugs, string](jugs{five: 4}, 1000)
	want := []string{"fill 5", "5 to 3", "empty 3", "5 to 3", "fill 5", "5 to 3"}
	if diff := cmp.Diff(want, got.trace); diff != "" || got.verdict != Lost || got.depth != 6 {
		t.Errorf("got %s at depth %d, want %s at 6; trace -want +got:\n%s", got.verdict, got.depth, Lost, diff)
	}
}

func TestSearchMeetsEveryStateOnce(t *testing.T) {
	t.Parallel()
	got := search[jugs, jugs, string](jugs{five: 6}, 1000)
	if got.verdict != Holds || !got.complete || got.states != 16 {
		t.Errorf("got %s, complete %t, %d states, want %s, complete, 16", got.verdict, got.complete, got.states, Holds)
	}
}

func TestSearchSaysThatItWasCutShort(t *testing.T) {
	t.Parallel()
	if got := search[jugs, jugs, string](jugs{five: 6}, 5); got.complete || got.verdict != Holds {
		t.Errorf("got %s, complete %t, want %s, incomplete", got.verdict, got.complete, Holds)
	}
}
