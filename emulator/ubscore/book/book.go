package book

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Why a request has neither an answer nor an entry: nothing is stored, and
// whoever asked knows no more than before.
var (
	ErrContradiction  = errors.New("other fields are stored under this key")
	ErrBeyondHorizon  = errors.New("created so long ago that the key may have been forgotten")
	ErrNotForgotten   = errors.New("the key was not forgotten: the operation itself, or its resolve, is answered")
	ErrAccountMoved   = errors.New("the account does not hold what was found")
	ErrOutOfRange     = errors.New("the balance would be below zero or above 2^64-1, or there is no account")
	ErrAhead          = errors.New("created in the future")
	ErrNoWithdrawal   = errors.New("no withdrawal was applied that this would refund")
	ErrRefundOverflow = errors.New("the account cannot hold the refund")
	ErrNothingStored  = errors.New("a refund cannot be refused")
)

// AccountKey names an account.
type AccountKey struct {
	UserID  int64
	AssetID int32
}

// Account is what an account holds.
type Account struct {
	Units  uint64
	Status Status
}

// Book is the state after its last entry. Make one with [New] or [Read]; it is
// for one goroutine.
type Book struct {
	seq      uint64
	at       Micros // of the last entry
	floor    Micros // keys created before may have been forgotten
	newest   Micros // when the youngest of the entries was created
	assets   map[int32]uint8
	accounts holdings
	answered map[key]*Entry
	past     past // the entries of answered, in their order
}

// New is the book before its first entry.
func New() *Book {
	return &Book{assets: map[int32]uint8{}, accounts: newHoldings(), answered: map[key]*Entry{}}
}

// Seq is the number of the last entry; 0: there is none.
func (b *Book) Seq() uint64 { return b.seq }

// Newest is when the youngest request was created that was decided since the book
// was made; 0: there is none.
func (b *Book) Newest() Micros { return b.newest }

// Answered is how many keys the book remembers.
func (b *Book) Answered() int { return len(b.answered) }

// Account is an account, and whether there is one.
func (b *Book) Account(k AccountKey) (Account, bool) {
	return b.accounts.get(k)
}

// Apply makes the entry the book's last. It follows what the entry says, without
// deciding anew. An error says that the entry cannot follow the ones before: it
// is damaged, or they are; the book is as it was.
func (b *Book) Apply(e Entry) error {
	if e.Seq != b.seq+1 {
		return fmt.Errorf("%s cannot follow line %d", e, b.seq)
	}
	if e.Kind == Floor {
		b.forget(e.CreatedAt)
		b.seq, b.at = e.Seq, e.At
		return nil
	}
	if before, known := b.answered[e.key()]; known {
		return fmt.Errorf("%s has the key of %s", e, before)
	}
	if e.Refused == "" {
		if err := b.effect(e); err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
	}
	b.remember(e)
	b.seq, b.at = e.Seq, e.At
	return nil
}

func (b *Book) remember(e Entry) {
	b.answered[e.key()] = b.past.push(e)
	b.newest = max(b.newest, e.CreatedAt)
}

// effect changes what an applied entry changes, or nothing.
func (b *Book) effect(e Entry) error {
	k := AccountKey{e.UserID, e.AssetID}
	a, exists := b.accounts.get(k)
	switch {
	case e.Kind == AddAsset && b.judgeAsset(e.Request) == "":
		b.assets[e.AssetID] = e.Precision
		return nil
	case e.Kind == SetStatus && exists && e.Status != 0:
		a.Status = e.Status
	case e.Kind.recorded() && e.Kind != LateRefund:
		return nil
	case e.Kind.adjusts():
		adjusted, ok := a.adjusted(e.Request)
		if !exists || !ok {
			return fmt.Errorf("an adjustment that an account with %d units does not allow", a.Units)
		}
		a.Units = adjusted
	case e.Kind.takes() && exists && a.Units >= e.Units && e.Units > 0:
		a.Units -= e.Units
	case e.Kind == Refund && b.refundable(e.Request) != nil:
		return b.refundable(e.Request)
	case (e.Kind.credits() || e.Kind == LateRefund) && a.Units+e.Units > a.Units:
		a.Units += e.Units
		if !exists {
			a.Status = Active
		}
	default:
		return fmt.Errorf("it was applied, which an account with %d units does not allow", a.Units)
	}
	b.accounts.put(k, a)
	return nil
}

// refundable is nil if the refund gives back exactly what a withdrawal took.
func (b *Book) refundable(r Request) error {
	taken := r
	taken.Kind = Withdraw
	before, known := b.answered[taken.key()]
	switch {
	case !known || before.Refused != "":
		return ErrNoWithdrawal
	case !before.answers(taken):
		return ErrContradiction
	}
	return nil
}

// forget drops the keys created before the floor, the oldest entries first, as
// far as they lie before every younger one; and remembers the floor, under which
// no unknown key is answered any more.
func (b *Book) forget(floor Micros) {
	b.floor = max(b.floor, floor)
	for e := b.past.front(); e != nil && e.CreatedAt < b.floor; e = b.past.front() {
		delete(b.answered, e.key())
		b.past.pop()
	}
}

// Outdated says whether a floor would make the book forget something.
func (b *Book) Outdated(floor Micros) bool {
	e := b.past.front()
	return e != nil && floor > b.floor && e.CreatedAt < floor
}

// FloorEntry is the entry that makes the book forget what was created before the
// floor. Its own floor is no higher than that needs: what was never there to be
// forgotten can still be answered.
func (b *Book) FloorEntry(floor, now Micros) Entry {
	needed := b.floor
	_ = b.past.each(func(e *Entry) error {
		if e.CreatedAt >= floor {
			return errReached
		}
		needed = max(needed, e.CreatedAt+1)
		return nil
	})
	return b.next(Request{Kind: Floor, CreatedAt: needed}, "", now)
}

var errReached = errors.New("the floor is reached")

// next is the entry for a request. Its time never runs back, whatever the clock.
func (b *Book) next(r Request, refused transfer.Reason, now Micros) Entry {
	return Entry{Request: r, Seq: b.seq + 1, At: max(b.at, now), Refused: refused}
}

// Accounts are all accounts as they are now, whatever becomes of the book.
func (b *Book) Accounts() Accounts { return b.accounts.share() }
