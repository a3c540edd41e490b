package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// An epoch that an operator's acceptance has ended must not be in any name for
// longer than ten seconds, nor be asked for before.
func TestEpochIsBelievedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Store
		s.epoch.lasts = epochTTL
		note := func(epoch string) { s.noteFound(Intent{}, foundIntent{registered: true, epoch: epoch}) }
		want := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after) // the bubble's clock: nobody waits
			if got := s.epoch.last(thisDatabase{}); got != want {
				t.Errorf("got epoch %q, want %q", got, want)
			}
		}
		want(0, "")
		note("00000001")
		want(9*time.Second, "00000001")
		s.noteFound(Intent{}, foundIntent{}) // a row that nobody found
		want(time.Second, "00000001")
		want(time.Nanosecond, "")
		note("00000001")
		note("00000002")
		want(0, "00000002")
	})
}
