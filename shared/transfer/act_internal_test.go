package transfer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// A status keeps its key for a day, and has a time within the core's horizon however long it is open.
func TestStatusCall(t *testing.T) {
	t.Parallel()
	ordered := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		age  time.Duration
		key  string
		ok   bool
	}{
		{"at once", 0, "status-7-1767323045000", true},
		{"the same day", 23 * time.Hour, "status-7-1767323045000", true},
		{"while a call with the last key may be under way", 24*time.Hour + 59*time.Minute, "status-7-1767409445000", false},
		{"the next day", 26 * time.Hour, "status-7-1767409445000", true},
		{"after 40 days", 40*24*time.Hour + 2*time.Hour, "status-7-1770779045000", true},
	} {
		call, ok := Act{ID: 7, At: ordered, Age: c.age}.statusCall()
		if ok != c.ok || call.ReqID != c.key || ordered.Add(c.age).Sub(call.CreatedAt) >= keyLasts {
			t.Errorf("%s: got %s of %v, %t; want %s, %t, and a time of the last day", c.name, call.ReqID, call.CreatedAt, ok, c.key, c.ok)
		}
	}
	earlier, _ := Act{ID: 7, At: ordered.Add(-time.Hour)}.statusCall()
	check.Equal(t, "another act of the number", earlier.ReqID, "status-7-1767319445000")
}

// An act is repeated each minute, but a status whose account does not exist less and less often, up to a bound.
func TestNextWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unknown string
		age     time.Duration
		want    time.Duration
	}{
		{noAccountYet, time.Minute, time.Minute}, {noAccountYet, 40 * time.Minute, 5 * time.Minute}, {noAccountYet, 300 * time.Hour, 10 * time.Minute},
		{betweenKeys, 300 * time.Hour, time.Minute}, {"no answer", 300 * time.Hour, time.Minute},
	} {
		check.Equal(t, c.unknown+" after "+c.age.String(), Act{Age: c.age}.nextWait(c.unknown), c.want)
	}
}

// readActs has one open act that the core has forgotten, and keeps how far its journal was read.
type readActs struct {
	ActStore
	act Act
}

func (s *readActs) ActOf(context.Context, MoneyOrder) (Act, error) { return s.act, nil }

func (s *readActs) KeepJournalRead(_ context.Context, _ int64, upto uint64) error {
	s.act.JournalRead = upto
	return nil
}

func (slowJournal) Forgot(string) bool { return true }

func (slowJournal) Objection(Outcome) error { return ErrForgotten }

func (slowJournal) OutsideDeposit(context.Context, Call) Outcome { return Outcome{} }

func (slowJournal) OutsideWithdrawal(context.Context, Call) Outcome { return Outcome{} }

// A call reads on where the last call for the same act has ended, and nowhere else.
func TestJournalIsReadOnByTheStoredLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newSlowJournal()
		of := &readActs{act: Act{ID: 1, Kind: ActDeposit, Ledger: Spot, RequestID: "wire-1"}}
		a := &Accounts{Core: core, Store: of, Ledgers: map[AccountType]OutsideLedger{Spot: core}, Timeout: time.Second}
		order := MoneyOrder{Kind: ActDeposit, RequestID: "wire-1", NotApplied: true}
		for _, upto := range []uint64{4, 8} {
			check.Err(t, "a part", UnreadError{upto, 9})(a.EndingOf(t.Context(), order))
			check.Equal(t, "kept", of.act.JournalRead, upto)
		}
		end := check.Value(a.EndingOf(t.Context(), order))(t)
		check.Equal(t, "the end", end, Ending{Answer: ActNotApplied, ReadAfter: 8, ReadUpto: 9})
	})
}

// slowJournal is a core whose journal gives two of its lines in five seconds.
type slowJournal struct {
	CoreLedger
	lines []Entry
}

// newSlowJournal has nine withdrawals under one id.
func newSlowJournal() (j slowJournal) {
	for seq := range uint64(9) {
		j.lines = append(j.lines, Entry{Seq: seq + 1, Op: OutsideWithdrawal, ReqID: "wire-1"})
	}
	return j
}

func (j slowJournal) Entries(ctx context.Context, after uint64) (page []Entry, last uint64, err error) {
	select {
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-time.After(5 * time.Second):
		from := min(int(after), len(j.lines))
		return j.lines[from:min(from+2, len(j.lines))], uint64(len(j.lines)), nil
	}
}

// A journal that cannot be read in time is read in parts. Only its end proves that an act is not in it.
func TestJournalIsReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newSlowJournal()
		a, order := &Accounts{Core: core}, MoneyOrder{Kind: ActDeposit, RequestID: "wire-1"}
		from := uint64(0)
		for _, upto := range []uint64{4, 8} {
			_, err := a.readJournal(t.Context(), order, from)
			check.Err(t, "a part", UnreadError{upto, 9})(0, err)
			check.Err(t, "a part proves nothing", ErrEvidence)(0, err)
			from = upto
		}
		end := check.Value(a.readJournal(t.Context(), order, from))(t)
		check.Equal(t, "the end", end, Ending{Answer: ActNotApplied, ReadAfter: 8, ReadUpto: 9})
		core.lines[8].Op = OutsideDeposit
		check.Err(t, "with the act", InJournalError{9})(a.readJournal(t.Context(), order, from))
		check.Err(t, "behind the end", ErrEvidence)(a.readJournal(t.Context(), order, 10))
	})
}
