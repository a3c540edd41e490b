package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// The program repeats a call for a minute. The call that is in progress then goes on to its answer.
func TestTheLastCallOfAMinuteIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Program{Note: func(string, ...any) {}}
		calls := 0
		check.OK(t)(p.insist(t.Context(), new(Intent), func(ctx context.Context) error {
			if calls++; calls == 1 {
				<-time.After(58 * time.Second) // in the time of the bubble, as below
				return errors.New("no answer")
			}
			<-time.After(5 * time.Second)
			return ctx.Err()
		}))
		check.Equal(t, "calls", calls, 2)
	})
}
