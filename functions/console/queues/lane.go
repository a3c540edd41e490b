package queues

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// Numbers of squares.
const (
	laneSquares = 150 // of one page
	laneBefore  = 10  // shown before the lowest open nonce
	laneForeign = 20  // that the chain has consumed and nothing is on record of, at most
)

// lane is the nonce lane of a submitter: a square for each nonce.
type lane struct {
	Squares []square
	Failed  string // why there are none; "": they were read
	Table   bool   // the same as a table

	Here   string // this page's path and nonces
	Older  string // the path of the page before; "": there is none
	Newer  string // the path of the page after; "": there is none
	Newest string // the path without a first nonce

	First, Last uint64 // the nonces of the page
	Gaps, Lost  int    // on the page
	Unrecorded  uint64 // nonces that the chain has consumed and that were never given
	Marks       []mark
}

// mark is a number of the submitter or of the chain, which is the nonce that comes next by it.
type mark struct {
	Name  string
	Short string // under the square
	Value *uint64
}

// square is one nonce.
type square struct {
	client.LaneNonce
	drawing
	Label string // the nonce, shortened
	To    string // the page about it; "": none
	Marks []string
}

// drawing is how a state is drawn.
type drawing struct {
	Class, Letter string
	Word          string // the state, for a person
}

// drawings are how the squares are drawn, by state or by state and sub-state.
var drawings = map[string]drawing{
	"IN_FLIGHT":          {"sq-open", "A", "allocated, not signed"},
	"SUBMITTED":          {"sq-open", "S", "signed and sent"},
	"TRACKING":           {"sq-open", "T", "a node has it"},
	"TRACKING INCLUDED":  {"sq-open", "B", "in a block, not final"},
	"STUCK":              {"sq-warn", "!", "STUCK: a person must decide"},
	"PROTECT":            {"sq-bad", "P", "PROTECT: a foreign transaction has the nonce"},
	"CONFIRMED":          {"sq-ok", "✓", "confirmed"},
	"CONFIRMED RECORDED": {"sq-ok", "R", "carried out by a foreign transaction"},
	"FAILED":             {"sq-ended", "✕", "failed"},
	"FAILED REVERTED":    {"sq-ended", "✕", "reverted"},
	"FAILED PLACEHOLDER": {"sq-ended", "–", "given up: a placeholder has the nonce"},
	"FAILED DISPLACED":   {"sq-lost", "F", "displaced by a foreign transaction"},
	"LOST":               {"sq-lost", "F", "consumed by a foreign transaction"},
	"GAP":                {"sq-gap", "?", "gap: nothing is on record"},
	"UNRECORDED":         {"sq-lost", "F", "consumed on the chain, not on record"},
	"NEXT":               {"sq-next", "·", "next nonce, not given yet"},
}

// legend has the states that the legend explains, in its order.
var legend = []string{"CONFIRMED", "IN_FLIGHT", "SUBMITTED", "TRACKING", "TRACKING INCLUDED", "FAILED", "FAILED PLACEHOLDER", "STUCK", "PROTECT", "LOST", "GAP", "NEXT"}

// Legend lists the drawings with their meanings.
func (lane) Legend() (all []drawing) {
	for _, name := range legend {
		all = append(all, drawings[name])
	}
	return all
}

func drawingOf(n client.LaneNonce) drawing {
	if n.Kind != "OURS" {
		return drawings[n.Kind]
	}
	state := string(n.State)
	return cmp.Or(drawings[state+" "+n.SubState], drawings[state], drawing{"sq-gap", "?", state})
}

// laneOf draws the nonces of one page. from is the first that was asked for; nil: the newest that matter.
func laneOf(s client.Submitter, nonces part[list[client.LaneNonce]], from *uint64, table bool) lane {
	l := lane{Failed: nonces.Failed(), Table: table, Newest: lanePath(s.Submitter, nil, table), Here: lanePath(s.Submitter, from, !table)}
	rows, more := nonces.Value.Rows, nonces.Value.More
	if from == nil {
		rows, more = newestOf(rows, more)
	}
	for _, n := range rows {
		l.add(squareOf(s.Submitter, n))
	}
	l.Marks = marksOf(s)
	if len(rows) > 0 {
		l.First, l.Last = rows[0].Nonce, rows[len(rows)-1].Nonce
		if l.First > s.StartNonce {
			l.Older = lanePath(s.Submitter, new(max(l.First, laneSquares+s.StartNonce)-laneSquares), table)
		}
		if more {
			l.Newer = lanePath(s.Submitter, new(l.Last+1), table)
		}
	}
	if !more && l.Failed == "" {
		l.addComing(s)
	}
	l.putMarks()
	return l
}

