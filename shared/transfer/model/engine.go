package model

import "slices"

// machine is a transition system that [search] can walk. S is a state in the form
// under which states count as the same, E a step.
type machine[S comparable, E any] interface {
	// start is the one initial state.
	start() S
	// next calls emit for every step that is enabled in s.
	next(s S, emit func(step E, to S))
	// wrong says what must never be so, and is so in s; "" if nothing is.
	wrong(s S) string
	// ended says that s is an end.
	ended(s S) bool
}

// forEver is what is wrong with a state from which no end can be reached.
const forEver = "no end can be reached"

// walk is what a search found.
type walk[S, E any] struct {
	wrong         string
	states, depth int
	complete      bool
	trace         []E
	last          S
}

// met is a state that was met, and how it was first reached.
type met[S, E any] struct {
	state  S
	parent int32
	depth  int
	step   E
	from   []int32 // all states that it can be reached from by one step
}

// search walks m breadth first and stops at the first state that is wrong, so that
// the trace is a shortest one, or when it has met limit states. Where it has met
// all and none is wrong, the first from which no end can be reached is.
func search[S comparable, E any](m machine[S, E], limit int) walk[S, E] {
	all := []met[S, E]{{state: m.start(), parent: -1}}
	seen := map[S]int32{m.start(): 0}
	for at := 0; at < len(all); at++ {
		if wrong := m.wrong(all[at].state); wrong != "" {
			return report(all, int32(at), wrong)
		}
		if len(all) >= limit {
			return walk[S, E]{states: len(all), depth: all[at].depth}
		}
		m.next(all[at].state, func(step E, to S) {
			i, known := seen[to]
			if !known {
				i = int32(len(all))
				seen[to] = i
				all = append(all, met[S, E]{state: to, parent: int32(at), depth: all[at].depth + 1, step: step})
			}
			all[i].from = append(all[i].from, int32(at))
		})
	}
	if i := endless(m, all); i >= 0 {
		return report(all, i, forEver)
	}
	return walk[S, E]{states: len(all), depth: all[len(all)-1].depth, complete: true}
}

// endless is the first state from which no end can be reached; -1 if there is none.
func endless[S comparable, E any](m machine[S, E], all []met[S, E]) int32 {
	ends := make([]bool, len(all))
	var open []int32
	for i := range all {
		if m.ended(all[i].state) {
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
	return int32(slices.Index(ends, false))
}

// report retraces the steps to the state at index i.
func report[S, E any](all []met[S, E], i int32, wrong string) walk[S, E] {
	w := walk[S, E]{wrong: wrong, states: len(all), depth: all[i].depth, complete: true, last: all[i].state}
	for ; all[i].parent >= 0; i = all[i].parent {
		w.trace = append(w.trace, all[i].step)
	}
	slices.Reverse(w.trace)
	return w
}
