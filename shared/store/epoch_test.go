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
		var e epochCache
		want := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after) // the bubble's clock: nobody waits
			if got := e.last(); got != want {
				t.Errorf("got epoch %q, want %q", got, want)
			}
		}
		want(0, "")
		e.note("00000001")
		want(9*time.Second, "00000001")
		e.note("") // a row that nobody found
		want(time.Second, "00000001")
		want(time.Nanosecond, "")
		e.note("00000001")
		e.note("00000002")
		want(0, "00000002")
	})
}
