package tasks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H33: a poll that was delivered twice must not start a second chain of polls.
func TestH33PollsMergeByTheSecond(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	var want []string
	for step := range 20 {
		at := noon.Add(time.Duration(step) * 12 * time.Second)
		for copies := range 3 { // each in another process, each a little later
			due := at.Add(time.Duration(copies) * 400 * time.Millisecond)
			done(t, cloud.process(t, always("0123abcd")).EnqueuePoll(t.Context(), alice, txmanager.KindReceipt, due))
		}
		want = append(want, fmt.Sprintf("%s-0123abcd-receipt-%d", alice.Digest(), at.Unix()))
	}
	check.Same(t, "tasks of a chain of which every task comes three times", cloud.names(), want)
}

// H33: merging must not lose the poll of another submitter, kind or second.
func TestH33PollsOfOthersAreKept(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	polls := cloud.process(t, always("0123abcd"))
	var want []string
	for _, s := range []txmanager.Submitter{alice, bob} {
		for _, kind := range []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit} {
			for _, at := range []time.Time{noon, noon.Add(time.Second)} {
				done(t, polls.EnqueuePoll(t.Context(), s, kind, at))
				want = append(want, fmt.Sprintf("%s-0123abcd-%s-%d", s.Digest(), kind, at.Unix()))
			}
		}
	}
	check.Same(t, "tasks", cloud.names(), want)
	for _, task := range cloud.accepted {
		if due := task.ScheduleTime.AsTime(); !due.Equal(noon) && !due.Equal(noon.Add(time.Second)) {
			t.Errorf("%s: got it due at %v, want at the time asked for", task.Name, due)
		}
	}
}
