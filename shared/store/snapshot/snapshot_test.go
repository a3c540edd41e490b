package snapshot

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
)

func (s Snapshot) sees(xid uint64) bool {
	_, running := slices.BinarySearch(s.inProgress, xid)
	return xid < s.xmax && !running
}

// draw draws a snapshot that sees everything that before sees.
func draw(rt *rapid.T, before Snapshot) Snapshot {
	s := Snapshot{xmax: rapid.Uint64Range(before.xmax, before.xmax+12).Draw(rt, "xmax")}
	for xid := range s.xmax {
		if xid > 0 && !before.sees(xid) && rapid.Bool().Draw(rt, "in progress") {
			s.inProgress = append(s.inProgress, xid)
		}
	}
	return s
}

// Upto sees exactly what s has seen, plus the transactions up to last that now sees.
func TestUptoSeesEachOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		old := draw(rt, Snapshot{xmax: 1})
		now := draw(rt, old)
		last := rapid.Uint64Range(1, now.xmax).Draw(rt, "last")
		if last == now.xmax {
			last-- // no row of a later transaction was read
		}
		got := old.Upto(last, now)
		for xid := uint64(1); xid < now.xmax+3; xid++ {
			if want := old.sees(xid) || now.sees(xid) && xid <= last; got.sees(xid) != want {
				rt.Fatalf("%v up to %d of %v is %v: sees %d is %t, want %t", old, last, now, got, xid, got.sees(xid), want)
			}
		}
		again, err := Parse(got.String())
		if err != nil || again.String() != got.String() {
			rt.Fatalf("%v: got %v, error %v, when read back", got, again, err)
		}
	})
}

func TestParseTakesOnlySnapshots(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"7", "1:2", "1:x:", "1:2:x", "1:2:3:4", "-1:-1:"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%s: got %v, want an error", text, s)
		}
	}
	check.Equal(t, "empty", check.Value(Parse(""))(t).String(), "1:1:")
}
