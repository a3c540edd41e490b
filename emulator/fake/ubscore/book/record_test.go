package book_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

func as(kind book.Kind, r book.Request) book.Request {
	r.Kind = kind
	return r
}

// floored returns a book that has forgotten all keys up to now. It remembers W, a younger withdrawal
// that an older one follows: L was created below the floor.
func floored(t testing.TB) *book.Book {
	b := stocked(t)
	decide(t, b, withdrawal("gone", 10))
	decide(t, b, withdrawal("back", 10))
	decide(t, b, as(book.Refund, withdrawal("back", 10)))
	young := withdrawal("young", 10)
	young.CreatedAt = now + 1
	decide(t, b, young)
	decide(t, b, withdrawal("L", 10))
	if err := b.Apply(b.FloorEntry(now+1, now)); err != nil || b.Answered() != 2 {
		t.Fatalf("forget: got %d keys, %v; want young and L left", b.Answered(), err)
	}
	return b
}

// Below the floor only a remembered key and the refund of a remembered withdrawal are answered.
func TestBelowTheFloorOnlyRememberedKeysAreAnswered(t *testing.T) {
	t.Parallel()
	b := floored(t)
	for _, x := range []struct {
		what  string
		r     book.Request
		fresh bool
		err   error
	}{
		{"a remembered withdrawal", withdrawal("L", 10), false, nil},
		{"its refund", as(book.Refund, withdrawal("L", 10)), true, nil},
		{"its deposit", as(book.Deposit, withdrawal("L", 10)), false, book.ErrBeyondHorizon},
		{"a forgotten withdrawal", withdrawal("gone", 10), false, book.ErrBeyondHorizon},
		{"the refund of a forgotten one", as(book.Refund, withdrawal("gone", 10)), false, book.ErrBeyondHorizon},
		{"a refund that was done and forgotten", as(book.Refund, withdrawal("back", 10)), false, book.ErrBeyondHorizon},
	} {
		if e, fresh, err := b.Decide(x.r, rules); !errors.Is(err, x.err) || fresh != x.fresh || x.err == nil && e.Refused != "" {
			t.Errorf("%s: got %+v, fresh %t, %v; want fresh %t, %v", x.what, e, fresh, err, x.fresh, x.err)
		}
	}
}

func recordWord(t testing.TB, b *book.Book, r book.Request, applied bool) book.Entry {
	t.Helper()
	with := rules
	with.Record = &book.Word{Applied: applied}
	return decideBy(t, b, r, with)
}

// An operator's statement about a forgotten key moves no money. Duplicates get it as their answer,
// also from an image.
func TestOperatorsStatementIsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{true, false} {
		b := floored(t)
		before, _ := b.Account(book.AccountKey{UserID: 1, AssetID: 1})
		for _, kind := range []book.Kind{book.Withdraw, book.Deposit} {
			recordWord(t, b, as(kind, withdrawal("gone", 10)), applied)
		}
		if after, _ := b.Account(book.AccountKey{UserID: 1, AssetID: 1}); after != before {
			t.Errorf("applied %t: the account went from %+v to %+v", applied, before, after)
		}
		again := check.Value(book.Read(image(t, b)))(t)
		for _, b := range []*book.Book{b, again} {
			for _, kind := range []book.Kind{book.Withdraw, book.Deposit} {
				e, fresh, err := b.Decide(as(kind, withdrawal("gone", 10)), rules)
				if err != nil || fresh || (e.Refused == "") != applied || e.Answer().Op != kind.Op() {
					t.Errorf("a duplicate, applied %t: got %+v, fresh %t, %v", applied, e.Answer(), fresh, err)
				}
				check.Err(t, "other units under the key", book.ErrContradiction)(b.Decide(as(kind, withdrawal("gone", 11)), rules))
			}
			if e := recordWord(t, b, as(book.Deposit, withdrawal("gone", 10)), !applied); (e.Refused == "") != applied {
				t.Errorf("the opposite word: got %+v, want what is stored", e)
			}
		}
	}
}

