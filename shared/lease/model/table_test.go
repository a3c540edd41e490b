package model

import "testing"

// asWritten returns the rules of the first design, in the most favourable reading, with the given
// fixes.
func asWritten(fixes ...func(*Rules)) Rules {
	r := All()
	r.TokenPerIteration, r.EnqueueAfterRelease, r.DueDecides, r.FencedAcquiresAgain = false, false, false, false
	for _, m := range fixes {
		m(&r)
	}
	return r
}

// TestTableOfMendings checks the designs from the first one to the protocol, with one more rule in
// each row. The number of steps is lower than in a model in which begin, insert and commit, or
// delivery and acquire, are separate steps.
func TestTableOfMendings(t *testing.T) {
	t.Parallel()
	tokenPerIteration := func(r *Rules) { r.TokenPerIteration = true }
	afterRelease := func(r *Rules) { r.EnqueueAfterRelease = true }
	due := func(r *Rules) { r.DueDecides, r.FencedAcquiresAgain = true, true }
	queue, window := Shape{}, Shape{Window: true}
	two := Budget{Creates: 2, Invocations: 2}
	three := Budget{Creates: 3, Invocations: 2}
	crash := Budget{Creates: 2, Invocations: 2, Crashes: 1}
	pause := Budget{Creates: 2, Invocations: 2, Pauses: 1}
	for _, row := range []struct {
		name   string
		rules  Rules
		shape  Shape
		budget Budget
		accept Verdict
		want   Verdict
	}{
		{"as written, queue", asWritten(), queue, three, "", Late},
		{"as written, window", asWritten(), window, two, "", Late},
		{"as written, pause", asWritten(), queue, pause, Late, Lost},
		{"as written, crash", asWritten(), window, crash, Late, Lost},
		{"release raises, queue", asWritten(), Shape{ReleaseRaises: true}, three, "", Late},
		{"token per iteration, queue", asWritten(tokenPerIteration), queue, three, "", Holds},
		{"token per iteration, window", asWritten(tokenPerIteration), window, two, "", Late},
		{"token per iteration, crash", asWritten(tokenPerIteration), window, crash, Late, Lost},
		{"after release, window", asWritten(tokenPerIteration, afterRelease), window, two, "", Late},
		{"decided from due work", asWritten(tokenPerIteration, afterRelease, due), window, two, "", Holds},
		{"decided from due work, crash", asWritten(tokenPerIteration, afterRelease, due), window, crash, "", Holds},
		{"decided from due work, pause", asWritten(tokenPerIteration, afterRelease, due), window, pause, "", Holds},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := check(t, Run{Rules: row.rules, Shape: row.shape, Budget: row.budget, Accept: row.accept})
			if got.Verdict != row.want {
				t.Errorf("got %s, want %s", got.Verdict, row.want)
			}
		})
	}
}
