package web

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A verified token is believed for a minute, and never past its expiry; no other
// token is believed for it.
func TestSeenTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s seen
		id := Identity{Subject: "ann"}
		s.keep("long", id, time.Now().Add(time.Hour))
		s.keep("short", id, time.Now().Add(10*time.Second))
		for _, step := range []struct {
			after       time.Duration
			long, short bool
		}{{0, true, true}, {9 * time.Second, true, true}, {time.Second, true, false}, {49 * time.Second, true, false}, {time.Second, false, false}} {
			time.Sleep(step.after) // of the bubble's clock
			got, long := s.find("long")
			_, short := s.find("short")
			if long != step.long || short != step.short || (long && got != id) {
				t.Errorf("after %v more: got %v %v, want %v %v", step.after, long, short, step.long, step.short)
			}
		}
		if _, ok := s.find("another"); ok {
			t.Error("a token that was never verified: got it believed")
		}
		for i := range 3 * seenMost {
			s.keep(fmt.Sprint(i), id, time.Now().Add(time.Hour))
		}
		if len(s.tokens) > seenMost {
			t.Errorf("remembered: got %d, want at most %d", len(s.tokens), seenMost)
		}
	})
}
