package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// Each answer that does not come in time doubles the wait for the next, up to a bound; the
// first that comes ends that.
func TestEachLateAnswerDoublesTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Timeout
		for _, want := range []time.Duration{6, 12, 24, 48, 96, 96} {
			began := time.Now()
			waiting, done := p.Context(t.Context())
			<-waiting.Done()
			done()
			check.Equal(t, "wait for an answer that never comes", time.Since(began), want*time.Second)
		}
		_, done := p.Context(t.Context())
		done()
		waiting, done := p.Context(t.Context())
		defer done()
		if until, _ := waiting.Deadline(); time.Until(until) != shortestWait {
			t.Errorf("wait after an answer in time: got %v, want %v", time.Until(until), shortestWait)
		}
	})
}

// Each pause is longer than the one before, up to a bound.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		last := time.Now()
		Poll(t.Context(), 0, func() bool {
			pauses, last = append(pauses, time.Since(last)), time.Now()
			return len(pauses) == 25
		})
		const unit = time.Millisecond
		check.Same(t, "the first pauses", pauses[1:5], []time.Duration{200 * unit, 300 * unit, 450 * unit, 675 * unit})
		check.Equal(t, "the last pause", pauses[24], maxPause)
	})
}

// A pause ends with its context.
func TestPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	Pause(ctx, time.Hour)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("pause of an ended context: took %v, want none", took)
	}
}
