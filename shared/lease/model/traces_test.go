package model

import (
	"strings"
	"testing"
)

// less is the protocol without some of its rules.
func less(leaveOut func(*Rules)) Rules {
	r := All()
	leaveOut(&r)
	return r
}

// check runs r and logs the report, a trace included.
func check(t *testing.T, r Run) Report {
	t.Helper()
	got, err := Check(r)
	if err != nil {
		t.Fatalf("check %+v: %v", r, err)
	}
	t.Logf("%+v %+v\n%s", r.Shape, r.Budget, got)
	return got
}

// breaks asserts that r, which lacks a rule, ends in want by a run with all the
// given events in it in that order, and that nothing is wrong under all rules.
func breaks(t *testing.T, r Run, want Verdict, events ...string) {
	t.Helper()
	got := check(t, r)
	if got.Verdict != want {
		t.Errorf("without the rule: got %s, want %s", got.Verdict, want)
	}
	rest := strings.Join(got.Trace, "\n")
	for _, e := range events {
		_, after, ok := strings.Cut(rest, e)
		if !ok {
			t.Errorf("trace: got no %q where it should be, want it in\n%s", e, got)
			break
		}
		rest = after
	}
	r.Rules = All()
	if mended := check(t, r); mended.Verdict != Holds || !mended.Complete {
		t.Errorf("with the rule: got %s, complete %t, want %s, complete", mended.Verdict, mended.Complete, Holds)
	}
}

func TestH19FencedStops(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.FencedAcquiresAgain = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Pauses: 1},
	}, Lost, "stands still until its lease has expired", "is FENCED; answers 2xx")
}

func TestH19MovedRowTakenForFenced(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.MovedRowLoadsAgain = false }),
		Budget: Budget{Creates: 2, Invocations: 2, Cancels: 1},
		Accept: Late,
	}, Lost, "the head of the queue is cancelled", "takes it for FENCED; answers 2xx")
}

func TestH21WakeUpHangsOnWhatWasDone(t *testing.T) {
	t.Parallel()
	rules := less(func(r *Rules) { r.DueDecides = false })
	t.Run("a crash loses it", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{
			Rules:  rules,
			Shape:  Shape{Window: true},
			Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1},
		}, Lost, "dies", "loads: 0 queued, one in flight", "releases; answers 2xx")
	})
	t.Run("a mark met by another kind is dropped", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{
			Rules:  rules,
			Shape:  Shape{Window: true},
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Late, "poll is delivered", "sets the mark", "goes round again", "releases; answers 2xx")
	})
}

func TestH21EnqueuedWhileHolding(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.EnqueueAfterRelease, r.DueDecides = false, false }),
		Shape:  Shape{Window: true},
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Late, "goes round again", "releases; answers 2xx")
}

// Where what is due decides, a task made while its maker still holds marks the
// maker's own lease, and the next round makes the next: without end.
func TestH21DueDecidesButEnqueuedWhileHolding(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.EnqueueAfterRelease = false }),
		Shape:  Shape{Window: true},
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Unbounded)
}

func TestH22aLoadInTheLockingStatement(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.LoadAfterLock = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "takes its snapshot", "commits its intent", "has the lease")
}

// "Locked and read in one batch" that is one transaction: the new token is seen
// by creates only after the look it should name.
func TestH22LockAndLoadInOneTransaction(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.TokenVisibleBeforeLoad = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "locks the row and reads, uncommitted", "commits its intent", "ALREADY_EXISTS")
}

func TestH22bTokenReadBeforeTheCommit(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.TokenAfterCommit = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "reads token 0", "loads: 1 queued", "commits its intent", "would make h-0: ALREADY_EXISTS")
}

