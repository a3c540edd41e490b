// Package modelcheck explores every reachable state of a small transition system, breadth
// first. The models of the lease, of reservations, of transfers and of payouts use it. It
// finds a shortest run to a state that violates a rule, or to a state from which no terminal
// state can be reached.
package modelcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Machine is a transition system. S is a state, K the form under which states count as the
// same, and E a step.
type Machine[S any, K comparable, E any] struct {
	// Start is the initial state.
	Start S
	// Key is equal for two states exactly when they have the same futures.
	Key func(S) K
	// Next calls emit for every step that is possible in s, with the state after it.
	Next func(s S, emit func(step E, to S))
	// Violation names the rule that s violates, given the steps that are possible in it; ""
	// if it violates none.
	Violation func(s S, possible []E) string
	// Terminal reports whether s is an end. Nil: states without an end are not looked for.
	Terminal func(S) bool
	// Describe puts the violating state into words. Nil: as package fmt prints it.
	Describe func(S) string
}

// NoEnd is the violation of a state from which no terminal state can be reached.
const NoEnd = "no end can be reached"

// Report is what a search found.
type Report struct {
	Violation string   // "" if there was none
	Complete  bool     // false: the search stopped at its limit and found nothing until then
	States    int      // different states met
	Depth     int      // steps to the violating state, or to the last one met
	Trace     []string // a shortest run to the violating state: one line a step, and the state
}

// node is a state that was met: the step by which it was first reached, from which state,
// and all states from which one step leads to it.
type node[E any] struct {
	step         E
	parent       int32
	depth        int32
	predecessors []int32
}

// search is one exploration.
type search[S any, K comparable, E any] struct {
	m     Machine[S, K, E]
	nodes []node[E]
	index map[K]int32 // of each state's node
}

// Search explores m and stops at the first violation. Without one it stops when it has met
// limit states. When it has met all states, it looks for one without a reachable end.
func Search[S any, K comparable, E any](m Machine[S, K, E], limit int) Report {
	x := search[S, K, E]{m, []node[E]{{parent: -1}}, map[K]int32{m.Key(m.Start): 0}}
	open := []S{m.Start} // the states of the nodes from at on
	var terminal []int32
	for at := int32(0); len(open) > 0; at++ {
		if len(x.nodes) >= limit {
			return Report{States: len(x.nodes), Depth: int(x.nodes[at].depth)}
		}
		s := open[0]
		possible, met := x.expand(at, s)
		open = append(open[1:], met...)
		if v := m.Violation(s, possible); v != "" {
			return x.violated(at, v)
		}
		if m.Terminal != nil && m.Terminal(s) {
			terminal = append(terminal, at)
		}
	}
	if m.Terminal != nil {
		if i := x.endless(terminal); i >= 0 {
			return x.violated(i, NoEnd)
		}
	}
	return Report{Complete: true, States: len(x.nodes), Depth: int(x.nodes[len(x.nodes)-1].depth)}
}

// expand takes every step that is possible in s, the state of node at. met are the states
// that were not met before.
func (x *search[S, K, E]) expand(at int32, s S) (possible []E, met []S) {
	x.m.Next(s, func(step E, to S) {
		possible = append(possible, step)
		k := x.m.Key(to)
		i, known := x.index[k]
		if !known {
			i = int32(len(x.nodes))
			x.index[k] = i
			x.nodes = append(x.nodes, node[E]{step: step, parent: at, depth: x.nodes[at].depth + 1})
			met = append(met, to)
		}
		if x.m.Terminal != nil {
			x.nodes[i].predecessors = append(x.nodes[i].predecessors, at)
		}
	})
	return possible, met
}

// endless is the first node from which no terminal node can be reached, or -1.
func (x *search[S, K, E]) endless(terminal []int32) int32 {
	ends := make([]bool, len(x.nodes))
	for _, i := range terminal {
		ends[i] = true
	}
	for open := terminal; len(open) > 0; {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		for _, before := range x.nodes[i].predecessors {
			if !ends[before] {
				ends[before] = true
				open = append(open, before)
			}
		}
	}
	return int32(slices.Index(ends, false))
}

// violated is the result for a violation at node i. Its trace is replayed for the state to
// which it leads.
func (x *search[S, K, E]) violated(i int32, violation string) Report {
	r, last := Report{Violation: violation, Complete: true, States: len(x.nodes), Depth: int(x.nodes[i].depth)}, x.m.Start
	var path []int32
	for ; x.nodes[i].parent >= 0; i = x.nodes[i].parent {
		path = append(path, i)
	}
	slices.Reverse(path)
	for _, i := range path {
		r.Trace = append(r.Trace, fmt.Sprint(x.nodes[i].step))
		from, reached := last, false
		x.m.Next(from, func(_ E, to S) {
			if !reached && x.index[x.m.Key(to)] == i {
				last, reached = to, true
			}
		})
	}
	state := fmt.Sprint(last)
	if x.m.Describe != nil {
		state = x.m.Describe(last)
	}
	r.Trace = append(r.Trace, "("+state+")")
	return r
}

// String is one line, and the trace if there is one.
func (r Report) String() string {
	text := r.Violation
	if text == "" {
		text = "holds"
	}
	text += fmt.Sprintf(": %d states, depth %d", r.States, r.Depth)
	if !r.Complete {
		text += " (incomplete)"
	}
	for i, line := range r.Trace {
		text += fmt.Sprintf("\n%3d. %s", i+1, line)
	}
	return text
}

// RequireHolds requires a complete search without a violation.
func (r Report) RequireHolds(t testing.TB) {
	t.Helper()
	t.Log(r)
	if r.Violation != "" || !r.Complete {
		t.Errorf("got %q, complete %t, want no violation, complete", r.Violation, r.Complete)
	}
}

// RequireViolation requires that the run ends in want, and has the given events in that order.
func (r Report) RequireViolation(t testing.TB, want string, events ...string) {
	t.Helper()
	t.Log(r)
	if r.Violation != want {
		t.Errorf("without the rule: got %q, want %q", r.Violation, want)
	}
	rest := strings.Join(r.Trace, "\n")
	for _, e := range events {
		_, after, ok := strings.Cut(rest, e)
		if !ok {
			t.Errorf("trace: got no %q where it should be, want it in\n%s", e, r)
			break
		}
		rest = after
	}
}
