package tasks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An epoch that an operator's acceptance has ended must not be in any name for
// longer than ten seconds, nor be read for each task before.
func TestEpochIsBelievedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		epoch, unread, reads := "00000001", error(nil), 0
		made := New(Options{Endpoint: "127.0.0.1:1", Epoch: func(context.Context) (string, error) {
			reads++
			return epoch, unread
		}})
		defer func() { _ = made.Close() }()
		want := func(after time.Duration, want string, wantReads int) {
			t.Helper()
			time.Sleep(after) // the bubble's clock: nobody waits
			if _, got, err := made.connect(t.Context()); err != nil || got != want || reads != wantReads {
				t.Errorf("got epoch %q after %d reads, %v; want %q after %d", got, reads, err, want, wantReads)
			}
		}
		want(0, "00000001", 1)
		epoch = "00000002"
		want(5*time.Second, "00000001", 1)
		want(5*time.Second+time.Nanosecond, "00000002", 2)

		epoch, unread = "00000003", errors.New("the database is away")
		time.Sleep(10*time.Second + time.Nanosecond)
		if _, got, err := made.connect(t.Context()); err == nil {
			t.Errorf("the epoch could not be read: got %q, want an error and no name", got)
		}
		unread = nil
		want(0, "00000003", 4)
	})
}
