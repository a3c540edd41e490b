package model

import "testing"

// asWritten is the design before its mending: silences read kindly.
func asWritten(mend ...func(*Rules)) Rules {
	r := All()
	r.TokenPerRound, r.EnqueueAfterRelease, r.DueDecides, r.FencedAcquiresAgain = false, false, false, false
	for _, m := range mend {
		m(&r)
	}
	return r
}

// TestTableOfMendings walks the way from the design as written to the protocol,
// one rule more in each row. Steps are fewer than where begin, insert and commit,
// or delivery and acquire, are counted apart.
func TestTableOfMendings(t *testing.T) {
	t.Parallel()
	tokenPerRound := func(r *Rules) { r.TokenPerRound = true }
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
		{"token per round, queue", asWritten(tokenPerRound), queue, three, "", Holds},
		{"token per round, window", asWritten(tokenPerRound), window, two, "", Late},
		{"token per round, crash", asWritten(tokenPerRound), window, crash, Late, Lost},
		{"after release, window", asWritten(tokenPerRound, afterRelease), window, two, "", Late},
		{"decided from what is due", asWritten(tokenPerRound, afterRelease, due), window, two, "", Holds},
		{"decided from what is due, crash", asWritten(tokenPerRound, afterRelease, due), window, crash, "", Holds},
		{"decided from what is due, pause", asWritten(tokenPerRound, afterRelease, due), window, pause, "", Holds},
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
