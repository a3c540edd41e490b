// Package load runs the callers and the operator of a torture run. Callers post intents,
// repeat and cancel them, and post invalid ones. They record every answer, so that a
// deployment that contradicts itself is found.
package load

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Account is a submitter and how many intents it may have in flight.
type Account struct {
	Submitter txmanager.Submitter
	Window    int
	Policy    bool // the submitter has the policy of [Policy]
	Program   bool // a [Program] uses it too, and its requests queue behind the intents
}

// Load runs the callers. Scripts are drawn in the order in which callers begin. When a
// caller carries them out depends on the answers.
type Load struct {
	Stack    *stack.Stack
	Accounts []Account
	Rate     float64 // intents a second
	Source   *rand.Rand
	Ledger   *Ledger
}

// backlog is the maximum of unfinished intents of a submitter: enough to keep it busy, and
// few enough to finish soon after the faults stop.
func (a Account) backlog() int {
	if a.Program {
		return 3 + 3*min(a.Window, 8)
	}
	return 3 + 3*a.Window
}

// Run posts intents until ctx ends. Each intent has its own caller, which posts it until the answer is clear, carries out
// its script, and polls until the intent is final or within ends. Run returns after all callers.
func (l *Load) Run(ctx, within context.Context) {
	retry.AtRate(ctx, l.Rate, func(n int) func() {
		a := l.Accounts[l.Source.IntN(len(l.Accounts))]
		in := newIntent(a.Submitter, n, l.Source)
		in.policy = a.Policy
		if l.Ledger.CountUnfinished(func(in *Intent) bool { return in.Submitter == a.Submitter }) >= a.backlog() {
			return nil
		}
		l.Ledger.Add(in)
		c := newCaller(l.Stack, l.Ledger, in, stack.CallerAccount)
		return func() { c.Follow(within, c.PostCopies, c.cancel) }
	})
}

// Ledger records the answers that callers got.
type Ledger = client.Record[*Intent, End]

// The habits of callers, as they are counted and printed.
const (
	Repeats   = "the same request, 2 to 5 times at once"
	Again     = "the same request again, later"
	Conflicts = "the same requestId with another payload"
	Invalid   = "invalid requests"
	Cancels   = "cancels"
	Barred    = "what the submitter's policy forbids"
)

// Habits returns the habits of callers, and of the [Program], that are counted.
func Habits() []string {
	return slices.Concat([]string{Repeats, Again, Conflicts, Invalid, Cancels, Barred}, programHabits)
}
