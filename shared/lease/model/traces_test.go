package model

import "testing"

// rulesWithout returns all rules with a change.
func rulesWithout(change func(*Rules)) Rules {
	r := All()
	change(&r)
	return r
}

// check runs r and logs the report with its trace.
func check(t *testing.T, r Run) Report {
	t.Helper()
	got, err := Check(r)
	if err != nil {
		t.Fatalf("check %+v: %v", r, err)
	}
	t.Logf("%+v %+v\n%s", r.Shape, r.Budget, got)
	return got
}

// requireViolation requires that r, which lacks a rule, ends in want by a run with the given events
// in that order, and that all rules together prevent it.
func requireViolation(t *testing.T, r Run, want Verdict, events ...string) {
	t.Helper()
	check(t, r).RequireViolation(t, string(want), events...)
	r.Rules = All()
	check(t, r).RequireHolds(t)
}

func TestH19FencedInvocationThatStopsLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.FencedAcquiresAgain = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Pauses: 1},
	}, Lost, "pauses until its lease has expired", "is FENCED; answers 2xx")
}

func TestH19ChangedRowReadAsFencedLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.MovedRowLoadsAgain = false }),
		Budget: Budget{Creates: 2, Invocations: 2, Cancels: 1},
		Accept: Late,
	}, Lost, "the head of the queue is cancelled", "treats it as FENCED; answers 2xx")
}

func TestH21TasksByOwnActsLoseWork(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.DueDecides = false })
	t.Run("a crash loses it", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{
			Rules:  rules,
			Shape:  Shape{Window: true},
			Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1},
		}, Lost, "dies", "loads: 0 queued, one in flight", "releases; answers 2xx")
	})
	t.Run("a mark met by another kind is dropped", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{
			Rules:  rules,
			Shape:  Shape{Window: true},
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Late, "poll is delivered", "sets the mark", "iterates again", "releases; answers 2xx")
	})
}

func TestH21TasksEnqueuedUnderTheLeaseDelayWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.EnqueueAfterRelease, r.DueDecides = false, false }),
		Shape:  Shape{Window: true},
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Late, "iterates again", "releases; answers 2xx")
}

// If due work decides, a task that is enqueued while its holder still holds the lease sets that
// holder's mark. The next iteration enqueues the next task, endlessly.
func TestH21DueTasksEnqueuedUnderTheLeaseNeverEnd(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.EnqueueAfterRelease = false }),
		Shape:  Shape{Window: true},
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Unbounded)
}

func TestH22aLoadInTheLockingStatementLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.LoadAfterLock = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "takes its snapshot", "commits its intent", "acquires the lease")
}

// "Locked and read in one batch" as one transaction: creates see the new token only after the read
// that it should name.
func TestH22LockAndLoadInOneTransactionLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.TokenVisibleBeforeLoad = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "locks the row and reads, uncommitted", "commits its intent", "ALREADY_EXISTS")
}

func TestH22bTokenReadBeforeTheCommitLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.TokenAfterCommit = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "reads token 0", "loads: 1 queued", "commits its intent", "would make h-0: ALREADY_EXISTS")
}

func TestH23OneTokenForManyIterationsDelaysWork(t *testing.T) {
	t.Parallel()
	rules := rulesWithout(func(r *Rules) { r.TokenPerIteration = false })
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{Rules: rules, Budget: Budget{Creates: 3, Invocations: 2}},
			Late, "iterates again", "commits its intent", "would make h-1: ALREADY_EXISTS")
	})
	t.Run("window", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{Rules: rules, Shape: Shape{Window: true}, Budget: Budget{Creates: 2, Invocations: 2}},
			Late, "iterates again", "ALREADY_EXISTS")
	})
	t.Run("release that raises does not help", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{Rules: rules, Shape: Shape{ReleaseRaises: true}, Budget: Budget{Creates: 3, Invocations: 2}},
			Late, "iterates again", "ALREADY_EXISTS")
	})
}

