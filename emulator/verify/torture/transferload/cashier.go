package transferload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Cashier moves money from outside into both ledgers and out again. It repeats an unanswered
// movement under the same id until a ledger answers.
type Cashier struct {
	Stack  *stack.Stack
	Ledger *Ledger
	Users  int
	Source *rand.Rand

	moved   int
	timeout retry.Timeout
}

var sides = []transfer.AccountType{transfer.Funding, transfer.Spot}

// Open gives each user the opening balances. The last user gets none in Funding, so that
// deposits there are refused.
func (t *Cashier) Open(ctx context.Context) error {
	for userID := range int64(t.Users) {
		for _, a := range Assets {
			for _, side := range sides {
				if side == transfer.Funding && userID+1 == int64(t.Users) {
					continue
				}
				t.move(ctx, Account{Side: side, UserID: userID + 1, AssetID: a.ID}, Opening)
			}
		}
	}
	return ctx.Err()
}

// Run moves money until ctx ends. It finishes a movement that it has begun, unless within
// ends before.
func (t *Cashier) Run(ctx, within context.Context) {
	for ctx.Err() == nil {
		t.rebookLost(within)
		at := Account{Side: sides[t.Source.IntN(2)], UserID: 1 + t.Source.Int64N(int64(t.Users)-1), AssetID: Assets[t.Source.IntN(len(Assets))].ID}
		units := 1 + t.Source.Int64N(Opening/20)
		if t.Source.IntN(2) == 0 {
			units = -units
		}
		t.move(within, at, units)
		t.Ledger.Count(Brought)
		retry.Pause(ctx, 100*time.Millisecond+time.Duration(t.Source.Int64N(int64(500*time.Millisecond))))
	}
	t.rebookLost(within)
}

// move makes one movement until it is answered. Every fifth one it makes twice.
func (t *Cashier) move(ctx context.Context, at Account, units int64) {
	t.moved++
	b := newBooking(at, fmt.Sprint("wire-", t.moved), units)
	generation := t.Ledger.Generation()
	t.Ledger.addBooking(b)
	got := t.insist(ctx, b)
	if got.Verdict == transfer.Unknown {
		return // within has ended, and the movement stays unknown
	}
	t.Ledger.recordOutcome(b, got, generation)
	if t.moved%5 != 0 {
		return
	}
	if again := t.insist(ctx, b); again.Verdict != transfer.Unknown && generation == t.Ledger.Generation() {
		t.compareRepeat(b, got, again)
	}
}

func (t *Cashier) compareRepeat(b *booking, first, now transfer.Outcome) {
	if now != first {
		t.Ledger.contradict(b.at.UserID, b.call.ReqID, fmt.Sprintf("%s in %s: answered %s %s, and asked again %s %s",
			b.op, b.at.Side, first.Verdict, first.Reason, now.Verdict, now.Reason))
	}
}

// insist asks a ledger for the booking until it answers.
func (t *Cashier) insist(ctx context.Context, b *booking) transfer.Outcome {
	ask := func() transfer.Outcome {
		ctx, done := t.timeout.Context(ctx)
		defer done()
		return t.Stack.OutsideCall(ctx, b.at.Side, b.op, b.call)
	}
	return retry.Until(ctx, ask, func(o transfer.Outcome) bool { return o.Verdict != transfer.Unknown })
}
