package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// taskLog keeps the tasks that are enqueued.
type taskLog struct {
	txmanager.TaskEnqueuer
	tasks []string
	fails error
}

func (l *taskLog) add(format string, args ...any) error {
	l.tasks = append(l.tasks, fmt.Sprintf(format, args...))
	return l.fails
}

func (l *taskLog) EnqueuePoll(_ context.Context, _ txmanager.Submitter, kind txmanager.Kind, at time.Time) error {
	return l.add("%s in %v", kind, at.Sub(txtest.Now))
}

func (l *taskLog) EnqueueAdvance(context.Context, txmanager.Submitter, int64) error {
	return l.add("advance")
}

func (l *taskLog) EnqueueTakeover(context.Context, txmanager.Submitter, txmanager.AcquireResult) error {
	return l.add("takeover")
}

// stepStore commits what it gets and keeps the steps of a session in their order.
type stepStore struct {
	committingStore
	steps *[]string
	rerun bool                    // the next release finds the rerun flag set
	taken txmanager.AcquireResult // the answer of Acquire
}

func (s *stepStore) Acquire(context.Context, txmanager.Submitter, string, bool) (txmanager.AcquireResult, error) {
	*s.steps = append(*s.steps, "acquire")
	return s.taken, nil
}

func (s *stepStore) BeginIteration(context.Context, lease.Lease, bool) (txmanager.SubmitterState, error) {
	*s.steps = append(*s.steps, "iterate")
	return txmanager.SubmitterState{}, lease.ErrFenced
}

func (s *stepStore) Commit(ctx context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	step := "commit"
	for _, m := range w.Transitions {
		step += fmt.Sprintf(" %s:%s", m.To.ID, m.To.State)
	}
	for range len(w.Allocations) + len(w.Versions) {
		step += " bytes"
	}
	done, err := s.committingStore.Commit(ctx, w)
	if s.rerun && done.Released {
		s.rerun, done.Released = false, false
	}
	if done.Released {
		step += " release"
	}
	*s.steps = append(*s.steps, step)
	return done, err
}

// stepsOf is a session over w that keeps its steps, and the bytes that it sends as a step too.
func stepsOf(w txmanager.SubmitterState, inProcess bool, answer txmanager.SendClass) (tn *invocation, s *stepStore, chain *answeringChain, tasks *taskLog) {
	tn, log, chain := iterationOf(w, inProcess, answer)
	steps := new([]string)
	s, tasks = &stepStore{committingStore: committingStore{broadcastLog: log}, steps: steps}, &taskLog{}
	tn.Store, tn.Tasks = s, tasks
	tn.Reached = func(point string) {
		if point == "advance.unsent" || point == "advance.sent" {
			*steps = append(*steps, strings.TrimPrefix(point, "advance."))
		}
	}
	return tn, s, chain, tasks
}

func oneQueued() txmanager.SubmitterState {
	return txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "pay"))
}

// With a window of one the commit that stores the bytes releases the lease. An accepted broadcast needs
// no further write: the poll at the next block finds its outcome.
func TestBytesAreSentAfterTheReleaseWithAWindowOfOne(t *testing.T) {
	t.Parallel()
	const sentAfter, sentBefore = "commit bytes release, unsent, sent", "commit bytes, sent, commit q-1:TRACKING release"
	for name, c := range map[string]struct {
		work      txmanager.SubmitterState
		inProcess bool
		rerun     bool
		answer    txmanager.SendClass
		want      string
	}{
		"signed before the nonce is bound": {oneQueued(), true, false, txmanager.SendAccepted, sentAfter},
		"already known":                    {oneQueued(), true, false, txmanager.SendAlreadyKnown, sentAfter},
		"signed once the nonce is bound":   {oneQueued(), false, false, txmanager.SendAccepted, "commit bytes, " + sentAfter},
		"a nonce bound before":             {txtest.StateOf(1, 6, txtest.Bare(5)), true, false, txmanager.SendAccepted, sentAfter},
		"the rerun flag is set":            {oneQueued(), true, true, txmanager.SendAccepted, sentBefore},
		"a window of two":                  {txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "pay")), true, false, txmanager.SendAccepted, sentBefore},
	} {
		tn, s, chain, tasks := stepsOf(c.work, c.inProcess, c.answer)
		s.rerun = c.rerun
		check.OK(t)(tn.runFrom(t.Context(), tn.iterate))
		if got := strings.Join(*s.steps, ", "); got != c.want || len(chain.sent) != 1 || len(chain.unclaimed) != 0 {
			t.Errorf("%s: got %q, sent %q, of these unclaimed %q; want %q, one send, none", name, got, chain.sent, chain.unclaimed, c.want)
		}
		check.Same(t, name+": tasks", tasks.tasks, []string{"receipt in 12.5s"})
	}
}

// An intent that left the queue before its nonce was bound has no bytes to send.
func TestNothingIsSentAfterTheReleaseIfNothingWasBound(t *testing.T) {
	t.Parallel()
	tn, s, chain, _ := stepsOf(oneQueued(), true, txmanager.SendAccepted)
	s.allocated = 0
	if err := tn.runFrom(t.Context(), tn.iterate); err != nil || len(chain.sent) > 0 {
		t.Errorf("got %v, sent %q; want nothing sent", err, chain.sent)
	}
}

