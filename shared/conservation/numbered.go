package conservation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Line is one line of a core's journal, whatever it is about.
type Line struct {
	transfer.Entry
	Precision *uint8 // of the asset that the line makes known; else nil
	Mark      string // of all that the line says: no other line has it
}

// Core is a ledger whose journal has one order, by its lines' numbers, as the
// trading core has.
type Core interface {
	// Journal is what follows a line: every line, in order and without a hole, at most
	// limit; and the number of the last that is durable. None: that is all.
	Journal(ctx context.Context, after uint64, limit int) (lines []Line, last uint64, err error)
}

// ErrWentBack reports a journal in which what was read of it is not there any more:
// it ends before, or has another line in that place. What was answered is gone.
var ErrWentBack = errors.New("the journal is not the one that was read")

// Numbered is the [Journal] of a core. Its cursor is the number and the mark of a line,
// which is read again with all that follows it: numbers alone come again in a core that
// was brought back from a backup.
type Numbered struct {
	Core Core
	// Balances are all balances, as they stood after exactly one durable line, and
	// its number.
	Balances func(ctx context.Context) (line uint64, all map[Account]Sum, err error)
}

var _ Journal = Numbered{}

// Page reads at most limit lines, of which those that move no money are no entries.
func (n Numbered) Page(ctx context.Context, after Cursor, limit int) (page Page, err error) {
	at, err := parsePlace(after)
	if err != nil {
		return Page{}, err
	}
	for goal, left := uint64(0), limit; left > 0; {
		lines, last, err := n.follow(ctx, at, left)
		if err != nil {
			return Page{}, err
		}
		if goal == 0 {
			goal = last // and no farther: it grows while this reads
		}
		page.Entries, page.Scales = take(page.Entries, page.Scales, lines)
		at, left = at.behind(lines), left-len(lines)
		page.More = at.line < goal && len(lines) > 0
		if !page.More {
			break
		}
	}
	page.Next = at.cursor()
	return page, nil
}

// linesAtOnce is how much of a journal Point asks for at once: as much as an answer
// holds if every line is as long as a line can be.
const linesAtOnce = 5000

// Point reads the balances and then the journal up to their line.
func (n Numbered) Point(ctx context.Context, after Cursor) (p Point, err error) {
	at, err := parsePlace(after)
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
	for same := false; !same || at.line < end; same = true { // what was read is looked at even if nothing is new
		lines, _, err := n.follow(ctx, at, int(min(linesAtOnce, end-at.line)))
		if err != nil {
			return Point{}, err
		}
		if len(lines) == 0 && at.line < end {
			return Point{}, fmt.Errorf("the journal ends at line %d, and the balances are of line %d", at.line, end)
		}
		p.Entries, p.Scales = take(p.Entries, p.Scales, lines)
		at = at.behind(lines)
	}
	p.Next, p.Balances = at.cursor(), balances
	return p, nil
}

// follow reads what follows a line, at most limit, if that line is still there: in one
// answer, so that nothing comes between.
func (n Numbered) follow(ctx context.Context, at place, limit int) (lines []Line, last uint64, err error) {
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
		return nil, 0, fmt.Errorf("it ends before line %d, which was read: %w", at.line, ErrWentBack)
	}
	if is := (place{lines[0].Seq, lines[0].Mark}); is != at {
		return nil, 0, fmt.Errorf("it has line %s where %s was read: %w", is.cursor(), at.cursor(), ErrWentBack)
	}
	return lines[1:], last, nil
}

// take adds what lines say to entries and scales.
func take(entries []transfer.Entry, scales []Scale, lines []Line) ([]transfer.Entry, []Scale) {
	for _, line := range lines {
		if line.Op.Counts() {
			entries = append(entries, line.Entry)
		}
		if line.Precision != nil && line.Refused == "" {
			scales = append(scales, Scale{AssetID: line.AssetID, Precision: *line.Precision})
		}
	}
	return entries, scales
}

// place is a line that was read; the zero value is before the first.
type place struct {
	line uint64
	mark string
}

// behind is the place once lines were read, too.
func (p place) behind(lines []Line) place {
	if len(lines) == 0 {
		return p
	}
	last := lines[len(lines)-1]
	return place{last.Seq, last.Mark}
}

func (p place) cursor() Cursor {
	if p.line == 0 {
		return ""
	}
	return Cursor(strconv.FormatUint(p.line, 10) + ":" + p.mark)
}

func parsePlace(after Cursor) (p place, err error) {
	if after == "" {
		return p, nil
	}
	number, mark, marked := strings.Cut(string(after), ":")
	p.mark = mark
	if p.line, err = strconv.ParseUint(number, 10, 64); err != nil || p.line == 0 || !marked {
		return p, fmt.Errorf("%q is no line of a journal", string(after))
	}
	return p, nil
}
