package transferload

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

func at(seconds int) time.Time { return time.Unix(int64(seconds), 0) }

// A cid repeated after a restore may get another req_id if its transfer was accepted after
// the backup. A transfer accepted before the backup keeps its req_id.
func TestARepeatedCIDAfterARestore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		accepted time.Time
		answer   client.Answer
		want     string // "": no contradiction
		lost     int
	}{
		"kept":                   {at(9), client.Answer{Status: 200, ReqID: "a", State: "PENDING", Code: "DUPLICATE_REQUEST"}, "", 0},
		"lost, and new":          {at(11), client.Answer{Status: 202, ReqID: "b", State: "PENDING"}, "", 1},
		"late, and in the copy":  {at(11), client.Answer{Status: 200, ReqID: "a", State: "PENDING", Code: "DUPLICATE_REQUEST"}, "", 0},
		"kept, and another":      {at(9), client.Answer{Status: 202, ReqID: "b", State: "PENDING"}, "accepted before the backup", 1},
		"not accepted any more":  {at(11), client.Answer{Status: 409, Code: "CID_CONFLICT"}, "want it accepted", 0},
		"accepted, and no name":  {at(11), client.Answer{Status: 202, State: "PENDING"}, "want it accepted", 0},
		"lost, and fails within": {at(11), client.Answer{Status: 422, ReqID: "b", State: "FAILED", Code: "INSUFFICIENT_BALANCE"}, "", 1},
	} {
		u := setup(Answers{ID: "a", IDAt: c.accepted})
		u.Ledger.Restored(at(10))
		if !u.IsStale() {
			t.Errorf("%s: got it not stale after a restore", name)
		}
		u.Call = func(context.Context, string, string, any) (int, []byte, error) {
			text, err := json.Marshal(c.answer)
			return c.answer.Status, text, err
		}
		u.Post(t.Context())
		wantContradiction(t, u.Ledger, name, c.want)
		if answers := u.Request.Answers(); len(answers.Lost) != c.lost || u.IsStale() {
			t.Errorf("%s: got lost %v, stale %t; want %d, and that it is not repeated again", name, answers.Lost, u.IsStale(), c.lost)
		}
	}
}

// The cashier repeats only what Funding answered after the backup. The new answers count.
func TestCashierRepeatsOnlyLostBookings(t *testing.T) {
	t.Parallel()
	l := new(Ledger)
	account := Account{Side: transfer.Funding, UserID: 7, AssetID: 1}
	applied, refused := transfer.Outcome{Verdict: transfer.Success}, transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.InsufficientBalance}
	for i, b := range []booking{
		{op: transfer.OutsideDeposit, came: applied, when: at(9)},
		{op: transfer.OutsideDeposit, came: applied, when: at(11)},
		{op: transfer.OutsideWithdrawal, came: applied, when: at(12)},
		{op: transfer.OutsideWithdrawal, came: refused, when: at(13)},
	} {
		b.at, b.call.Units = account, uint64(100+i)
		l.addBooking(&b)
	}
	l.Restored(at(10))
	lost, generation := l.lostBookings()
	if len(lost) != 3 || generation != 1 {
		t.Fatalf("lost: got %d of generation %d; want the 3 after the backup", len(lost), generation)
	}
	for i, came := range []transfer.Outcome{applied, refused, applied} {
		l.recordOutcome(lost[i], came, generation)
	}
	if again, _ := l.lostBookings(); len(again) != 0 {
		t.Errorf("booked again: got %d left, want none", len(again))
	}
	if got, _ := l.Expected(nil); got[account] != 100+101-103 {
		t.Errorf("expected: got %d, want 98: the withdrawal of 102 is refused now, and that of 103 applied", got[account])
	}
	l.Restored(at(20))
	if again, _ := l.lostBookings(); len(again) != 3 {
		t.Errorf("after the next restore: got %d lost, want the 3 again", len(again))
	}
}

// A finding is explained only after a restore, and only for a payment or for a transfer that
// the operator examined.
func TestOnlyFindingsOfLostTransfersAreExplained(t *testing.T) {
	t.Parallel()
	l := new(Ledger)
	lost, payment := Finding{Kind: "NO_TRANSFER", ReqID: "a"}, Finding{Kind: "PAYMENT_WITHOUT_TRANSFER"}
	l.markLost("a")
	if lost.IsExplained(l) || payment.IsExplained(l) {
		t.Error("before a restore: got a finding explained")
	}
	l.Restored(at(10))
	for _, f := range []Finding{{Kind: "NO_TRANSFER", ReqID: "b"}, {Kind: "BALANCE_DIFFERS", ReqID: "a"}, {Kind: "PAID_TWICE", ReqID: "a"}} {
		if f.IsExplained(l) {
			t.Errorf("%+v: got it explained by a restore", f)
		}
	}
	if !lost.IsExplained(l) || !payment.IsExplained(l) {
		t.Error("of a transfer that was lost: got it not explained")
	}
	settle := &booking{op: transfer.OutsideWithdrawal, came: transfer.Outcome{Verdict: transfer.Success}, settles: "a"}
	settle.call.Units = 5
	l.addBooking(settle)
	l.markLost("a")
	differs := Finding{Kind: "PAYMENT_DIFFERS", ReqID: "a"}
	if unsettled := (Finding{Kind: "PAYMENT_DIFFERS", ReqID: "b"}); !differs.IsExplained(l) || unsettled.IsExplained(l) {
		t.Error("a payment of a refused payout: want it explained once it is settled, and not before")
	}
	check.Equal(t, "settled", l.Settlements()["a"], -5)
}

// A settlement is owed again if Funding refuses the repeated booking.
func TestASettlementThatIsLostIsOwedAgain(t *testing.T) {
	t.Parallel()
	l, account := new(Ledger), Account{Side: transfer.Funding, UserID: 7, AssetID: 1}
	b := &booking{at: account, op: transfer.OutsideWithdrawal, came: transfer.Outcome{Verdict: transfer.Success}, when: at(11), settles: "a"}
	b.call.Units = 5
	l.addBooking(b)
	s := seen(7, transfer.Funding, transfer.Chain, stack.ETH, 5, Answers{ID: "b", Lost: []string{"a"}})
	check.Equal(t, "settled (under the req_id that was lost)", s.Settled(l.Settlements()), -5)
	l.Restored(at(10))
	l.recordOutcome(b, transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.InsufficientBalance}, 1)
	expected, _ := l.Expected(nil)
	if got := s.Settled(l.Settlements()); got != 0 || expected[account] != 0 {
		t.Errorf("refused when it was booked again: got %d settled, %d expected; want none", got, expected[account])
	}
}
