package conservation

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
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

// A payout's target is the chain. Without the chain's journal a COMMITTED payout is accepted; with
// the journal it needs a payment there.
func TestChainJournalMustHaveCommittedPayouts(t *testing.T) {
	t.Parallel()
	e := Evidence{ReqID: "r", Units: 1, Debit: transfer.Funding, Type: transfer.FundingToChain, Final: transfer.Committed}
	check.Same(t, "without a journal of payouts", kindsOf(e.Missing(false)), []Kind(nil))
	check.Same(t, "not in the journal of payouts", kindsOf(e.Missing(true)), []Kind{CommittedIncomplete})
	paid := transfer.Entry{ReqID: "r", Op: transfer.Deposit, Units: 1}
	check.Same(t, "paid", kindsOf(slices.Concat(e.Add(Entry{Entry: paid, Side: transfer.Chain}), e.Missing(true), e.Contradictions())), []Kind(nil))
	e.Refund = transfer.Funding
	check.Same(t, "paid and refunded", kindsOf(e.Contradictions()), []Kind{CreditAndRefund, ContradictsState})
	e = Evidence{ReqID: "r", Units: 1, Debit: transfer.Funding, Deposit: transfer.Spot, Type: transfer.FundingToChain}
	check.Same(t, "paid to Trading", kindsOf(e.Contradictions()), []Kind{WrongSide})
}

func kindsOf(found []Finding) (all []Kind) {
	for _, f := range found {
		all = append(all, f.Kind)
	}
	return all
}

// Entries that moved no money, and lines about other things, have no effect.
func TestLinesWithoutMoneyAreIgnored(t *testing.T) {
	t.Parallel()
	var r Batch
	for _, e := range []transfer.Entry{
		{ReqID: "refused", Op: transfer.Withdraw, UserID: 1, AssetID: 1, Units: 9, Refused: transfer.InsufficientBalance},
		{ReqID: "status", Op: "account_status", UserID: 1, AssetID: 1, Units: 9},
		{ReqID: "in", Op: transfer.OutsideDeposit, UserID: 1, AssetID: 1, Units: 9},
		{ReqID: "out", Op: transfer.OutsideWithdrawal, UserID: 1, AssetID: 1, Units: 2},
	} {
		r.Entries = append(r.Entries, Entry{Entry: e, Side: transfer.Spot})
	}
	check.Equal(t, "requests", len(r.Requests()), 0)
	check.Equal(t, "moved", r.Moved()[transfer.Spot][Account{1, 1}], Units(7))
}

// core is a journal in which each third line moves no money. An answer holds any number of lines,
// and another line is appended while one is read.
type core struct {
	rt    *rapid.T
	lines []Line
	grows int
}

func (c *core) append() {
	n := len(c.lines) + 1
	line := Line{Entry: transfer.Entry{Seq: uint64(n), Op: transfer.OutsideDeposit, UserID: 1, AssetID: 1, Units: 1}, Mark: fmt.Sprint("mark ", n)}
	if n%3 == 0 {
		digits := uint8(n % 9)
		line.Op, line.AssetID, line.Precision = "asset", int32(n), &digits
	}
	c.lines = append(c.lines, line)
}

func (c *core) Journal(_ context.Context, after uint64, limit int) ([]Line, uint64, error) {
	from := min(int(after), len(c.lines))
	count := min(limit, len(c.lines)-from)
	some := c.lines[from : from+rapid.IntRange(min(count, 2), count).Draw(c.rt, "answer")]
	if c.grows > 0 {
		c.grows--
		c.append()
	}
	return some, uint64(len(c.lines)), nil
}

func (c *core) balances(context.Context) (uint64, map[Account]Sum, error) {
	return uint64(len(c.lines)), nil, nil
}

