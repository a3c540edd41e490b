// Package movers is the people of a house under torture who have money in it: users
// who move it between their accounts and have it paid out to a chain, a teller who
// brings it from outside and takes it out, and the operator of transfers. They write down every answer that they get;
// a house that contradicts itself is found out, and so is money that is not where
// they were told.
package transferload

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Assets are those that are moved between the two ledgers. Some are paid out: USDT by
// a token's contract, ETH as the chain's coin.
var (
	Assets  = []transfer.Asset{stack.USDT, stack.BTC, stack.JPY, stack.ETH}
	payable = []transfer.Asset{stack.USDT, stack.ETH}
)

// Options say what load of transfers to put on a house.
type Options struct {
	Stack  *stack.Stack
	Users  int      // 1 to Users; the last has no Funding account
	Rate   float64  // transfers a second
	Closed []string // addresses that take no coin
	Source *rand.Rand
}

// Load is the users. What they do is drawn in the order in which they begin; when
// they come to do it depends on the answers.
type Load struct {
	Options
	Ledger *Ledger

	users sync.WaitGroup
	drawn int
}

// New is a load that has not begun.
func New(o Options) *Load { return &Load{Options: o, Ledger: newLedger()} }

// backlog is how many unfinished transfers a user has at most.
const backlog = 8

// Run posts transfers until ctx ends. Each has a goroutine of its own, which goes on
// until it knows the transfer's end, or until within ends.
func (l *Load) Run(ctx, within context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.Rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w := newScript(l.drawn, l.Options, l.Source)
		if l.Ledger.open(w.UserID) >= backlog {
			continue
		}
		l.drawn++
		l.Ledger.add(w)
		l.users.Go(func() { (&user{env: l.Stack, ledger: l.Ledger, script: w}).run(within) })
	}
}

// Wait returns when every user is done: they know the ends of their transfers, or
// have no more time.
func (l *Load) Wait() { l.users.Wait() }

// Account is a balance, as users and teller know of it.
type Account struct {
	Side    transfer.AccountType
	UserID  int64
	AssetID int32
}

// Ledger is what users, teller and operator were told.
type Ledger struct {
	mu             sync.Mutex
	scripts        []*Script
	outside        map[Account]int64 // what came in less what left, as the teller was told
	unknown        int               // movements of the teller's that nobody has answered
	counts         map[string]int
	contradictions []Contradiction
	backups        []time.Time      // when the backup was begun of each database that was put in place
	booked         []*booking       // what the teller has booked in Funding, in order
	settledUnits   map[string]int64 // what the outside brought, by the transfer whose other half was lost
	again          int              // of which generation the teller has booked again what was lost
}

// Contradiction is an answer that no house may give.
type Contradiction struct {
	UserID int64
	ReqID  string
	Detail string // what was answered, and what should have been
}

func newLedger() *Ledger {
	return &Ledger{outside: make(map[Account]int64), counts: make(map[string]int), settledUnits: make(map[string]int64)}
}

func (l *Ledger) add(w *Script) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scripts = append(l.scripts, w)
}

// Scripts lists everything that was wanted.
func (l *Ledger) Scripts() []*Script {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.scripts)
}

// open is how many transfers of the user somebody still waits for.
func (l *Ledger) open(userID int64) (n int) {
	for _, w := range l.Scripts() {
		if w.UserID == userID && !w.Answers().Done {
			n++
		}
	}
	return n
}

// What users do beside posting, as it is counted.
const (
	Repeats   = "the same transfer, 2 to 5 times at once"
	Again     = "the same transfer again, at its end"
	Conflicts = "the same cid with another amount"
	Invalid   = "invalid transfers"
	Peeks     = "somebody else's transfer asked for"
	Abandoned = "transfers left by another build"
	Brought   = "outside deposits and withdrawals"
)

// Habits lists what is counted.
func Habits() []string {
	return []string{Repeats, Again, Conflicts, Invalid, Peeks, Abandoned, Brought}
}

func (l *Ledger) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// Did says how often each of the names was done; what never was is 0.
func (l *Ledger) Did(names []string) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int)
	for _, h := range names {
		all[h] = l.counts[h]
	}
	return all
}

func (l *Ledger) contradict(userID int64, reqID, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contradictions = append(l.contradictions, Contradiction{userID, reqID, detail})
}

// Contradictions lists the answers that no house may give.
func (l *Ledger) Contradictions() []Contradiction {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.contradictions)
}

// Tally counts transfers by what their users know.
type Tally struct {
	Posted, Accepted, Refused   int
	Committed, Failed, Returned int // ROLLED_BACK
	Waiting                     int
}

// Tally counts what users know now.
func (l *Ledger) Tally() (t Tally) {
	for _, w := range l.Scripts() {
		t.Posted++
		answers := w.Answers()
		switch {
		case answers.ReqID != "":
			t.Accepted++
		case answers.Done:
			t.Refused++
			continue
		}
		switch {
		case answers.End == nil:
			t.Waiting++
		case answers.End.State == transfer.Committed:
			t.Committed++
		case answers.End.State == transfer.RolledBack:
			t.Returned++
		default:
			t.Failed++
		}
	}
	return t
}
