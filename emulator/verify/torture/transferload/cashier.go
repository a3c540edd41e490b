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
				t.move(ctx, Account{side, userID + 1, a.ID}, transfer.OutsideDeposit, Opening)
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
		at := Account{sides[t.Source.IntN(2)], 1 + t.Source.Int64N(int64(t.Users)-1), Assets[t.Source.IntN(len(Assets))].ID}
		op := transfer.OutsideDeposit
		if t.Source.IntN(2) == 0 {
			op = transfer.OutsideWithdrawal
		}
		t.move(within, at, op, 1+t.Source.Uint64N(Opening/20))
		t.Ledger.Count(Brought)
		retry.Pause(ctx, 100*time.Millisecond+time.Duration(t.Source.Int64N(int64(500*time.Millisecond))))
	}
	t.rebookLost(within)
}

// move makes one movement until it is answered. Every fifth one it makes twice.
func (t *Cashier) move(ctx context.Context, at Account, op transfer.Op, units uint64) {
	t.moved++
	call := transfer.Call{
		ReqID: fmt.Sprint("wire-", t.moved), UserID: at.UserID, AssetID: at.AssetID, Units: units, CreatedAt: time.Now().Truncate(time.Microsecond),
	}
	t.Ledger.addUnanswered()
	generation := t.Ledger.Generation()
	got := t.insist(ctx, at.Side, op, call)
	if got.Verdict == transfer.Unknown {
		return // within has ended, and the movement stays unknown
	}
	t.Ledger.recordMovement(at, op, units, got)
	if at.Side == transfer.Funding {
		t.Ledger.addBooking(&booking{at: at, op: op, call: call, came: got, when: time.Now(), generation: generation})
	}
	if t.moved%5 != 0 {
		return
	}
	if again := t.insist(ctx, at.Side, op, call); again.Verdict != transfer.Unknown && generation == t.Ledger.Generation() {
		t.compareRepeat(at, op, call.ReqID, got, again)
	}
}

func (t *Cashier) compareRepeat(at Account, op transfer.Op, reqID string, first, now transfer.Outcome) {
	if now != first {
		t.Ledger.contradict(at.UserID, reqID, fmt.Sprintf("%s in %s: answered %s %s, and asked again %s %s", op, at.Side, first.Verdict, first.Reason, now.Verdict, now.Reason))
	}
}

func (t *Cashier) insist(ctx context.Context, side transfer.AccountType, op transfer.Op, call transfer.Call) transfer.Outcome {
	ask := func() transfer.Outcome {
		ctx, done := t.timeout.Context(ctx)
		defer done()
		return t.Stack.OutsideCall(ctx, side, op, call)
	}
	return retry.Until(ctx, ask, func(o transfer.Outcome) bool { return o.Verdict != transfer.Unknown })
}

func (l *Ledger) addUnanswered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown++
}

// recordMovement records a ledger's answer to the cashier.
func (l *Ledger) recordMovement(at Account, op transfer.Op, units uint64, o transfer.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown--
	l.outside[at] += signed(op, units, o)
}