// newestOf keeps the rows of one page: from a few before the lowest open nonce, or the newest.
func newestOf(rows []client.LaneNonce, more bool) ([]client.LaneNonce, bool) {
	if len(rows) <= laneSquares {
		return rows, more
	}
	open := slices.IndexFunc(rows, func(n client.LaneNonce) bool { return n.Kind != "OURS" || !n.State.Final() })
	if open < 0 {
		open = len(rows)
	}
	begin := min(max(open-laneBefore, 0), len(rows)-laneSquares)
	end := begin + laneSquares
	return rows[begin:end], more || end < len(rows)
}

func (l *lane) add(s square) {
	switch s.Kind {
	case "GAP":
		l.Gaps++
	case "LOST":
		l.Lost++
	}
	l.Squares = append(l.Squares, s)
}

// addComing adds the nonce that is given next. Before it come nonces that were never given, and that are final on the
// chain, or in a block where the chain has no finalized block.
func (l *lane) addComing(s client.Submitter) {
	next := s.NextNonce
	if n := len(l.Squares); n > 0 { // the lane may have been read later
		next = max(next, l.Squares[n-1].Nonce+1)
	}
	if used := usedOf(s.Chain); used > next {
		l.Unrecorded = used - next
		for n := next; n < min(used, next+laneForeign); n++ {
			l.add(squareOf(s.Submitter, client.LaneNonce{Nonce: n, Kind: "UNRECORDED"}))
		}
		next = used
	}
	l.add(squareOf(s.Submitter, client.LaneNonce{Nonce: next, Kind: "NEXT"}))
}

// usedOf is how many nonces the chain has surely consumed; 0: it is not known.
func usedOf(c *client.ChainAccount) uint64 {
	if c == nil || c.Finalized == nil && c.Latest == nil {
		return 0
	}
	return *cmp.Or(c.Finalized, c.Latest)
}

func squareOf(submitter string, n client.LaneNonce) square {
	s := square{LaneNonce: n, drawing: drawingOf(n), Label: labelOf(n.Nonce)}
	switch {
	case n.TxID != "":
		s.To = page.Path("tx", n.TxID)
	case n.Kind == "LOST" || n.Kind == "UNRECORDED":
		s.To = page.Path("submitter", submitter) + "/protect"
	case n.Kind == "GAP":
		s.To = page.Path("search", fmt.Sprint(submitter, " ", n.Nonce))
	}
	return s
}

// StateName is what the square's attribute data-state has.
func (s square) StateName() string {
	if s.Kind == "OURS" {
		return string(s.State)
	}
	return s.Kind
}

// Text is the square's meaning for its title and for a screen reader.
func (s square) Text() string {
	text := s.Word
	for _, more := range []string{s.Cause, s.RequestID} {
		if more != "" {
			text += " · " + more
		}
	}
	return text
}

// labelOf is the nonce in at most five characters.
func labelOf(nonce uint64) string {
	text := strconv.FormatUint(nonce, 10)
	if len(text) > 5 {
		text = "…" + text[len(text)-4:]
	}
	return text
}

// marksOf are the submitter's next nonce, and the counts of the chain.
func marksOf(s client.Submitter) []mark {
	marks := []mark{{"next nonce", "next", &s.NextNonce}}
	if c := s.Chain; c != nil {
		marks = append(marks, mark{"chain, finalized", "final", c.Finalized}, mark{"chain, latest", "latest", c.Latest}, mark{"chain, pending", "pend.", c.Pending})
	}
	return marks
}

func (l *lane) putMarks() {
	for i := range l.Squares {
		for _, m := range l.Marks {
			if m.Value != nil && *m.Value == l.Squares[i].Nonce {
				l.Squares[i].Marks = append(l.Squares[i].Marks, m.Short)
			}
		}
	}
}

func lanePath(submitter string, from *uint64, table bool) string {
	path, sign := page.Path("submitter", submitter), "?"
	if from != nil {
		path, sign = fmt.Sprint(path, "?from=", *from), "&"
	}
	if table {
		path += sign + "as=table"
	}
	return path
}