// A broadcast that no node accepted is recorded at once, under a newly acquired lease, unless the
// transaction has another version, broadcast or outcome by then.
func TestARefusedBroadcastIsRecordedUnderANewLease(t *testing.T) {
	t.Parallel()
	stored := func(change func(*txmanager.Tx)) txmanager.SubmitterState {
		x := txtest.Submitted(5)
		x.ID, x.Versions, x.Raw = "q-1", []txmanager.Hash{txtest.VersionHash(5, 2)}, []byte("s\x05")
		x.LastSubmitAt, x.NextResubmitAt, x.NextCheckAt = txtest.Ago(0), txtest.Ago(0), txtest.In(time.Hour)
		change(&x)
		return txtest.StateOf(1, 6, x)
	}
	hour := txtest.In(time.Hour)
	for name, c := range map[string]struct {
		answer txmanager.SendClass
		state  txmanager.SubmitterState
		want   string // after the send
	}{
		"unchanged":            {txmanager.SendPoolFull, stored(func(*txmanager.Tx) {}), "acquire, commit q-1:SUBMITTED release"},
		"no answer":            {txmanager.SendUnknown, stored(func(*txmanager.Tx) {}), "acquire, commit q-1:SUBMITTED release"},
		"bytes no node takes":  {txmanager.SendInvalid, stored(func(*txmanager.Tx) {}), "acquire, commit q-1:STUCK release"},
		"a cancel was ordered": {txmanager.SendInvalid, stored(func(x *txmanager.Tx) { x.RequestedAction = txmanager.ActionCancel }), "acquire, commit q-1:STUCK release"},
		"a replacement was stored": {txmanager.SendNonceTooLow, stored(func(x *txmanager.Tx) {
			x.Versions, x.NextResubmitAt = append(x.Versions, txtest.VersionHash(5, 3)), hour
		}), "acquire, commit release"},
		"a query found it":        {txmanager.SendUnknown, stored(func(x *txmanager.Tx) { x.State, x.Sub, x.NextResubmitAt = txmanager.Tracking, txmanager.Pending, hour }), "acquire, commit release"},
		"it was sent again":       {txmanager.SendUnknown, stored(func(x *txmanager.Tx) { x.SubmitAttempts, x.NextResubmitAt = 2, hour }), "acquire, commit release"},
		"its outcome is recorded": {txmanager.SendUnknown, stored(func(x *txmanager.Tx) { x.LastError, x.NextResubmitAt = "the pool was full", hour }), "acquire, commit release"},
		"PROTECT took it":         {txmanager.SendNonceTooLow, stored(func(x *txmanager.Tx) { x.State, x.NextResubmitAt = txmanager.Protect, hour }), "acquire, commit release"},
		"it ended":                {txmanager.SendNonceTooLow, txtest.StateOf(1, 6), "acquire, commit release"},
	} {
		tn, s, _, _ := stepsOf(oneQueued(), true, c.answer)
		s.taken = txmanager.AcquireResult{Held: true, State: c.state}
		check.OK(t)(tn.runFrom(t.Context(), tn.iterate))
		check.Equal(t, name+": steps", strings.Join(*s.steps, ", "), "commit bytes release, unsent, sent, "+c.want)
	}
}

// The holder of the lease sends the bytes again and gets an answer too.
func TestARefusedBroadcastIsLeftToTheHolder(t *testing.T) {
	t.Parallel()
	tn, _, _, tasks := stepsOf(oneQueued(), true, txmanager.SendPoolFull) // whose lease is held by another
	if err := tn.runFrom(t.Context(), tn.iterate); err != nil || !slices.Contains(tasks.tasks, "takeover") {
		t.Errorf("got %v, tasks %q; want the delayed task of an invocation that finds the lease held", err, tasks.tasks)
	}
}

// Without the task for the outcome the invocation's own task must be retried. The bytes are sent.
func TestATaskThatCannotBeMadeDoesNotKeepBytesBack(t *testing.T) {
	t.Parallel()
	tn, _, chain, tasks := stepsOf(oneQueued(), true, txmanager.SendAccepted)
	tasks.fails = errors.New("no Cloud Tasks")
	if err := tn.runFrom(t.Context(), tn.iterate); !errors.Is(err, tasks.fails) || len(chain.sent) != 1 {
		t.Errorf("got %v, sent %q; want that error, one send", err, chain.sent)
	}
}

// H10: after the release too, "nonce too low" is a success only where the chain knows a version.
func TestH10NonceTooLowAfterTheReleaseIsPutToTheChain(t *testing.T) {
	t.Parallel()
	tn, s, chain, _ := stepsOf(oneQueued(), true, txmanager.SendNonceTooLow)
	chain.known = []txmanager.Hash{txtest.VersionHash(5, 2)}
	if err := tn.runFrom(t.Context(), tn.iterate); err != nil || slices.Contains(*s.steps, "acquire") {
		t.Errorf("got %v, steps %q; want nothing recorded: the chain knows it", err, *s.steps)
	}
}