func TestH24DelayedTaskDueAtExpiresAtLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.DelayedTaskAfterSkew = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1},
	}, Lost, "the dead holder's lease expires", "is delivered; I1 finds the lease held", "ALREADY_EXISTS")
}

func TestH24DelayedTaskNamedByTokenAloneLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.DelayedTaskNamedByExpiry = false }),
		Budget: Budget{Creates: 2, Invocations: 2, Crashes: 1, Renewals: 1},
	}, Lost, "renews", "ALREADY_EXISTS")
}

func TestH24WithoutDelayedTaskWorkIsLost(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.DelayedTask = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1},
	}, Lost, "dies", "sets the mark; answers 2xx")
}

func TestH24Answering2xxWithoutTheTaskLosesWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.UnavailableWithoutTask = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Crashes: 1, Failures: 1},
	}, Lost, "dies", "sets the mark", "cannot make a task and answers 2xx")
}

func TestH25MarkInASecondStatementDelaysWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.MarkInAcquire = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Late, "finds the lease held", "releases", "sets the mark if the token")
}

func TestH25ReleaseInTwoStatementsDelaysWork(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.ReleaseInOneStatement = false }),
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Late, "finds no mark", "sets the mark", "releases")
}

func TestH25WithoutTheMarkWorkWaits(t *testing.T) {
	t.Parallel()
	t.Run("with the delayed task", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{
			Rules:  rulesWithout(func(r *Rules) { r.Mark = false }),
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Late, "finds the lease held", "releases; answers 2xx")
	})
	t.Run("without it", func(t *testing.T) {
		t.Parallel()
		requireViolation(t, Run{
			Rules:  rulesWithout(func(r *Rules) { r.Mark, r.DelayedTask = false, false }),
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Lost, "finds the lease held; answers 2xx", "releases; answers 2xx")
	})
}

func TestFenceWithoutRowLock(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.RowLock = false }),
		Budget: Budget{Creates: 1, Invocations: 2, Pauses: 1, Duplicates: 1},
	}, Unsafe, "finds that the fence holds", "pauses", "acquires the lease", "allocates and sends the head")
}

func TestForcedReleaseWithItsOldTokenDelaysWork(t *testing.T) {
	t.Parallel()
	for _, shape := range []Shape{{}, {Window: true}, {Window: true, WholeIteration: true}} {
		requireViolation(t, Run{
			Rules:  rulesWithout(func(r *Rules) { r.ForcedReleaseRaises = false }),
			Shape:  shape,
			Budget: Budget{Creates: 2, Invocations: 2, Forced: 1},
		}, Late, "releases although the mark is set", "ALREADY_EXISTS")
	}
}

// A create enqueues no task because the lease is held, and the holder relies on an earlier read:
// the intent is not read.
func TestSkippingCreateNeedsAReadAfterRelease(t *testing.T) {
	t.Parallel()
	for _, shape := range []Shape{{CreateSkips: true}, {Window: true, CreateSkips: true}, {Window: true, WholeIteration: true, CreateSkips: true}} {
		requireViolation(t, Run{
			Rules:  rulesWithout(func(r *Rules) { r.ReadAfterRelease = false }),
			Shape:  shape,
			Budget: Budget{Creates: 2, Invocations: 2},
		}, Lost, "loads: 1 queued", "commits its intent", "sees that the queue will be read again, and makes no task")
	}
}

// The queue is read in the transaction that releases. An intent that commits between the two is
// read by neither side.
func TestSkippingCreateNeedsTheReadAfterTheCommit(t *testing.T) {
	t.Parallel()
	requireViolation(t, Run{
		Rules:  rulesWithout(func(r *Rules) { r.ReadIsAfterCommit = false }),
		Shape:  Shape{CreateSkips: true},
		Budget: Budget{Creates: 2, Invocations: 2},
	}, Lost, "reads the queue again: 0 queued", "commits its intent", "sees that the queue will be read again, and makes no task")
}