// The refund of a withdrawal stated by an operator can be forgotten itself: it is not repeated. After
// the statement that it was not applied, it is credited once.
func TestRefundAfterStatementIsAppliedOnce(t *testing.T) {
	t.Parallel()
	b := floored(t)
	recordWord(t, b, withdrawal("back", 10), true)
	refund := as(book.Refund, withdrawal("back", 10))
	check.Err(t, "the refund that was done", book.ErrBeyondHorizon)(b.Decide(refund, rules))
	before, _ := b.Account(book.AccountKey{UserID: 1, AssetID: 1})
	recordWord(t, b, refund, true)
	if after, _ := b.Account(book.AccountKey{UserID: 1, AssetID: 1}); after != before {
		t.Errorf("said to be applied: got %+v, want %+v", after, before)
	}
	gone := as(book.Refund, withdrawal("gone", 10))
	for range 2 {
		if e := recordWord(t, b, gone, false); e.Kind.Op() != transfer.Refund || e.Refused != "" {
			t.Errorf("said not to be applied: got %+v, want a refund", e)
		}
		if after, _ := b.Account(book.AccountKey{UserID: 1, AssetID: 1}); after.Units != before.Units+10 {
			t.Errorf("credited: got %d, want %d", after.Units, before.Units+10)
		}
	}
}

// A statement about a key that is not forgotten is refused.
func TestStatementAboutRememberedKeyIsRefused(t *testing.T) {
	t.Parallel()
	b := floored(t)
	with := rules
	with.Record = &book.Word{}
	young := withdrawal("unknown", 10)
	young.CreatedAt = now + 1
	for what, r := range map[string]book.Request{
		"a key as young as the floor": young, "the refund of a remembered withdrawal": as(book.Refund, withdrawal("L", 10)),
	} {
		check.Err(t, what, book.ErrNotForgotten)(b.Decide(r, with))
	}
}

// Only the request's own line with the same result proves a statement. A refund that was not applied
// has no line; its withdrawal's line proves it.
func TestOnlyTheRequestsLineProvesAStatement(t *testing.T) {
	t.Parallel()
	took, failed := book.Entry{Request: withdrawal("R", 10)}, book.Entry{Request: withdrawal("R", 10), Refused: transfer.AccountFrozen}
	refunded := book.Entry{Request: as(book.Refund, withdrawal("R", 10))}
	for _, x := range []struct {
		applied bool
		r       book.Request
		line    book.Entry
		want    bool
	}{
		{true, withdrawal("R", 10), took, true}, {false, withdrawal("R", 10), took, false},
		{false, withdrawal("R", 10), failed, true}, {true, withdrawal("R", 10), failed, false},
		{true, withdrawal("R", 11), took, false}, {true, withdrawal("S", 10), took, false}, {true, withdrawal("R", 10), book.Entry{}, false},
		{true, as(book.Deposit, withdrawal("R", 10)), took, false},
		{true, refunded.Request, refunded, true}, {false, refunded.Request, took, true}, {false, refunded.Request, failed, false}, {false, refunded.Request, refunded, false},
	} {
		check.Equal(t, fmt.Sprintf("applied %t of %+v by %s refused %q", x.applied, x.r, x.line, x.line.Refused), (book.Word{Applied: x.applied}).ProvedBy(x.r, x.line), x.want)
	}
}

