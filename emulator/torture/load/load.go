// Package load is the callers and operators of a house under torture. Callers
// post intents, repeat themselves, change their minds and make mistakes, and
// write down every answer that they get; a house that contradicts itself is
// found out.
package load

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/nonce"
)

// Account is a submitter and how many intents it may have in flight.
type Account struct {
	Submitter nonce.Submitter
	Window    int
	Policy    bool // the submitter has [Policy]
	Program   bool // a [Program] uses it too, whose requests wait behind what is posted
}

// Options say what load to put on a house.
type Options struct {
	Stack    *stack.Stack
	Accounts []Account
	Rate     float64 // intents a second
	Source   *rand.Rand
}

// Load is the callers. What they do is drawn in the order in which they begin;
// when they come to do it depends on the answers.
type Load struct {
	Options
	Ledger *Ledger

	callers sync.WaitGroup
	posted  int
}

// New is a load that has not begun.
func New(o Options) *Load { return &Load{Options: o, Ledger: newLedger()} }

// backlog is how many unfinished intents a submitter gets at most: enough to keep
// it busy, and few enough to end soon once faults stop.
func (a Account) backlog() int {
	if a.Program {
		return 3 + 3*min(a.Window, 8)
	}
	return 3 + 3*a.Window
}

// Run posts intents until ctx ends. Each has a caller of its own, who goes on
// until it knows the intent's end, or until within ends.
func (l *Load) Run(ctx, within context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.Rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a := l.Accounts[l.Source.IntN(len(l.Accounts))]
		in := newIntent(a.Submitter, l.posted, l.Source)
		in.policy = a.Policy
		if l.Ledger.open(a.Submitter) >= a.backlog() {
			continue
		}
		l.posted++
		l.Ledger.add(in)
		l.callers.Go(func() {
			(&caller{env: l.Stack, ledger: l.Ledger, intent: in, account: stack.CallerAccount}).run(within)
		})
	}
}

// Wait returns when every caller is done: it knows the end of its intent, or has
// no more time.
func (l *Load) Wait() { l.callers.Wait() }

// Ledger is what callers were told.
type Ledger struct {
	mu             sync.Mutex
	intents        []*Intent
	counts         map[string]int
	contradictions []Contradiction

	generation atomic.Int64 // of the database: how often it was restored
	backups    []time.Time  // when the backup was begun of each database that was put in place
}

// Contradiction is an answer that no house may give.
type Contradiction struct {
	Submitter nonce.Submitter
	RequestID string
	TxID      string
	Detail    string // what was answered, and what should have been
}

func newLedger() *Ledger { return &Ledger{counts: make(map[string]int)} }

func (l *Ledger) add(in *Intent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.intents = append(l.intents, in)
}

// Intents lists everything that was posted.
func (l *Ledger) Intents() []*Intent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.intents)
}

// open is how many intents of s have a caller that still waits.
func (l *Ledger) open(s nonce.Submitter) (n int) {
	for _, in := range l.Intents() {
		if in.Submitter == s && !in.Answers().Done {
			n++
		}
	}
	return n
}

// What callers do beside posting, as it is counted.
const (
	Repeats   = "the same request, 2 to 5 times at once"
	Again     = "the same request again, later"
	Conflicts = "the same requestId with another payload"
	Invalid   = "invalid requests"
	Cancels   = "cancels"
	Barred    = "what the submitter's policy forbids"
)

// Habits lists what is counted.
func Habits() []string { return []string{Repeats, Again, Conflicts, Invalid, Cancels, Barred} }

func (l *Ledger) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// Did says how often callers did each of their habits.
func (l *Ledger) Did() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int)
	for _, h := range slices.Concat(Habits(), ProgramHabits()) {
		all[h] = l.counts[h]
	}
	return all
}

func (l *Ledger) contradict(in *Intent, detail string) {
	l.addContradiction(Contradiction{in.Submitter, in.RequestID, in.Answers().TxID, detail})
}

func (l *Ledger) addContradiction(one Contradiction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contradictions = append(l.contradictions, one)
}

// Contradictions lists the answers that no house may give.
func (l *Ledger) Contradictions() []Contradiction {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.contradictions)
}

// Tally counts intents by what their callers know.
type Tally struct {
	Posted, Accepted, Refused  int
	Confirmed, Failed, Waiting int
}

// Tally counts what callers know now.
func (l *Ledger) Tally() (t Tally) {
	for _, in := range l.Intents() {
		t.Posted++
		switch answers := in.Answers(); {
		case answers.TxID == "" && answers.Done:
			t.Refused++
		case answers.TxID == "":
			t.Waiting++
		default:
			t.Accepted++
			switch {
			case answers.End == nil:
				t.Waiting++
			case answers.End.State == nonce.Confirmed:
				t.Confirmed++
			default:
				t.Failed++
			}
		}
	}
	return t
}
