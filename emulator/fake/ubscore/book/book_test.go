package book_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	now    = book.Micros(3_000_000_000_000)
	minute = book.Micros(time.Minute / time.Microsecond)
)

var rules = book.Rules{Now: now}

func decide(t check.TB, b *book.Book, r book.Request) book.Entry {
	t.Helper()
	return decideBy(t, b, r, rules)
}

// decideBy decides by the rules and applies a fresh entry.
func decideBy(t check.TB, b *book.Book, r book.Request, rules book.Rules) book.Entry {
	t.Helper()
	e, fresh, err := b.Decide(r, rules)
	if err == nil && fresh {
		err = b.Apply(e)
	}
	check.OK(t)(err)
	return e
}

func stocked(t testing.TB) *book.Book {
	b := book.New()
	decide(t, b, book.Request{Kind: book.AddAsset, ReqID: "asset", AssetID: 1, Precision: 6, CreatedAt: now})
	decide(t, b, book.Request{Kind: book.Deposit, ReqID: "opening", UserID: 1, AssetID: 1, Units: 100, CreatedAt: now})
	return b
}

func withdrawal(id string, units uint64) book.Request {
	return book.Request{Kind: book.Withdraw, ReqID: id, UserID: 1, AssetID: 1, Units: units, CreatedAt: now}
}

// A request that differs in any field from the stored one is a contradiction, even in its creation
// time.
func TestRepeatMustMatchInEveryField(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	decide(t, b, withdrawal("R", 10))
	for what, change := range map[string]func(*book.Request){
		"user": func(r *book.Request) { r.UserID++ }, "asset": func(r *book.Request) { r.AssetID++ },
		"units": func(r *book.Request) { r.Units-- }, "time": func(r *book.Request) { r.CreatedAt-- },
	} {
		r := withdrawal("R", 10)
		change(&r)
		for _, resolve := range []bool{false, true} {
			rules := rules
			rules.Resolve = resolve
			check.Err(t, fmt.Sprintf("another %s", what), book.ErrContradiction)(b.Decide(r, rules))
		}
	}
}

// A request from the future gets no answer, to the microsecond. An old one gets one as long as no key
// was forgotten.
func TestH17FutureRequestGetsNoAnswer(t *testing.T) {
	t.Parallel()
	for createdAt, want := range map[book.Micros]error{
		0: nil, now - 31*24*60*minute: nil, now: nil, now + 60*minute: nil, now + 60*minute + 1: book.ErrAhead,
	} {
		r := withdrawal("R", 10)
		r.CreatedAt = createdAt
		check.Err(t, fmt.Sprintf("created %d µs after now", createdAt-now), want)(stocked(t).Decide(r, rules))
	}
}

// An entry that cannot follow the earlier ones is refused and changes nothing. So a log with
// impossible entries is noticed.
func TestImpossibleEntryIsRefused(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	decide(t, b, withdrawal("short", 1000))
	before := image(t, b)
	possible := book.Entry{Request: withdrawal("R", 10), Seq: 4, At: now}
	for what, change := range map[string]func(*book.Entry){
		"a hole":              func(e *book.Entry) { e.Seq = 5 },
		"a line again":        func(e *book.Entry) { e.Seq = 3 },
		"a key again":         func(e *book.Entry) { e.ReqID = "short" },
		"too much taken":      func(e *book.Entry) { e.Units = 101 },
		"nothing taken":       func(e *book.Entry) { e.Units = 0 },
		"no account":          func(e *book.Entry) { e.UserID = 2 },
		"overflow":            func(e *book.Entry) { e.Kind, e.Units = book.Deposit, math.MaxUint64 },
		"nothing to refund":   func(e *book.Entry) { e.Kind = book.Refund },
		"refund of a refusal": func(e *book.Entry) { e.Kind, e.ReqID, e.Units = book.Refund, "short", 1000 },
		"another precision": func(e *book.Entry) {
			e.Request = book.Request{Kind: book.AddAsset, AssetID: 1, Precision: 7, ReqID: "R"}
		},
		"status of nobody": func(e *book.Entry) {
			e.Request = book.Request{Kind: book.SetStatus, Status: book.Frozen, UserID: 2, AssetID: 1, ReqID: "R"}
		},
	} {
		e := possible
		change(&e)
		if err := b.Apply(e); err == nil {
			t.Errorf("%s: %+v was applied", what, e)
		}
		if !bytes.Equal(before, image(t, b)) {
			t.Fatalf("%s: it changed the book", what)
		}
	}
	check.OK(t)(b.Apply(possible))
}

func image(t testing.TB, b *book.Book) []byte {
	t.Helper()
	var to bytes.Buffer
	check.OK(t)(b.Image().Write(&to))
	return to.Bytes()
}

