package conservation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Line is one line of a core's journal, of any kind.
type Line struct {
	transfer.Entry
	Precision *uint8 // set if the line adds an asset
	Mark      string // a digest of the line's content
}

// Core is a ledger whose journal is ordered by line numbers, such as the trading core.
type Core interface {
	// Journal returns the lines after the given one, in order and without a gap, at most limit, and
	// the number of the last durable line. No lines means the end.
	Journal(ctx context.Context, after uint64, limit int) (lines []Line, last uint64, err error)
}

// ErrWentBack reports a journal that has lost lines which were read: it ends earlier, or has
// another line in that place.
var ErrWentBack = errors.New("the journal is not the one that was read")

// Numbered is the [Journal] of a core. Its cursor is the number and the mark of a line. That line
// is read again with the following ones, because a core that was restored from a backup reuses its
// numbers.
type Numbered struct {
	Core Core
	// Balances returns all balances exactly after one durable line, and its number.
	Balances func(ctx context.Context) (line uint64, all map[Account]Sum, err error)
}

var _ Journal = Numbered{}

// Page reads at most limit lines. Lines that move no money are not among the entries.
func (n Numbered) Page(ctx context.Context, after Cursor, limit int) (page Page, err error) {
	at, err := parsePosition(after)
	if err != nil {
		return Page{}, err
	}
	for goal, left := uint64(0), limit; ; {
		lines, last, err := n.readAfter(ctx, at, left)
		if err != nil {
			return Page{}, err
		}
		if goal == 0 {
			goal = last // the journal grows during this read; stop here
		}
		for _, line := range lines {
			at = position{line.Seq, line.Mark}
			if line.Op.Counts() {
				page.Entries = append(page.Entries, line.Entry)
			}
			if line.Precision != nil && line.Refused == "" {
				page.Scales = append(page.Scales, Scale{AssetID: line.AssetID, Precision: *line.Precision})
			}
		}
		left -= len(lines)
		if page.More = at.line < goal && len(lines) > 0; !page.More || left <= 0 {
			page.Next = at.cursor()
			return page, nil
		}
	}
}

// linesPerRequest is how many lines Point requests at once: as many as an answer holds if each has
// the maximum length.
const linesPerRequest = 5000

// Point reads the balances, and then the journal up to their line.
func (n Numbered) Point(ctx context.Context, after Cursor) (p Point, err error) {
	at, err := parsePosition(after)
	if err != nil {
		return Point{}, err
	}
	end, balances, err := n.Balances(ctx)
	if err != nil {
		return Point{}, err
	}
	if end < at.line {
		return Point{}, fmt.Errorf("it ends at line %d, and was read up to line %d: %w", end, at.line, ErrWentBack)
	}
	p.Next, p.Balances = after, balances
	for same := false; !same || at.line < end; same = true { // the last known line is compared even if no line is new
		page, err := n.Page(ctx, p.Next, int(min(linesPerRequest, end-at.line)))
		if err != nil {
			return Point{}, err
		}
		if page.Next == p.Next && at.line < end {
			return Point{}, fmt.Errorf("the journal ends at line %d, and the balances are of line %d", at.line, end)
		}
		p.Entries, p.Scales, p.Next = append(p.Entries, page.Entries...), append(p.Scales, page.Scales...), page.Next
		if at, err = parsePosition(page.Next); err != nil {
			return Point{}, err
		}
	}
	return p, nil
}

// readAfter reads the lines after a line, at most limit, if that line is unchanged. It reads both
// in one answer, so that no change can come between.
func (n Numbered) readAfter(ctx context.Context, at position, limit int) (lines []Line, last uint64, err error) {
	if at.line == 0 {
		if limit == 0 {
			return nil, 0, nil
		}
		return n.Core.Journal(ctx, 0, limit)
	}
	lines, last, err = n.Core.Journal(ctx, at.line-1, limit+1)
	if err != nil {
		return nil, 0, err
	}
	if len(lines) == 0 {
		return nil, 0, fmt.Errorf("the journal ends before line %d, which was read earlier: %w", at.line, ErrWentBack)
	}
	if is := (position{lines[0].Seq, lines[0].Mark}); is != at {
		return nil, 0, fmt.Errorf("the journal has line %s where line %s was read earlier: %w", is.cursor(), at.cursor(), ErrWentBack)
	}
	return lines[1:], last, nil
}

// position is a line that was read; the zero value is before the first.
type position struct {
	line uint64
	mark string
}

func (p position) cursor() Cursor {
	if p.line == 0 {
		return ""
	}
	return Cursor(strconv.FormatUint(p.line, 10) + ":" + p.mark)
}

func parsePosition(after Cursor) (p position, err error) {
	if after == "" {
		return p, nil
	}
	number, mark, marked := strings.Cut(string(after), ":")
	p.mark = mark
	if p.line, err = strconv.ParseUint(number, 10, 64); err != nil || p.line == 0 || !marked {
		return p, fmt.Errorf("%q is not the cursor of a journal, want a line's number and mark", string(after))
	}
	return p, nil
}
