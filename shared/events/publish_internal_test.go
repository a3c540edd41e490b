package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// answers is a publisher with one answer. A count below -1 panics.
type answers struct {
	taken int
	err   error
}

func (a answers) Publish(context.Context, []txmanager.Event) (int, error) {
	if a.taken < -1 {
		panic("no broker")
	}
	return a.taken, a.err
}

// A publisher's count is at most the events that it was given. None is a failure, also without an
// error. A part without an error is progress: a webhook stops before its deadline. A panic accepts nothing.
func TestAPublishersAnswerIsBounded(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for _, c := range []struct {
		answer answers
		taken  int
		failed bool
	}{
		{answers{2, nil}, 2, false}, {answers{2, down}, 2, false}, {answers{1, down}, 1, true}, {answers{0, down}, 0, true},
		{answers{1, nil}, 1, false}, {answers{0, nil}, 0, true}, {answers{3, nil}, 0, true}, {answers{-1, nil}, 0, true}, {answers{-2, nil}, 0, true},
	} {
		if taken, err := publish(t.Context(), c.answer, make([]txmanager.Event, 2)); taken != c.taken || (err != nil) != c.failed {
			t.Errorf("%+v: got %d, %v; want %d, failed %t", c.answer, taken, err, c.taken, c.failed)
		}
	}
}

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
		{1000, MaxWait, true}, {1000, MaxWait + time.Second, false},
	} {
		check.Equal(t, fmt.Sprintf("after %d failures, %s ahead", c.failures, c.ahead), (AcquireResult{Failures: c.failures, Now: now, NextAttemptAt: now.Add(c.ahead)}).early(), c.want)
	}
}
