package patience

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Each answer that does not come in time doubles both waits, up to a bound; the first
// that comes ends that.
func TestEachLateAnswerDoublesTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Patience
		for _, want := range []time.Duration{6, 12, 24, 48, 96, 96} {
			began := time.Now()
			bound, done := p.Bound(t.Context())
			<-bound.Done()
			done()
			if got := time.Since(began); got != want*time.Second {
				t.Errorf("wait for an answer that never comes: got %v, want %v", got, want*time.Second)
			}
		}
		began := time.Now()
		p.Pause(t.Context())
		if got, want := time.Since(began), 3200*time.Millisecond; got != want {
			t.Errorf("pause after many late answers: got %v, want %v", got, want)
		}
		_, done := p.Bound(t.Context())
		done()
		began = time.Now()
		p.Pause(t.Context())
		if got, want := time.Since(began), 200*time.Millisecond; got != want {
			t.Errorf("pause after an answer in time: got %v, want %v", got, want)
		}
	})
}

// A pause ends with its context.
func TestAPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	Pause(ctx, time.Hour)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("pause of an ended context: took %v, want none", took)
	}
}
