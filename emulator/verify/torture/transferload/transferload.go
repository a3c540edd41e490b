// Package transferload runs the users, the cashier and the operator of transfers in a torture run. Users transfer
// money and pay it out to a chain; the cashier deposits and withdraws it. Each answer is recorded, so that the
// checkers find contradictions and wrong balances.
package transferload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Assets move between the two ledgers. Two are also paid out: USDT by a token's contract, ETH
// as the chain's coin.
var (
	Assets  = []transfer.Asset{stack.USDT, stack.BTC, stack.JPY, stack.ETH}
	payable = []transfer.Asset{stack.USDT, stack.ETH}
)

// Load runs the users. Scripts are drawn in the order in which users begin. When a user
// carries them out depends on the answers.
type Load struct {
	Stack  *stack.Stack
	Users  int      // with ids from 1 to Users; the last has no Funding account
	Rate   float64  // transfers a second
	Closed []string // addresses that take no coin
	Source *rand.Rand
	Ledger *Ledger
}

// backlog is the maximum of unfinished transfers of a user.
const backlog = 8

// Run posts transfers until ctx ends. Each has its own user, who posts it until the answer is clear, carries out the
// habits, and polls until it is terminal or within ends. Run returns after all of them.
func (l *Load) Run(ctx, within context.Context) {
	retry.AtRate(ctx, l.Rate, func(n int) func() {
		s := newScript(n, l, l.Source)
		if l.Ledger.CountUnfinished(func(one *Script) bool { return one.UserID == s.UserID }) >= backlog {
			return nil
		}
		l.Ledger.Add(s)
		u := newUser(l.Stack, l.Ledger, s)
		begin := u.PostCopies
		if s.abandoned {
			begin = u.abandon
		}
		return func() { u.Follow(within, begin, u.askAsOtherUser) }
	})
}

// Account identifies one balance.
type Account = money.Account

// Ledger records the answers that users, cashier and operator got.
type Ledger struct {
	client.Record[*Script, End]

	mu       sync.Mutex
	bookings []*booking // oldest first
	lost     []string   // the req_ids of transfers that the operator found to be lost
}

// The habits of users, as they are counted and printed.
const (
	Repeats   = "the same transfer, 2 to 5 times at once"
	Again     = "the same transfer again, at its end"
	Conflicts = "the same cid with another amount"
	Invalid   = "invalid transfers"
	Peeks     = "somebody else's transfer asked for"
	Abandoned = "transfers left by another build"
	Brought   = "outside deposits and withdrawals"
)

// Habits returns the habits that are counted.
func Habits() []string {
	return []string{Repeats, Again, Conflicts, Invalid, Peeks, Abandoned, Brought}
}

// UserName names a user in a violation; 0: none.
func UserName(userID int64) string {
	if userID == 0 {
		return "transfers"
	}
	return fmt.Sprint("user ", userID)
}

func (l *Ledger) contradict(userID int64, reqID, detail string) {
	l.Contradict(UserName(userID), reqID, detail)
}
