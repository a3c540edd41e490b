package book

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Errors of a request that has neither an answer nor an entry. Nothing is stored, and the result
// of an earlier attempt stays unknown.
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

// AccountKey identifies an account.
type AccountKey struct {
	UserID  int64
	AssetID int32
}

// Account is the balance and status of an account.
type Account struct {
	Units  uint64
	Status Status
}

// Balance is an account and its balance.
type Balance struct {
	AccountKey
	Account
}

// holdings are the accounts.
type holdings struct {
	accounts []Balance // oldest first
	places   map[AccountKey]int
}

// Account returns an account and whether it exists.
func (h *holdings) Account(k AccountKey) (Account, bool) {
	i, exists := h.places[k]
	if !exists {
		return Account{}, false
	}
	return h.accounts[i].Account, true
}

func (h *holdings) put(k AccountKey, a Account) {
	if i, exists := h.places[k]; exists {
		h.accounts[i].Account = a
		return
	}
	h.places[k] = len(h.accounts)
	h.accounts = append(h.accounts, Balance{k, a})
}

// Book is the state after its last entry. Make one with [New] or [Read]. Only one goroutine may
// use it.
type Book struct {
	seq    uint64
	at     Micros // of the last entry
	floor  Micros // keys created before may have been forgotten
	newest Micros // creation time of the youngest entry's request
	assets map[int32]uint8
	holdings
	answered map[key]*Entry
	past     []*Entry // the entries of answered, oldest first; no entry is ever changed
}

// New returns the book before its first entry.
func New() *Book {
	return &Book{assets: map[int32]uint8{}, holdings: holdings{places: map[AccountKey]int{}}, answered: map[key]*Entry{}}
}

// Seq is the number of the last entry; 0: none.
func (b *Book) Seq() uint64 { return b.seq }

// Newest is the creation time of the youngest request decided since the book was made; 0: none.
func (b *Book) Newest() Micros { return b.newest }

// Answered is the number of keys that the book remembers.
func (b *Book) Answered() int { return len(b.answered) }

// Apply makes e the book's last entry. It follows the entry without deciding again. An error
// means that the entry cannot follow the earlier ones, so one of them is damaged; the book is then
// unchanged.
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
	b.past = append(b.past, &e)
	b.answered[e.key()] = &e
	b.newest = max(b.newest, e.CreatedAt)
}

// effect applies the change of balances of an entry, if it has one.
func (b *Book) effect(e Entry) error {
	switch {
	case e.Kind == AddAsset && b.evaluateAsset(e.Request) == "":
		b.assets[e.AssetID] = e.Precision
		return nil
	case e.Kind.isRecorded() && e.Kind != LateRefund:
		return nil
	case e.Kind == Refund && b.refundable(e.Request) != nil:
		return b.refundable(e.Request)
	}
	k := AccountKey{e.UserID, e.AssetID}
	a, exists := b.Account(k)
	changed, ok := a.after(e, exists)
	if !ok {
		return fmt.Errorf("it was applied, which an account with %d units does not allow", a.Units)
	}
	b.put(k, changed)
	return nil
}

// after returns the account as the applied entry leaves it, and whether the entry can be applied.
func (a Account) after(e Entry, exists bool) (changed Account, ok bool) {
	switch {
	case e.Kind == SetStatus:
		a.Status, ok = e.Status, exists && e.Status != 0
	case e.Kind.isAdjustment():
		a.Units, ok = a.adjustedUnits(e.Request)
		ok = ok && exists
	case e.Kind.isDebit():
		ok = exists && a.Units >= e.Units && e.Units > 0
		a.Units -= e.Units
	case e.Kind.isCredit() || e.Kind == LateRefund:
		ok = a.Units+e.Units > a.Units
		a.Units += e.Units
		if !exists {
			a.Status = Active
		}
	}
	return a, ok
}

// refundable returns nil if the refund gives back exactly the amount of its withdrawal.
func (b *Book) refundable(r Request) error {
	taken := r
	taken.Kind = Withdraw
	before, known := b.answered[taken.key()]
	switch {
	case !known || before.Refused != "":
		return ErrNoWithdrawal
	case !before.isAnswerTo(taken):
		return ErrContradiction
	}
	return nil
}

// forget drops the keys created before the floor, oldest entries first, up to the first younger
// one. It stores the floor: an unknown key from before it gets no answer any more.
func (b *Book) forget(floor Micros) {
	b.floor = max(b.floor, floor)
	for len(b.past) > 0 && b.past[0].CreatedAt < b.floor {
		delete(b.answered, b.past[0].key())
		b.past = b.past[1:]
	}
}

// Outdated reports whether the floor would make the book forget a key.
func (b *Book) Outdated(floor Micros) bool {
	return len(b.past) > 0 && floor > b.floor && b.past[0].CreatedAt < floor
}

// FloorEntry returns the entry that makes the book forget keys created before the floor. Its floor
// is only as high as necessary: an unknown key from above it can still be decided.
func (b *Book) FloorEntry(floor, now Micros) Entry {
	needed := b.floor
	for _, e := range b.past {
		if e.CreatedAt >= floor {
			break
		}
		needed = max(needed, e.CreatedAt+1)
	}
	return b.next(Request{Kind: Floor, CreatedAt: needed}, "", now)
}

// next returns the entry for a request. Its time is never before the last entry's.
func (b *Book) next(r Request, refused transfer.Reason, now Micros) Entry {
	return Entry{Request: r, Seq: b.seq + 1, At: max(b.at, now), Refused: refused}
}

// Accounts returns a copy of all accounts, oldest first.
func (b *Book) Accounts() []Balance { return slices.Clone(b.accounts) }