// Pages and then a point return each money line and each asset once. Pages go as far as the journal
// did when the last of them began, and the point ends at the line of the balances.
func TestNumberedReadsEachLineOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := &core{rt: rt}
		for range rapid.IntRange(0, 40).Draw(rt, "lines") {
			c.append()
		}
		c.grows = rapid.IntRange(0, 10).Draw(rt, "grows")
		n := Numbered{c, c.balances}
		var seqs []uint64
		scales, cursor := 0, Cursor("")
		add := func(entries []transfer.Entry, assets []Scale) {
			scales += len(assets)
			for _, e := range entries {
				seqs = append(seqs, e.Seq)
			}
		}
		for more := true; more; {
			before := len(c.lines)
			page := check.Value(n.Page(t.Context(), cursor, rapid.IntRange(1, 9).Draw(rt, "limit")))(rt)
			add(page.Entries, page.Scales)
			cursor, more = page.Next, page.More
			if at, _ := parsePosition(cursor); !more && at.line < uint64(before) {
				rt.Fatalf("pages end at %s of %d lines", cursor, before)
			}
		}
		end := len(c.lines)
		p := check.Value(n.Point(t.Context(), cursor))(rt)
		add(p.Entries, p.Scales)
		var want []uint64
		for i := 1; i <= end; i++ {
			if i%3 != 0 {
				want = append(want, uint64(i))
			}
		}
		if at, _ := parsePosition(p.Next); at.line != uint64(end) || !slices.Equal(seqs, want) || scales != end/3 {
			rt.Fatalf("up to %s: got lines %v and %d assets, want %v and %d", p.Next, seqs, scales, want, end/3)
		}
	})
}

// A page ends at the journal's end as of its first answer, however fast the journal grows.
func TestPageEndsWhereTheJournalEndedAtFirst(t *testing.T) {
	t.Parallel()
	c := &growing{}
	c.append()
	p, err := Numbered{Core: c}.Page(t.Context(), "", 1000)
	if at, _ := parsePosition(p.Next); err != nil || p.More || at.line != 2 {
		t.Errorf("got up to %s, more: %t, error %v; want the two lines of the first answer", p.Next, p.More, err)
	}
}

// growing is a journal that grows by a line with each line that is read.
type growing struct{ core }

func (g *growing) Journal(_ context.Context, after uint64, limit int) ([]Line, uint64, error) {
	some := g.lines[after:min(int(after)+limit, len(g.lines))]
	for range some {
		g.append()
	}
	return some, uint64(len(g.lines)), nil
}

// A finding of an unknown asset, or without a user, halts everything.
func TestUnclearFindingsHaltAll(t *testing.T) {
	t.Parallel()
	for _, at := range []Account{{0, 1}, {1, 0}, {}} {
		fresh := []Finding{{Account: at}}
		got := Halts(HaltGraded, nil, fresh, 1)
		check.Same(t, fmt.Sprintf("%+v", at), got, []Halt{{Scope: All, Findings: fresh}})
	}
	check.Equal(t, "halts where nothing is new", len(Halts(HaltGraded, []Halt{{Scope: All}}, nil, 1)), 0)
}

// Each new finding gets a halt, up to the maximum number of halts.
func TestEachFindingHasItsHalt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		fresh := make([]Finding, rapid.IntRange(1, 9).Draw(rt, "fresh"))
		for i := range fresh {
			fresh[i] = Finding{ReqID: fmt.Sprint(i), Account: Account{1, 1}}
		}
		limit := rapid.IntRange(1, 9).Draw(rt, "most")
		halts := Halts(HaltGraded, nil, fresh, limit)
		var again []Finding
		for i, h := range halts {
			again = append(again, h.Findings...)
			if h.Scope != UserAsset || len(h.Findings) == 0 || len(h.Findings) > 1 && i+1 < limit {
				rt.Errorf("halt %d: got %+v, want the user's asset, for one finding", i, h)
			}
		}
		if diff := cmp.Diff(fresh, again); diff != "" || len(halts) > limit {
			rt.Errorf("%d halts of at most %d, for (-want +got):\n%s", len(halts), limit, diff)
		}
	})
}

// A finding about a precision halts one asset for all users.
func TestPrecisionFindingHaltsItsAsset(t *testing.T) {
	t.Parallel()
	known := Known{Scales: []Scale{{transfer.Spot, 1, 6}, {transfer.Spot, 2, 2}, {transfer.Spot, 3, 0}}, Precision: map[int32]uint8{1: 2, 2: 2, 4: 1}}
	found := known.precisions(Batch{Scales: []Scale{{transfer.Spot, 4, 1}, {transfer.Spot, 1, 6}}})
	want := []Finding{{Kind: PrecisionDiffers, Side: transfer.Spot, Account: Account{AssetID: 1}, Expected: "2 decimals", Got: "6 decimals"}}
	check.Same(t, "findings", found, want)
	for mode, want := range map[Mode]Halt{HaltAll: {Scope: All}, HaltGraded: {Scope: Asset, Account: Account{AssetID: 1}}} {
		want.Findings = found
		check.Same(t, string(mode), Halts(mode, nil, found, 1), []Halt{want})
	}
}
