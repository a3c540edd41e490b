package tasks_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// noon is a full minute, plus seven seconds.
var noon = time.Date(2026, 11, 21, 12, 0, 7, 0, time.UTC)

// H20: a lost task must not prevent the sweep's task, as it would if both were named by the current
// token.
func TestH20SweepNamesAreByTheMinute(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	done(t, cloud.process(t, always("0123abcd")).EnqueueAdvance(t.Context(), alice, 7)) // accepted and lost
	for i, at := range []time.Time{noon, noon, noon.Add(52 * time.Second), noon.Add(53 * time.Second), noon.Add(2 * time.Minute)} {
		sweeper := cloud.process(t, always("0123abcd"))
		done(t, sweeper.EnqueueAdvance(t.Context(), alice, 7), swept(sweeper.Sweep(t.Context(), alice, txmanager.KindAdvance, at)))
		if i == 1 { // a submitter in PROTECT is swept into a separate queue
			done(t, swept(sweeper.Sweep(t.Context(), bob, txmanager.KindAdvance, at)), swept(sweeper.Sweep(t.Context(), bob, txmanager.KindConfirm, at)))
		}
	}
	minute := noon.Unix() / 60
	want := []string{
		alice.Digest() + "-0123abcd-a-7", // used up: never accepted again
		fmt.Sprintf("%s-0123abcd-s-%d", alice.Digest(), minute),
		fmt.Sprintf("%s-0123abcd-s-%d", bob.Digest(), minute),
		fmt.Sprintf("%s-0123abcd-s-%d", bob.Digest(), minute), // of another queue
		fmt.Sprintf("%s-0123abcd-s-%d", alice.Digest(), minute+1),
		fmt.Sprintf("%s-0123abcd-s-%d", alice.Digest(), minute+2),
	}
	check.Same(t, "tasks accepted", cloud.names(), want)
}

// H20: the name of a sweep's task must not depend on the token, whatever lease sessions begin, and two
// sweeps in one minute must make one task.
func TestH20SweepNamesIgnoreLeaseSessions(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	cloud := newService(t)
	in := store.Intent{TxID: "00000000-0000-0000-0000-000000000001", Submitter: alice, RequestID: "r", Caller: "shop", Payload: []byte(`{}`)}
	check.OK(t)(db.Create(t.Context(), in, 10))
	minutes := map[int64]bool{}
	for range 4 {
		found, minute, err := db.Overdue(t.Context(), 0, 10, time.Time{})
		if err != nil || len(found) != 1 {
			t.Fatalf("overdue: got %v, %v; want alice: nothing came of the sweep before", found, err)
		}
		done(t, swept(cloud.process(t, db.Epoch).Sweep(t.Context(), found[0], txmanager.KindAdvance, minute)))
		minutes[minute.Unix()/60] = true
		session(t, db)
	}
	if got := cloud.names(); len(got) != len(minutes) {
		t.Errorf("tasks of four sweeps in %d minutes: got %q, want one for each minute", len(minutes), got)
	}
}

// session acquires the lease and releases it, which raises the token.
func session(t *testing.T, db storetest.Bundle) {
	t.Helper()
	taken, err := db.Acquire(t.Context(), alice, "a/1", true)
	if err != nil || !taken.Held {
		t.Fatalf("take: got %+v, %v; want it held", taken, err)
	}
	check.OK(t)(db.Commit(t.Context(), txmanager.Commit{Lease: taken.State.Lease, LeaseEnd: txmanager.ReleaseAnyway}))
}

// H20: a recreated or restored database must not reuse names of its predecessor.
func TestH20NamesHaveTheEpoch(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	first, second := anew(t), anew(t)
	var epochs []string
	made := map[string]string{} // by name, the epoch that it was made under
	for _, db := range []*store.Store{first, second} {
		epoch, err := db.Epoch(t.Context())
		if err != nil || !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(epoch) {
			t.Fatalf("epoch: got %q, %v; want eight hex digits", epoch, err)
		}
		epochs = append(epochs, epoch)
		before := len(cloud.names())
		everyName(t, cloud.process(t, db.Epoch))
		names := cloud.names()[before:]
		check.Equal(t, fmt.Sprintf("epoch %s: tasks %q", epoch, names), len(names), 7)
		for _, name := range names {
			if other, ok := made[name]; ok || !strings.HasPrefix(name, alice.Digest()+"-"+epoch+"-") {
				t.Errorf("%s under epoch %s: got it shared with %q, or without the epoch", name, epoch, other)
			}
			made[name] = epoch
		}
	}
	if epochs[0] == epochs[1] {
		t.Errorf("epochs of two databases: got %s twice, want two", epochs[0])
	}
}

// everyName makes a task of each kind, each time for the same lease session and times.
func everyName(t *testing.T, made *tasks.Tasks) {
	t.Helper()
	done(t,
		made.EnqueueAdvance(t.Context(), alice, 7),
		made.EnqueueTakeover(t.Context(), alice, txmanager.AcquireResult{Token: 7, ExpiresAt: noon, TakeoverAt: noon.Add(time.Second)}),
		swept(made.Sweep(t.Context(), alice, txmanager.KindAdvance, noon)),
	)
	for _, kind := range []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit} {
		done(t, made.EnqueuePoll(t.Context(), alice, kind, noon))
	}
}

// swept returns the error of a sweep's task.
func swept(_ bool, err error) error { return err }

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
