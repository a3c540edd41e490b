package model

import (
	"fmt"
	"strings"
)

// Report is the model's answer.
type Report struct {
	// Wrong is what was found to be wrong; "" if nothing was.
	Wrong string
	// Complete is false if the walk was ended by the limit: then nothing wrong says
	// only that nothing wrong was met so far.
	Complete bool
	// States is the number of different states met, Depth the number of steps to the
	// one that is wrong, or to the last one.
	States, Depth int
	// Trace is a shortest run to the state that is wrong, one line a step.
	Trace []string
}

// String is one line, and the trace if there is one.
func (r Report) String() string {
	text := fmt.Sprintf("%s: %d states, depth %d", r.Wrong, r.States, r.Depth)
	if r.Wrong == "" {
		text = "holds" + text
	}
	if !r.Complete {
		text += " (incomplete)"
	}
	for i, line := range r.Trace {
		text += fmt.Sprintf("\n%3d. %s", i+1, line)
	}
	return text
}

// most is how many states a walk meets before it gives up.
const most = 20_000_000

// told turns a walk into a report.
func told[S any](w walk[S, string], plight func(S) string) Report {
	r := Report{Wrong: w.wrong, Complete: w.complete, States: w.states, Depth: w.depth, Trace: w.trace}
	if w.wrong != "" {
		r.Trace = append(r.Trace, "("+plight(w.last)+")")
	}
	return r
}

// line puts a sentence together.
func line(format string, args ...any) string { return strings.TrimSpace(fmt.Sprintf(format, args...)) }
