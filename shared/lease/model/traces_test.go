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

// Without any one rule, work is lost or late, or a write is unsafe.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	window, whole := Shape{Window: true}, Shape{Window: true, WholeIteration: true}
	two, crash := Budget{Creates: 2, Invocations: 2}, Budget{Creates: 1, Invocations: 2, Crashes: 1}
	tokenPerIteration := func(r *Rules) { r.TokenPerIteration = false }
	forced := func(r *Rules) { r.ForcedReleaseRaises = false }
	skips := func(r *Rules) { r.ReadAfterRelease = false }
	for _, c := range []struct {
		name    string
		without func(*Rules)
		shape   Shape
		budget  Budget
		accept  Verdict
		want    Verdict
		events  []string
	}{
		{"H19: a fenced invocation stops", func(r *Rules) { r.FencedAcquiresAgain = false }, Shape{}, Budget{Creates: 1, Invocations: 2, Pauses: 1}, "",
			Lost, []string{"pauses until its lease has expired", "is FENCED; answers 2xx"}},
		{"H19: a changed row counts as FENCED", func(r *Rules) { r.MovedRowLoadsAgain = false }, Shape{}, Budget{Creates: 2, Invocations: 2, Cancels: 1}, Late,
			Lost, []string{"the head of the queue is cancelled", "treats it as FENCED; answers 2xx"}},
		{"H21: tasks follow from own acts, and a crash loses work", func(r *Rules) { r.DueDecides = false }, window, crash, "",
			Lost, []string{"dies", "loads: 0 queued, one in flight", "releases; answers 2xx"}},
		{"H21: tasks follow from own acts, and a mark met by another kind is dropped", func(r *Rules) { r.DueDecides = false }, window, two, "",
			Late, []string{"poll is delivered", "sets the mark", "iterates again", "releases; answers 2xx"}},
		{"H21: tasks are enqueued under the lease", func(r *Rules) { r.EnqueueAfterRelease, r.DueDecides = false, false }, window, two, "",
			Late, []string{"iterates again", "releases; answers 2xx"}},
		// A task that is enqueued under the lease sets its own holder's mark, and the next iteration
		// enqueues the next task.
		{"H21: due tasks are enqueued under the lease", func(r *Rules) { r.EnqueueAfterRelease = false }, window, two, "", Unbounded, nil},
		{"H22a: the locking statement loads", func(r *Rules) { r.LoadAfterLock = false }, Shape{}, two, "",
			Lost, []string{"takes its snapshot", "commits its intent", "acquires the lease"}},
		// Creates see the new token only after the read that it should name.
		{"H22: one transaction locks and loads", func(r *Rules) { r.TokenVisibleBeforeLoad = false }, Shape{}, two, "",
			Lost, []string{"locks the row and reads, uncommitted", "commits its intent", "ALREADY_EXISTS"}},
		{"H22b: the token is read before the commit", func(r *Rules) { r.TokenAfterCommit = false }, Shape{}, two, "",
			Lost, []string{"reads token 0", "loads: 1 queued", "commits its intent", "would make h-0: ALREADY_EXISTS"}},
		{"H23: one token for many iterations, queue", tokenPerIteration, Shape{}, Budget{Creates: 3, Invocations: 2}, "",
			Late, []string{"iterates again", "commits its intent", "would make h-1: ALREADY_EXISTS"}},
		{"H23: one token for many iterations, window", tokenPerIteration, window, two, "", Late, []string{"iterates again", "ALREADY_EXISTS"}},
		{"H23: one token, and the release raises it", tokenPerIteration, Shape{ReleaseRaises: true}, Budget{Creates: 3, Invocations: 2}, "",
			Late, []string{"iterates again", "ALREADY_EXISTS"}},
		{"H24: the delayed task is due at expires_at", func(r *Rules) { r.DelayedTaskAfterSkew = false }, Shape{}, crash, "",
			Lost, []string{"the dead holder's lease expires", "is delivered; I1 finds the lease held", "ALREADY_EXISTS"}},
		{"H24: the delayed task is named by the token alone", func(r *Rules) { r.DelayedTaskNamedByExpiry = false }, Shape{}, Budget{Creates: 2, Invocations: 2, Crashes: 1, Renewals: 1}, "",
			Lost, []string{"renews", "ALREADY_EXISTS"}},
		{"H24: no delayed task", func(r *Rules) { r.DelayedTask = false }, Shape{}, crash, "", Lost, []string{"dies", "sets the mark; answers 2xx"}},
		{"H24: 2xx without the task", func(r *Rules) { r.UnavailableWithoutTask = false }, Shape{}, Budget{Creates: 1, Invocations: 2, Crashes: 1, Failures: 1}, "",
			Lost, []string{"dies", "sets the mark", "cannot make a task and answers 2xx"}},
		{"H25: the mark in a second statement", func(r *Rules) { r.MarkInAcquire = false }, Shape{}, two, "",
			Late, []string{"finds the lease held", "releases", "sets the mark if the token"}},
		{"H25: the release in two statements", func(r *Rules) { r.ReleaseInOneStatement = false }, Shape{}, two, "",
			Late, []string{"finds no mark", "sets the mark", "releases"}},
		{"H25: no mark", func(r *Rules) { r.Mark = false }, Shape{}, two, "", Late, []string{"finds the lease held", "releases; answers 2xx"}},
		{"H25: no mark and no delayed task", func(r *Rules) { r.Mark, r.DelayedTask = false, false }, Shape{}, two, "",
			Lost, []string{"finds the lease held; answers 2xx", "releases; answers 2xx"}},
		{"a fence without the row lock", func(r *Rules) { r.RowLock = false }, Shape{}, Budget{Creates: 1, Invocations: 2, Pauses: 1, Duplicates: 1}, "",
			Unsafe, []string{"finds that the fence holds", "pauses", "acquires the lease", "allocates and sends the head"}},
		{"a forced release keeps its token, queue", forced, Shape{}, Budget{Creates: 2, Invocations: 2, Forced: 1}, "", Late, []string{"releases although the mark is set", "ALREADY_EXISTS"}},
		{"a forced release keeps its token, window", forced, window, Budget{Creates: 2, Invocations: 2, Forced: 1}, "", Late, []string{"releases although the mark is set", "ALREADY_EXISTS"}},
		{"a forced release keeps its token, whole iteration", forced, whole, Budget{Creates: 2, Invocations: 2, Forced: 1}, "", Late, []string{"releases although the mark is set", "ALREADY_EXISTS"}},
		// A create enqueues no task because the lease is held, and the holder relies on an earlier read.
		{"a create skips, no read after the release, queue", skips, Shape{CreateSkips: true}, two, "",
			Lost, []string{"loads: 1 queued", "commits its intent", "sees that the queue will be read again, and makes no task"}},
		{"a create skips, no read after the release, window", skips, Shape{Window: true, CreateSkips: true}, two, "",
			Lost, []string{"loads: 1 queued", "commits its intent", "sees that the queue will be read again, and makes no task"}},
		{"a create skips, no read after the release, whole iteration", skips, Shape{Window: true, WholeIteration: true, CreateSkips: true}, two, "",
			Lost, []string{"loads: 1 queued", "commits its intent", "sees that the queue will be read again, and makes no task"}},
		// An intent that commits between the read and the release is read by neither side.
		{"a create skips, the read is in the releasing transaction", func(r *Rules) { r.ReadIsAfterCommit = false }, Shape{CreateSkips: true}, two, "",
			Lost, []string{"reads the queue again: 0 queued", "commits its intent", "sees that the queue will be read again, and makes no task"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requireViolation(t, Run{Rules: rulesWithout(c.without), Shape: c.shape, Budget: c.budget, Accept: c.accept}, c.want, c.events...)
		})
	}
}