// An image is the book at one moment, while the book continues. The book read from it decides as the
// first one did.
func TestImageStaysAsItWas(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	for range 3000 {
		decide(t, b, withdrawal("old-"+string(rune('a'+b.Seq()%26))+time.Duration(b.Seq()).String(), 0))
	}
	decide(t, b, withdrawal("R", 10))
	i := b.Image()
	decide(t, b, withdrawal("after", 20))
	decide(t, b, book.Request{Kind: book.SetStatus, Status: book.Frozen, ReqID: "s", UserID: 1, AssetID: 1, CreatedAt: now})
	if err := b.Apply(b.FloorEntry(now+1, now)); err != nil || b.Answered() != 0 {
		t.Fatalf("forget all: got %d keys, %v", b.Answered(), err)
	}
	var to bytes.Buffer
	check.OK(t)(i.Write(&to))
	got := check.Value(book.Read(to.Bytes()))(t)
	if a, _ := got.Account(book.AccountKey{UserID: 1, AssetID: 1}); a.Units != 90 || a.Status != book.Active || got.Answered() != 3003 || got.Seq() != i.Seq() {
		t.Errorf("the image: got %+v, %d keys, line %d; want 90 units, ACTIVE, 3003 keys, line %d", a, got.Answered(), got.Seq(), i.Seq())
	}
	if e, fresh, err := got.Decide(withdrawal("R", 10), rules); err != nil || fresh || e.Seq != i.Seq() {
		t.Errorf("what was answered: got %+v, fresh %v, %v; want line %d", e, fresh, err, i.Seq())
	}
	check.Err(t, "below the floor", book.ErrBeyondHorizon)(b.Decide(withdrawal("R", 10), rules))
	again := check.Value(book.Read(image(t, b)))(t)
	check.Err(t, "below the floor, from an image", book.ErrBeyondHorizon)(again.Decide(withdrawal("R", 10), rules))
}

// A floor prevents answers for forgotten keys only, to the microsecond, even if a higher floor was
// asked for.
func TestH17FloorIsOnlyAsHighAsNecessary(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	younger := withdrawal("younger", 10)
	younger.CreatedAt = now + 1
	for _, r := range []book.Request{withdrawal("R", 10), younger} {
		decide(t, b, r)
	}
	if err := b.Apply(b.FloorEntry(now-1, now)); err != nil || b.Answered() != 4 {
		t.Fatalf("a floor below all: got %d keys, %v; want 4", b.Answered(), err)
	}
	for _, floor := range []book.Micros{now + 1, now + 60*24*60*minute} {
		check.OK(t)(b.Apply(b.FloorEntry(floor, now)))
		for _, id := range []string{"R", "unknown, as old"} {
			check.Err(t, fmt.Sprintf("floor %d, %s", floor-now, id), book.ErrBeyondHorizon)(b.Decide(withdrawal(id, 10), rules))
		}
	}
	if e, _, err := b.Decide(younger, rules); b.Answered() != 0 || !errors.Is(err, book.ErrBeyondHorizon) {
		t.Errorf("the youngest, forgotten too: got %+v, %v, %d keys; want %v", e, err, b.Answered(), book.ErrBeyondHorizon)
	}
	next := withdrawal("next", 1)
	next.CreatedAt = now + 2
	if e := decide(t, b, next); e.Refused != "" {
		t.Errorf("younger than all that was forgotten: got %+v, want it applied", e)
	}
}

// An incomplete image is not read.
func TestDamagedImageIsNotRead(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	decide(t, b, withdrawal("R", 10))
	whole := image(t, b)
	for at := range whole {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x41
		for what, damaged := range map[string][]byte{"flipped": flipped, "cut": whole[:at]} {
			check.Err(t, fmt.Sprintf("%s at byte %d", what, at), book.ErrImage)(book.Read(damaged))
		}
	}
	check.Err(t, "longer", book.ErrImage)(book.Read(append(slices.Clone(whole), 0)))
}

// An entry is read from a log exactly as it was written.
func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := book.Entry{
			Request: book.Request{
				Kind: book.Kind(rapid.IntRange(1, 16).Draw(t, "kind")), Status: book.Status(rapid.IntRange(0, 3).Draw(t, "status")),
				Precision: uint8(rapid.IntRange(0, 8).Draw(t, "precision")), AssetID: rapid.Int32().Draw(t, "asset"), UserID: rapid.Int64().Draw(t, "user"),
				Units: rapid.Uint64().Draw(t, "units"), CreatedAt: book.Micros(rapid.Int64().Draw(t, "createdAt")), ReqID: rapid.StringN(0, 30, 128).Draw(t, "reqId"),
			},
			Seq: 9, At: book.Micros(rapid.Int64().Draw(t, "at")),
			Refused: rapid.SampledFrom([]transfer.Reason{"", transfer.InvalidAmount, transfer.Overflow, transfer.InsufficientBalance, transfer.ResolvedByOperator}).Draw(t, "refused"),
		}
		check.Equal(t, "entry", check.Value(book.Parse(9, e.Append(nil)))(t), e)
	})
}

// FuzzParse parses any bytes: an entry that is accepted must be written as the same bytes.
func FuzzParse(f *testing.F) {
	f.Add(book.Entry{Request: withdrawal("R", 10), Seq: 1, At: now}.Append(nil))
	f.Add(book.Entry{Request: withdrawal("R", 10), Seq: 1, At: now, Refused: transfer.AccountFrozen}.Append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := book.Parse(1, body)
		if err != nil {
			return
		}
		check.Equal(t, fmt.Sprintf("%x", body), check.Value(book.Parse(1, e.Append(nil)))(t), e)
	})
}

// FuzzRead reads any bytes as an image with a correct checksum.
func FuzzRead(f *testing.F) {
	b := stocked(f)
	whole := image(f, b)
	f.Add(whole[len("UBSIMG01") : len(whole)-4])
	f.Fuzz(func(t *testing.T, content []byte) {
		if b, err := book.Read(book.Sealed(content)); err == nil {
			_, _, _ = b.Decide(withdrawal("R", 10), rules)
			_ = b.Apply(b.FloorEntry(now, now))
		} else if !errors.Is(err, book.ErrImage) {
			t.Errorf("got %v, want %v", err, book.ErrImage)
		}
	})
}
