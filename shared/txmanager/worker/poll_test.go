package worker

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// pollLog keeps the due times of the polls that are enqueued.
type pollLog struct {
	txmanager.TaskEnqueuer
	at []time.Time
}

func (l *pollLog) EnqueuePoll(_ context.Context, _ txmanager.Submitter, _ txmanager.Kind, at time.Time) error {
	l.at = append(l.at, at)
	return nil
}

// A poll that cannot have a name of its own second must meet the polls of other submitters in a later
// one.
func TestAPollOfALaterSecondMeetsTheOthers(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		for due, want := range map[time.Duration]time.Duration{
			-time.Minute:            1050 * time.Millisecond,
			50 * time.Millisecond:   1050 * time.Millisecond,
			1050 * time.Millisecond: 1050 * time.Millisecond,
			2050 * time.Millisecond: 2050 * time.Millisecond,
		} {
			x := txtest.Pending(5)
			x.NextCheckAt = txtest.In(due)
			tn, _, _ := iterationOf(txtest.StateOf(1, 6, x), true, txmanager.SendAccepted)
			polls := &pollLog{}
			tn.Tasks, tn.Rules.BlockTime = polls, time.Second
			if err := tn.enqueueNext(t.Context(), outcome{released: true}); err != nil {
				t.Fatal(err)
			}
			if len(polls.at) != 1 || !polls.at[0].Equal(txtest.Now.Add(want)) {
				t.Errorf("a check due in %v: got polls at %v, want one in %v", due, polls.at, want)
			}
		}
	})
}
