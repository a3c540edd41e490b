package conservation

import (
	"context"
	"errors"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Sums are whole numbers.
func TestSumsAreWholeNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s, want := Sum{}, new(big.Int)
		for _, u := range rapid.SliceOf(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(^uint64(0)-3, ^uint64(0)))).Draw(rt, "units") {
			change := new(big.Int).SetUint64(u)
			if rapid.Bool().Draw(rt, "credit") {
				s, want = s.Plus(Units(u)), want.Add(want, change)
			} else {
				s, want = s.Minus(Units(u)), want.Sub(want, change)
			}
		}
		if s.String() != want.String() {
			rt.Fatalf("got %s, want %s", s, want)
		}
		if again, err := ParseSum(s.String()); err != nil || again != s {
			rt.Fatalf("read back: got %v, error %v; want %v", again, err, s)
		}
	})
	for _, text := range []string{"", "x", "1.5", "170141183460469231731687303715884105728"} {
		if s, err := ParseSum(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, s)
		}
	}
}

// A payout's target is the chain: without its journal a COMMITTED payout is believed,
// with it the payment must be there.
func TestPayouts(t *testing.T) {
	t.Parallel()
	e := Evidence{ReqID: "r", Units: 1, Debit: transfer.Funding, Type: transfer.FundingToChain, Final: transfer.Committed}
	if found := e.Missing(false); len(found) > 0 {
		t.Errorf("without a journal of payouts: got %v, want nothing", found)
	}
	if found := e.Missing(true); len(found) != 1 || found[0].Kind != CommittedIncomplete {
		t.Errorf("not in the journal of payouts: got %v, want COMMITTED_INCOMPLETE", found)
	}
	paid := transfer.Entry{ReqID: "r", Op: transfer.Deposit, Units: 1}
	if found := append(e.Add(transfer.Chain, paid), e.Missing(true)...); len(found)+len(e.Contradictions()) > 0 {
		t.Errorf("paid: got %v and %v, want nothing", found, e.Contradictions())
	}
	e.Refund = transfer.Funding
	if got := kindsOf(e.Contradictions()); !cmp.Equal(got, []Kind{CreditAndRefund, ContradictsState}) {
		t.Errorf("paid and refunded: got %v, want CREDIT_AND_REFUND and CONTRADICTS_STATE", got)
	}
	e = Evidence{ReqID: "r", Units: 1, Debit: transfer.Funding, Deposit: transfer.Spot, Type: transfer.FundingToChain}
	if got := kindsOf(e.Contradictions()); !cmp.Equal(got, []Kind{WrongSide}) {
		t.Errorf("paid to Trading: got %v, want WRONG_SIDE", got)
	}
}

func kindsOf(found []Finding) (all []Kind) {
	for _, f := range found {
		all = append(all, f.Kind)
	}
	return all
}

// What moved no money, and lines about other things, have no say.
func TestWhatMovesNoMoney(t *testing.T) {
	t.Parallel()
	r := Round{Readings: []Reading{{Side: transfer.Spot, Entries: []transfer.Entry{
		{ReqID: "refused", Op: transfer.Withdraw, UserID: 1, AssetID: 1, Units: 9, Refused: transfer.InsufficientBalance},
		{ReqID: "status", Op: "account_status", UserID: 1, AssetID: 1, Units: 9},
		{ReqID: "in", Op: transfer.OutsideDeposit, UserID: 1, AssetID: 1, Units: 9},
		{ReqID: "out", Op: transfer.OutsideWithdrawal, UserID: 1, AssetID: 1, Units: 2},
	}}}}
	if got := r.Requests(); len(got) > 0 {
		t.Errorf("requests: got %v, want none", got)
	}
	want := Units(7)
	if got := r.Moved()[transfer.Spot][Account{1, 1}]; got != want {
		t.Errorf("moved: got %v, want %v", got, want)
	}
}

// core is a journal of lines 2, 3 and 5; line 4 moves no money.
type core struct{ end uint64 }

func (c core) Journal(_ context.Context, after uint64, limit int) (some []transfer.Entry, err error) {
	for _, seq := range []uint64{2, 3, 5} {
		if seq > after && len(some) < limit {
			some = append(some, transfer.Entry{Seq: seq})
		}
	}
	return some, nil
}

func (c core) balances(context.Context) (uint64, map[Account]Sum, error) { return c.end, nil, nil }

// A point ends with the line that the balances are of, whatever the journal has.
func TestNumberedPointsEndWithTheirBalances(t *testing.T) {
	t.Parallel()
	for end, want := range map[uint64]int{1: 0, 2: 1, 3: 2, 4: 2, 5: 3} {
		n := Numbered{core{end}, core{end}.balances}
		p, err := n.Point(t.Context(), "")
		if err != nil || len(p.Entries) != want || p.Next != cursor(end) {
			t.Errorf("balances of line %d: got %d entries up to %s, error %v; want %d", end, len(p.Entries), p.Next, err, want)
		}
		if _, err := n.Point(t.Context(), cursor(end+1)); !errors.Is(err, ErrWentBack) {
			t.Errorf("line %d, after %d was read: got %v, want ErrWentBack", end, end+1, err)
		}
	}
	page, err := Numbered{Core: core{}}.Page(t.Context(), "2", 2)
	if err != nil || len(page.Entries) != 2 || !page.More || page.Next != "5" {
		t.Errorf("page: got %+v, error %v; want two entries up to 5", page, err)
	}
	if page, err = (Numbered{Core: core{}}).Page(t.Context(), page.Next, 2); err != nil || page.More || page.Next != "5" {
		t.Errorf("page: got %+v, error %v; want the end", page, err)
	}
}

// A finding whose asset nobody knows, or that has no user, halts everything.
func TestUnclearFindingsHaltAll(t *testing.T) {
	t.Parallel()
	for _, at := range []Account{{0, 1}, {1, 0}, {}} {
		got := Halts(HaltGraded, nil, []Finding{{Account: at}})
		if diff := cmp.Diff([]Halt{{Scope: All}}, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", at, diff)
		}
	}
	if got := Halts(HaltGraded, []Halt{{Scope: All}}, nil); len(got) > 0 {
		t.Errorf("nothing new: got %v, want no halt", got)
	}
}
