package model

import (
	"fmt"
	"slices"
)

// Report is what a walk found.
type Report struct {
	Wrong    string   // what must never be, and was met; "" if nothing was
	Complete bool     // every state within the budget was met
	States   int      // different ones
	Trace    []string // a shortest run to the state that is wrong
}

// String is one line, and the trace if there is one.
func (r Report) String() string {
	text := fmt.Sprintf("%q, complete %t, %d states", r.Wrong, r.Complete, r.States)
	for i, line := range r.Trace {
		text += fmt.Sprintf("\n%3d. %s", i+1, line)
	}
	return text
}

// forEver is what is wrong with a state from which no end can be reached.
const forEver = "no end can be reached"

// most is how many states a walk meets before it gives up.
const most = 10_000_000

// met is a state that was met, how it was first reached, and from where it can be.
type met struct {
	state  state
	parent int32
	step   string
	from   []int32
}

// search walks breadth first from start, and stops at the first state that is wrong;
// where none is, at the first from which no end can be reached.
func search(start state, next func(state, func(string, state))) Report {
	all := []met{{state: start, parent: -1}}
	seen := map[state]int32{start: 0}
	for at := 0; at < len(all); at++ {
		if wrong := all[at].state.wrong(); wrong != "" {
			return told(all, at, wrong)
		}
		if len(all) >= most {
			return Report{States: len(all)}
		}
		next(all[at].state, func(step string, to state) {
			i, known := seen[to]
			if !known {
				i = int32(len(all))
				seen[to] = i
				all = append(all, met{state: to, parent: int32(at), step: step})
			}
			all[i].from = append(all[i].from, int32(at))
		})
	}
	if i := endless(all); i >= 0 {
		return told(all, i, forEver)
	}
	return Report{Complete: true, States: len(all)}
}

// endless is the first state from which no end can be reached; -1 if there is none.
func endless(all []met) int {
	ends := make([]bool, len(all))
	var open []int32
	for i := range all {
		if all[i].state.ended() {
			ends[i] = true
			open = append(open, int32(i))
		}
	}
	for len(open) > 0 {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		for _, before := range all[i].from {
			if !ends[before] {
				ends[before] = true
				open = append(open, before)
			}
		}
	}
	return slices.Index(ends, false)
}

// told retraces the steps to the state at index i.
func told(all []met, i int, wrong string) Report {
	r := Report{Wrong: wrong, Complete: true, States: len(all)}
	for at := int32(i); all[at].parent >= 0; at = all[at].parent {
		r.Trace = append(r.Trace, all[at].step)
	}
	slices.Reverse(r.Trace)
	return r
}
