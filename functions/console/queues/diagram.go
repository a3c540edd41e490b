package queues

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// diagram is the picture of a transaction's states, with the path that it took.
type diagram struct {
	Nodes []node
	Edges []edge
	Path  string // the same as text
}

// node is a state.
type node struct {
	Name   string
	X, Y   int // of its left upper corner
	Class  string
	When   string // when it was entered first, hh:mm:ss in UTC; "": never
	column int
}

// edge is a change of state.
type edge struct {
	D     string // the path's data
	Class string
}

// Sizes of the picture, in its own units. The template has the size of a node too.
const (
	nodeWidth, nodeHeight = 112, 46
	columnWidth           = 152
	topRow, lowRow        = 42, 140
)

// places are where the states stand: the usual path in the upper row.
var places = []node{
	{Name: "QUEUED", column: 0, Y: topRow}, {Name: "IN_FLIGHT", column: 1, Y: topRow}, {Name: "SUBMITTED", column: 2, Y: topRow}, {Name: "TRACKING", column: 3, Y: topRow},
	{Name: "CONFIRMED", column: 4, Y: topRow}, {Name: "PROTECT", column: 1, Y: lowRow}, {Name: "STUCK", column: 2, Y: lowRow}, {Name: "FAILED", column: 4, Y: lowRow},
}

// usual are the changes that are drawn even if the transaction did not make them.
var usual = [][2]string{{"QUEUED", "IN_FLIGHT"}, {"IN_FLIGHT", "SUBMITTED"}, {"SUBMITTED", "TRACKING"}, {"TRACKING", "CONFIRMED"}}

// diagramOf draws the states of the transaction. A change within a state is no step of its path.
func diagramOf(history []client.TxChange, tx client.Tx) diagram {
	var gone [][2]string // the changes that it made, each once
	entered := make(map[string][]time.Time)
	var path []string
	for _, c := range history {
		if c.From == c.State {
			continue
		}
		if pair := [2]string{string(c.From), string(c.State)}; c.From != "" && !slices.Contains(gone, pair) {
			gone = append(gone, pair)
		}
		entered[string(c.State)] = append(entered[string(c.State)], c.At)
		path = append(path, string(c.State))
	}
	if len(path) == 0 {
		path = []string{string(tx.State)}
	}
	d := diagram{Path: strings.Join(path, " → ")}
	at := make(map[string]node)
	for _, n := range places {
		n = nodeOf(n, entered[n.Name], tx.State)
		at[n.Name] = n
		d.Nodes = append(d.Nodes, n)
	}
	for _, u := range usual {
		if !slices.Contains(gone, u) {
			d.Edges = append(d.Edges, edge{curve(at[u[0]], at[u[1]]), ""})
		}
	}
	for _, pair := range gone { // drawn over the others
		d.Edges = append(d.Edges, edge{curve(at[pair[0]], at[pair[1]]), "gone"})
	}
	return d
}

func nodeOf(n node, entered []time.Time, now client.TxState) node {
	n.X = 4 + n.column*columnWidth
	times := len(entered)
	if times > 0 {
		n.Class, n.When = "been", entered[0].UTC().Format(time.TimeOnly)
	}
	if times > 1 {
		n.When = fmt.Sprint(entered[times-1].UTC().Format(time.TimeOnly), " ×", times)
	}
	if n.Name == string(now) {
		n.Class = "now " + page.ToneOf(n.Name)
	}
	return n
}

// curve is a path from one state to another: straight to the right neighbour, else bent so that it crosses no state.
func curve(from, to node) string {
	// bend leaves the middle of from and ends at the middle of to, both moved by dx. Between them it is drawn towards y.
	bend := func(dx, begin, y, end int) string {
		x, toX := from.X+nodeWidth/2+dx, to.X+nodeWidth/2+dx
		return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, begin, x, y, toX, y, toX, end)
	}
	switch {
	case from.Y == to.Y && to.column == from.column+1 || from.Y == to.Y && from.Name == "STUCK" && to.Name == "FAILED":
		return fmt.Sprintf("M%d %dH%d", from.X+nodeWidth, from.Y+nodeHeight/2, to.X-3)
	case from.Y == to.Y && to.X > from.X: // over the states between
		return bend(0, from.Y, from.Y-44, from.Y-3)
	case from.Y == to.Y: // back, below
		low := from.Y + nodeHeight
		return bend(0, low, low+36, low+3)
	case to.Y > from.Y:
		begin, end := from.Y+nodeHeight, to.Y-3
		return bend(-10, begin, (begin+end)/2, end)
	}
	begin, end := from.Y, to.Y+nodeHeight+3
	return bend(10, begin, (begin+end)/2, end)
}
