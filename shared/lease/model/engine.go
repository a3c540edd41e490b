package model

import "slices"

// machine is a transition system that [search] can walk. S is a state, K the
// form under which states count as the same, E a step.
type machine[S any, K comparable, E any] interface {
	// start is the one initial state.
	start() S
	// key is equal for two states exactly when they have the same futures.
	key(s S) K
	// next calls emit for every step that is enabled in s.
	next(s S, emit func(step E, to S))
	// judge says what is wrong with s, given the steps enabled in it; Holds if
	// nothing is.
	judge(s S, enabled []E) Verdict
}

// walk is what a search found.
type walk[S, E any] struct {
	verdict  Verdict
	states   int
	depth    int
	complete bool
	trace    []E
	last     S
}

// origin says how a state was first reached: from which other, by which step.
type origin[E any] struct {
	parent int32
	step   E
}

// open is a state whose successors have not been made yet.
type open[S any] struct {
	state S
	index int32
}

// search walks m breadth first and stops at the first state that does not
// hold, so that the trace is a shortest one, or when it has met limit states.
func search[S any, K comparable, E any](m machine[S, K, E], limit int) walk[S, E] {
	first := m.start()
	seen := map[K]struct{}{m.key(first): {}}
	origins := []origin[E]{{parent: -1}}
	level := []open[S]{{state: first}}
	var enabled []E
	for depth := 0; ; depth++ {
		var below []open[S]
		for _, at := range level {
			enabled = enabled[:0]
			m.next(at.state, func(step E, to S) {
				enabled = append(enabled, step)
				if k := m.key(to); !has(seen, k) {
					seen[k] = struct{}{}
					below = append(below, open[S]{state: to, index: int32(len(origins))})
					origins = append(origins, origin[E]{parent: at.index, step: step})
				}
			})
			if v := m.judge(at.state, enabled); v != Holds {
				return walk[S, E]{verdict: v, states: len(seen), depth: depth, trace: retrace(origins, at.index), last: at.state}
			}
		}
		if len(below) == 0 || len(seen) >= limit {
			return walk[S, E]{verdict: Holds, states: len(seen), depth: depth, complete: len(below) == 0}
		}
		level = below
	}
}

func has[K comparable](set map[K]struct{}, k K) bool {
	_, ok := set[k]
	return ok
}

// retrace lists the steps from the initial state to the one at index.
func retrace[E any](origins []origin[E], index int32) []E {
	var steps []E
	for ; origins[index].parent >= 0; index = origins[index].parent {
		steps = append(steps, origins[index].step)
	}
	slices.Reverse(steps)
	return steps
}
