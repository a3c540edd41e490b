package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
)

// ErrViewGone reports that the view of that line is not kept any more, or never was.
var ErrViewGone = errors.New("no view of that line is kept")

const (
	keptViews = 4
	viewFor   = 5 * time.Minute
)

// View is all accounts, by user and asset, after exactly the line Seq.
type View struct {
	Seq      uint64
	Balances []book.Balance
	made     time.Time // zero: not sorted and kept yet
}

// After returns at most limit balances after the key, and whether there are more.
func (v *View) After(k book.AccountKey, limit int) (page []book.Balance, more bool) {
	from, found := slices.BinarySearchFunc(v.Balances, k, func(b book.Balance, k book.AccountKey) int { return compare(b.AccountKey, k) })
	if found {
		from++
	}
	to := min(from+limit, len(v.Balances))
	return v.Balances[from:to], to < len(v.Balances)
}

func compare(a, b book.AccountKey) int {
	return cmp.Or(cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.AssetID, b.AssetID))
}

// views are the views that callers may be paging through.
type views struct {
	mu   sync.Mutex
	kept []*View // oldest first
}

func (v *views) find(seq uint64, now time.Time) *View {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept = slices.DeleteFunc(v.kept, func(w *View) bool { return now.Sub(w.made) > viewFor })
	if i := slices.IndexFunc(v.kept, func(w *View) bool { return w.Seq == seq }); i >= 0 {
		return v.kept[i]
	}
	return nil
}

func (v *views) keep(view *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept = append(v.kept, view)
	if len(v.kept) > keptViews {
		v.kept = slices.Delete(v.kept, 0, len(v.kept)-keptViews)
	}
}

// query calls read on the book when all its entries are durable, and returns the result.
func query[T any](ctx context.Context, c *Core, read func(*book.Book) T) (seen T, err error) {
	got := make(chan T, 1) // the caller may have stopped waiting
	if _, err := c.ask(ctx, job{query: func(b *book.Book) { got <- read(b) }}); err != nil {
		return seen, err
	}
	return <-got, nil
}

// NewView returns a view of the last durable line. It is kept for five minutes, or until there are
// four newer ones.
func (c *Core) NewView(ctx context.Context) (*View, error) {
	v, err := query(ctx, c, func(b *book.Book) *View {
		if v := c.views.find(b.Seq(), time.Now()); v != nil {
			return v
		}
		return &View{Seq: b.Seq(), Balances: b.Accounts()}
	})
	if err != nil || !v.made.IsZero() {
		return v, err
	}
	slices.SortFunc(v.Balances, func(a, b book.Balance) int { return compare(a.AccountKey, b.AccountKey) })
	v.made = time.Now()
	c.views.keep(v)
	return v, nil
}

// ViewOf returns the kept view of that line. The error is [ErrViewGone] if there is none.
func (c *Core) ViewOf(seq uint64) (*View, error) {
	if h := c.Halted(); h != nil {
		return nil, h
	}
	if v := c.views.find(seq, time.Now()); v != nil {
		return v, nil
	}
	return nil, ErrViewGone
}

// Holding is the balance of one account after the line Seq.
type Holding struct {
	book.Account
	Exists bool
	Seq    uint64
}

// Balance returns the account's balance.
func (c *Core) Balance(ctx context.Context, k book.AccountKey) (Holding, error) {
	return query(ctx, c, func(b *book.Book) Holding {
		a, exists := b.Account(k)
		return Holding{a, exists, b.Seq()}
	})
}

// Journal passes the durable lines after the given one to take, in order and at most limit of them,
// until take returns false. It returns the number of the last durable line.
func (c *Core) Journal(after uint64, limit int, take func(book.Entry) bool) (last uint64, err error) {
	if h := c.Halted(); h != nil {
		return 0, h
	}
	last = c.wal.Last() // a line that is written from here on counts only if it is read
	err = c.wal.Read(after, limit, func(seq uint64, line []byte) error {
		e, err := book.Parse(seq, line)
		last = max(last, seq)
		if err == nil && !take(e) {
			return wal.ErrEnough
		}
		return unreadable(seq, err)
	})
	if _, damaged := errors.AsType[*wal.DamageError](err); damaged {
		c.halt(err)
		return 0, c.Halted()
	}
	return last, err
}

func unreadable(seq uint64, err error) error {
	if err == nil {
		return nil
	}
	return &wal.DamageError{File: "the log", What: fmt.Sprintf("line %d: %v", seq, err)}
}
