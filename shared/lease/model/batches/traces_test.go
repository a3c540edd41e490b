package batches

import "testing"

// without returns all rules with a change.
func without(change func(*Rules)) Rules {
	r := All()
	change(&r)
	return r
}

// Without any one rule, a shared transaction harms a member. steps is the length of the shortest run
// to the violation.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	none, freeze, leave := Budget{Creates: intents{1, 2}}, Budget{Creates: intents{1, 2}, Freezes: 1}, Budget{Creates: intents{1, 2}, Leavers: 1}
	for _, c := range []struct {
		name    string
		without func(*Rules)
		run     Run
		want    Verdict
		steps   int
		events  []string
	}{
		{"only the first member's fence is checked", func(r *Rules) { r.FencePerMember = false }, Run{Budget: freeze},
			Unsafe, 19, []string{"P begins shared commits of A, B", "P freezes", "Q acquires the lease of B", "P locks B, whose fence holds", "P COMMIT"}},
		{"only the first member's fence is checked, and a nonce is bound twice", func(r *Rules) { r.FencePerMember = false }, Run{Budget: freeze, Accept: []Verdict{Unsafe}},
			Loss, 21, []string{"P begins shared commits of A, B", "P freezes", "Q commits alone for B: binds 2", "P locks B, whose fence holds", "P COMMIT"}},
		{"the others of a fenced member count as failed", func(r *Rules) { r.FencedDropsOut = false }, Run{Budget: freeze, WritesTwice: true},
			Loss, 17, []string{"P freezes", "begins shared commits of A, B: finds A fenced", "P locks B, whose fence holds", "P COMMIT", "P commits alone for B"}},
		{"a fenced member fails all", func(r *Rules) { r.FencedFailsAlone = false }, Run{Budget: freeze},
			Harmed, 15, []string{"P begins shared commits of A, B: locks A, whose fence holds", "P freezes", "P finds B fenced", "P COMMIT"}},
		{"rows are locked in two orders", func(r *Rules) { r.OneOrder, r.SkipLocked = false, false }, Run{Budget: Budget{Creates: intents{2, 2}}, EveryCreate: true},
			Deadlock, 18, []string{"P begins shared commits of A, B: locks A", "Q begins shared acquires of A, B: finds the lease of B held"}},
		{"a locked row is waited for", func(r *Rules) { r.SkipLocked = false }, Run{Budget: freeze},
			Late, 13, []string{"P freezes within commits of B", "Q begins shared acquires of A, B"}},
		{"a skipped commit counts as fenced", func(r *Rules) { r.SkippedGoesAlone = false }, Run{Budget: leave, EveryCreate: true},
			Harmed, 20, []string{"begins shared commits of A, B", "skips B, which is locked", "gets the answer"}},
		{"a skipped acquire counts as a held lease", func(r *Rules) { r.SkippedGoesAlone = false }, Run{Budget: Budget{Creates: intents{2, 2}}, EveryCreate: true, Accept: []Verdict{Harmed}},
			Late, 27, []string{"begins shared acquires of A, B", "which is locked"}},
		{"a call that waits alone holds up the others", func(r *Rules) { r.OthersGoOn = false }, Run{Budget: freeze},
			Late, 16, []string{"P freezes within commits of B", "Q skips B, which is locked", "Q gets the answer"}},
		{"H25: the mark outside the row lock", func(r *Rules) { r.MarkUnderLock = false }, Run{Budget: none, EveryCreate: true},
			Late, 21, []string{"finds the lease of B held", "commits alone for B", "COMMIT"}},
		{"the queue is read again before the release commits", func(r *Rules) { r.RecheckAfterCommit = false }, Run{Budget: none},
			Lost, 16, []string{"whose fence holds", "finds the lease held and makes no task", "COMMIT"}},
		{"a refused transaction fails every member", func(r *Rules) { r.RepeatedAlone = false }, Run{Budget: Budget{Creates: intents{1, 2}, Refusals: 1}},
			Harmed, 9, []string{"has the transaction refused"}},
		{"a write without an answer is repeated", func(r *Rules) { r.UnknownReadsBack = false }, Run{Budget: Budget{Creates: intents{1, 2}, Losses: 1}, WritesTwice: true},
			Loss, 15, []string{"COMMIT", "gets no answer", "commits alone"}},
		{"a caller that has left is answered with 2xx", func(r *Rules) { r.LeaverIsRetried = false }, Run{Budget: leave},
			Lost, 17, []string{"leave at its deadline"}},
		{"a lease is kept for a caller that has left", func(r *Rules) { r.LeaverIsReleased = false }, Run{Budget: leave},
			Lost, 20, []string{"begins shared acquires", "leave at its deadline", "COMMIT", "finds the lease held and makes no task"}},
		{"a dead process's transaction ends after its tasks are delivered again", func(r *Rules) { r.DeadEndFirst = false }, Run{Budget: Budget{Creates: intents{1, 2}, Crashes: 1}},
			Lost, 22, []string{"its transaction goes on", "COMMIT", "finds the lease held and makes no task"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run.Rules = without(c.without)
			got := Check(c.run)
			got.RequireViolation(t, string(c.want), c.events...)
			if got.Depth != c.steps {
				t.Errorf("steps to %s: got %d, want %d", c.want, got.Depth, c.steps)
			}
			c.run.Rules = All()
			Check(c.run).RequireHolds(t)
		})
	}
}

// If locked rows are waited for, one order prevents a deadlock. If they are skipped, no order is
// needed between the rows of leases.
func TestOneOrderPreventsDeadlocksOfTransactionsThatWait(t *testing.T) {
	t.Parallel()
	for _, rules := range []Rules{without(func(r *Rules) { r.SkipLocked = false }), without(func(r *Rules) { r.OneOrder = false })} {
		r := Run{Rules: rules, Budget: Budget{Creates: intents{2, 2}}, EveryCreate: true}
		Check(r).RequireHolds(t)
	}
}