// An adjustment changes either the balance or the journal's sum. It happens once for a finding, for
// the balance found, and never below zero.
func TestAdjustmentIsAppliedOnce(t *testing.T) {
	t.Parallel()
	for kind, units := range map[book.Kind]uint64{book.JournalCredit: 100, book.JournalDebit: 100, book.BalanceCredit: 107, book.BalanceDebit: 93} {
		b := stocked(t)
		with := rules
		with.Found = 99
		check.Err(t, fmt.Sprintf("%s by another balance", kind.Op()), book.ErrAccountMoved)(b.Decide(as(kind, withdrawal("finding-1", 7)), with))
		with.Found = 100
		e, fresh, err := b.Decide(as(kind, withdrawal("finding-1", 7)), with)
		if err != nil || !fresh || b.Apply(e) != nil {
			t.Fatalf("%s: got %+v, %v", kind.Op(), e, err)
		}
		again := check.Value(book.Read(image(t, b)))(t)
		if a, _ := again.Account(book.AccountKey{UserID: 1, AssetID: 1}); a.Units != units {
			t.Errorf("%s: got %d units, want %d", kind.Op(), a.Units, units)
		}
		if _, fresh, err := again.Decide(as(kind, withdrawal("finding-1", 7)), with); err != nil || fresh {
			t.Errorf("%s again: fresh %t, %v; want what is stored", kind.Op(), fresh, err)
		}
		other := book.JournalCredit + book.BalanceDebit - kind
		check.Err(t, "another adjustment of the finding", book.ErrContradiction)(again.Decide(as(other, withdrawal("finding-1", 7)), with))
	}
	b := stocked(t)
	with := rules
	with.Found = 100
	unknownUser := withdrawal("finding-1", 1)
	unknownUser.UserID = 2
	for what, r := range map[string]book.Request{
		"below zero": as(book.BalanceDebit, withdrawal("finding-1", 101)), "overflow": as(book.BalanceCredit, withdrawal("finding-1", ^uint64(0))),
		"no account": as(book.JournalCredit, unknownUser), "nothing": as(book.JournalDebit, withdrawal("finding-1", 0)),
	} {
		check.Err(t, what, book.ErrOutOfRange)(b.Decide(r, with))
		before := image(t, b)
		if err := b.Apply(book.Entry{Request: r, Seq: b.Seq() + 1, At: now}); err == nil || !bytes.Equal(before, image(t, b)) {
			t.Errorf("%s, as a line: got %v, want it refused", what, err)
		}
	}
}

// No operation moves money twice, for any forgotten keys and any true statements of an operator.
func TestNothingMovesTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := book.New()
		apply := func(r book.Request, with book.Rules) {
			if e, fresh, err := b.Decide(r, with); err == nil && fresh {
				check.OK(t)(b.Apply(e))
			}
		}
		apply(book.Request{Kind: book.AddAsset, ReqID: "a", AssetID: 1, CreatedAt: now}, rules)
		apply(book.Request{Kind: book.OutsideDeposit, ReqID: "o", UserID: 1, AssetID: 1, Units: 1000, CreatedAt: now}, rules)
		units := func() uint64 { a, _ := b.Account(book.AccountKey{UserID: 1, AssetID: 1}); return a.Units }
		moved, want := map[string]bool{}, units()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
			r := withdrawal(id, 10)
			r.CreatedAt = now + book.Micros(id[0])
			r.Kind = rapid.SampledFrom([]book.Kind{book.Withdraw, book.Deposit, book.Refund}).Draw(t, "kind")
			name := string(r.Kind.Op()) + id
			with := rules
			switch rapid.IntRange(0, 4).Draw(t, "act") {
			case 0:
				_ = b.Apply(b.FloorEntry(now+book.Micros(rapid.IntRange('a', 'e').Draw(t, "floor")), now))
				continue
			case 1:
				if r.Kind == book.Refund && !moved["withdraw"+id] {
					continue // a statement that it is owed would be false
				}
				with.Record = &book.Word{Applied: moved[name]}
			case 2:
				with.Resolve = true
			}
			apply(r, with)
			if now := units(); now != want {
				if moved[name] || with.Record != nil && r.Kind != book.Refund || r.Kind == book.Refund && !moved["withdraw"+id] {
					t.Fatalf("%s moved from %d to %d", name, want, now)
				}
				moved[name], want = true, now
			}
		}
	})
}
