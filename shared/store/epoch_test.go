package store

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// An epoch that an operator's acceptance has ended must not be in any name for
// longer than ten seconds, nor be asked for before.
func TestEpochIsBelievedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(nil, Options{})
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
		s.noteFound(Intent{}, foundIntent{}) // no row was found
		want(time.Second, "00000001")
		want(time.Nanosecond, "")
		note("00000001")
		note("00000002")
		want(0, "00000002")
	})
}

// A name from before a release must not be used again, so the epoch of no submitter's names is forgotten.
func TestNameEpochsAreNotForgotten(t *testing.T) {
	t.Parallel()
	s := newStore(nil, Options{})
	for i := range maxCached + 1 {
		s.names.note(txmanager.Submitter(strconv.Itoa(i)), "e")
	}
	if got := s.names.last("0"); got != "e" {
		t.Errorf("the first of many: got %q, want it kept", got)
	}
}
