package conservation

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Core is a ledger whose journal has one order, by its lines' numbers, as the
// trading core has.
type Core interface {
	// Journal is what follows a line, in order, at most limit entries; none: that is
	// all. Lines that move no money may be left out.
	Journal(ctx context.Context, after uint64, limit int) ([]transfer.Entry, error)
}

// ErrWentBack reports a journal that ends before what was read of it. What was
// answered is gone.
var ErrWentBack = errors.New("the journal ends before what was read of it")

// Numbered is the [Journal] of a core. Its cursor is the number of a line.
type Numbered struct {
	Core Core

	// Balances are all balances, as they stood after exactly one durable line, and
	// its number.
	Balances func(ctx context.Context) (line uint64, all map[Account]Sum, err error)
}

var _ Journal = Numbered{}

// Page reads at most limit entries.
func (n Numbered) Page(ctx context.Context, after Cursor, limit int) (Page, error) {
	line, err := n.line(after)
	if err != nil {
		return Page{}, err
	}
	entries, err := n.Core.Journal(ctx, line, limit)
	if err != nil {
		return Page{}, err
	}
	if len(entries) > 0 {
		line = entries[len(entries)-1].Seq
	}
	return Page{Entries: entries, Next: cursor(line), More: len(entries) >= limit}, nil
}

// linesAtOnce is how much of a journal Point asks for at once.
const linesAtOnce = 10_000

// Point reads the balances and then the journal up to their line. It fails with
// [ErrWentBack] where that line was passed before.
func (n Numbered) Point(ctx context.Context, after Cursor) (p Point, err error) {
	line, err := n.line(after)
	if err != nil {
		return p, err
	}
	end, balances, err := n.Balances(ctx)
	if err != nil {
		return p, err
	}
	if end < line {
		return p, fmt.Errorf("at line %d, read up to line %d: %w", end, line, ErrWentBack)
	}
	p = Point{Next: cursor(end), Balances: balances}
	for line < end {
		entries, err := n.Core.Journal(ctx, line, linesAtOnce)
		if err != nil {
			return Point{}, err
		}
		if len(entries) == 0 {
			break
		}
		line = entries[len(entries)-1].Seq
		for _, e := range entries {
			if e.Seq <= end {
				p.Entries = append(p.Entries, e)
			}
		}
	}
	return p, nil
}

func (n Numbered) line(after Cursor) (uint64, error) {
	if after == "" {
		return 0, nil
	}
	line, err := strconv.ParseUint(string(after), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no line of a journal", string(after))
	}
	return line, nil
}

func cursor(line uint64) Cursor { return Cursor(strconv.FormatUint(line, 10)) }
