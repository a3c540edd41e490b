package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// An endpoint that failed is not called before the planned time. If that time is further ahead than
// the longest wait after so many failures, the database's clock was set back and the call is due.
func TestEndpointWaitsUntilItsPlannedTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		failures int
		ahead    time.Duration
		want     bool
	}{
		{0, 0, false}, {0, time.Second, false},
		{1, -time.Second, false}, {1, 0, false}, {1, time.Second, true}, {1, time.Second + time.Microsecond, false},
		{4, 8 * time.Second, true}, {4, 9 * time.Second, false},
		{1000, MostWait, true}, {1000, MostWait + time.Second, false},
	} {
		check.Equal(t, fmt.Sprintf("after %d failures, %s ahead", c.failures, c.ahead), (AcquireResult{Failures: c.failures, Now: now, NextAttemptAt: now.Add(c.ahead)}).early(), c.want)
	}
}