func TestH23OneTokenForManyLooks(t *testing.T) {
	t.Parallel()
	rules := less(func(r *Rules) { r.TokenPerRound = false })
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{Rules: rules, Budget: Budget{Creates: 3, Invocations: 2}},
			Late, "goes round again", "commits its intent", "would make h-1: ALREADY_EXISTS")
	})
	t.Run("window", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{Rules: rules, Shape: Shape{Window: true}, Budget: Budget{Creates: 2, Invocations: 2}},
			Late, "goes round again", "ALREADY_EXISTS")
	})
	t.Run("release that raises does not help", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{Rules: rules, Shape: Shape{ReleaseRaises: true}, Budget: Budget{Creates: 3, Invocations: 2}},
			Late, "goes round again", "ALREADY_EXISTS")
	})
}

func TestH24DelayedTaskDueAtExpiresAt(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.WakeAfterSkew = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1},
	}, Lost, "the dead holder's lease expires", "is delivered; I1 finds the lease held", "ALREADY_EXISTS")
}

func TestH24DelayedTaskNamedByTheTokenAlone(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.WakeNamedByExpiry = false }),
		Budget: Budget{Creates: 2, Invocations: 2, Crashes: 1, Renewals: 1},
	}, Lost, "renews", "ALREADY_EXISTS")
}

func TestH24NoDelayedTask(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.WakeTask = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1},
	}, Lost, "dies", "sets the mark; answers 2xx")
}

func TestH24DelayedTaskNotMadeAnd2xx(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.UnavailableWithoutTask = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1, Failures: 1},
	}, Lost, "dies", "sets the mark", "cannot make a task and answers 2xx")
}

func TestH25MarkInAStatementOfItsOwn(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.MarkInAcquire = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Late, "finds the lease held", "releases", "sets the mark if the token")
}

func TestH25ReleaseInTwoStatements(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.ReleaseInOneStatement = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Late, "finds no mark", "sets the mark", "releases")
}

func TestH25NoMark(t *testing.T) {
	t.Parallel()
	t.Run("with the delayed task", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{
			Rules:  less(func(r *Rules) { r.Mark = false }),
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Late, "finds the lease held", "releases; answers 2xx")
	})
	t.Run("without it", func(t *testing.T) {
		t.Parallel()
		breaks(t, Run{
			Rules:  less(func(r *Rules) { r.Mark, r.WakeTask = false, false }),
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Lost, "finds the lease held; answers 2xx", "releases; answers 2xx")
	})
}

func TestFenceWithoutRowLock(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.RowLock = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Pauses: 1, Duplicates: 1},
	}, Unsafe, "finds that the fence holds", "stands still", "has the lease", "allocates and sends the head")
}

func TestForcedReleaseKeepsItsToken(t *testing.T) {
	t.Parallel()
	for _, shape := range []Shape{{}, {Window: true}, {Window: true, WholeRound: true}} {
		breaks(t, Run{
			Rules:  less(func(r *Rules) { r.ForcedReleaseRaises = false }),
			Shape:  shape,
			Budget: Budget{Creates: 2, Invocations: 2, Forced: 1},
		}, Late, "releases although the mark is set", "ALREADY_EXISTS")
	}
}

// A create that makes no task because the lease is held, and a holder that goes
// by what it read before: nobody looks.
func TestCreateSkipsAndNobodyLooksAgain(t *testing.T) {
	t.Parallel()
	for _, shape := range []Shape{{CreateSkips: true}, {Window: true, CreateSkips: true}, {Window: true, WholeRound: true, CreateSkips: true}} {
		breaks(t, Run{
			Rules:  less(func(r *Rules) { r.LookAfterRelease = false }),
			Shape:  shape,
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Lost, "loads: 1 queued", "commits its intent", "sees that somebody will look, and makes no task")
	}
}

// The look is in the transaction that releases: what commits between the two is
// seen by neither.
func TestCreateSkipsAndTheLookIsBeforeTheCommit(t *testing.T) {
	t.Parallel()
	breaks(t, Run{
		Rules:  less(func(r *Rules) { r.LookIsAfterCommit = false }),
		Shape:  Shape{CreateSkips: true},
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "looks at the queue again: 0 queued", "commits its intent", "sees that somebody will look, and makes no task")
}
