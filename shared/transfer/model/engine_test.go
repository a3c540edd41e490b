package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jugs holds 3 and 5 litres; the riddle is to measure five litres' wrong.
type jugs struct {
	wrongAt int // litres in the larger
	endAt   int
}

type water struct{ three, five int }

func (jugs) start() water         { return water{} }
func (j jugs) ended(s water) bool { return s.five == j.endAt }

func (j jugs) wrong(s water) string {
	if s.five == j.wrongAt {
		return "measured"
	}
	return ""
}

func (jugs) next(s water, out func(string, water)) {
	out("fill 3", water{3, s.five})
	out("fill 5", water{s.three, 5})
	if s.five < 4 {
		out("empty 5", water{s.three, 0})
	}
	out("empty 3", water{0, s.five})
	n := min(s.three, 5-s.five)
	out("3 to 5", water{s.three - n, s.five + n})
	n = min(s.five, 3-s.three)
	out("5 to 3", water{s.three + n, s.five - n})
}

func TestSearchFindsAShortestTrace(t *testing.T) {
	t.Parallel()
	got := search[water, string](jugs{wrongAt: 4}, 1000)
	want := []string{"fill 5", "5 to 3", "empty 3", "5 to 3", "fill 5", "5 to 3"}
	if diff := cmp.Diff(want, got.trace); diff != "" || got.wrong != "measured" || got.depth != 6 {
		t.Errorf("got %q at depth %d, want measured at 6; trace -want +got:\n%s", got.wrong, got.depth, diff)
	}
}

func TestSearchMeetsEveryStateOnce(t *testing.T) {
	t.Parallel()
	got := search[water, string](jugs{wrongAt: 9, endAt: 0}, 1000)
	if got.wrong != "" || !got.complete || got.states != 16 {
		t.Errorf("got %q, complete %t, %d states, want nothing wrong, complete, 16", got.wrong, got.complete, got.states)
	}
}

func TestSearchSaysThatItWasCutShort(t *testing.T) {
	t.Parallel()
	if got := search[water, string](jugs{wrongAt: 9}, 5); got.complete || got.wrong != "" {
		t.Errorf("got %q, complete %t, want nothing wrong, incomplete", got.wrong, got.complete)
	}
}

// ladder goes up to a fork: one way ends, the other goes round for ever.
type ladder struct{}

func (ladder) start() int       { return 0 }
func (ladder) wrong(int) string { return "" }
func (ladder) ended(s int) bool { return s == 2 }

func (ladder) next(s int, out func(string, int)) {
	switch s {
	case 0:
		out("on", 1)
		out("off", 3)
	case 1:
		out("end", 2)
	case 3, 4:
		out("round", 7-s)
	}
}

func TestSearchFindsWhatNeverEnds(t *testing.T) {
	t.Parallel()
	got := search[int, string](ladder{}, 100)
	if diff := cmp.Diff([]string{"off"}, got.trace); diff != "" || got.wrong != forEver || got.last != 3 {
		t.Errorf("got %q in %d, want %q in 3; trace -want +got:\n%s", got.wrong, got.last, forEver, diff)
	}
}
