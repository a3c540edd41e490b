package model

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// machine is a protocol as [explore] searches it.
type machine[S any] interface {
	start() S
	next(s S, emit func(step string, to S))
	wrong(s S) string
	ended(s S) bool
}

// maxStates bounds the states of a search.
const maxStates = 20_000_000

// explore reports the first state of m that violates a property; describe formats it.
func explore[S comparable](m machine[S], describe func(S) string) modelcheck.Report {
	return modelcheck.Search(modelcheck.Machine[S, S, string]{
		Start: m.start(), Key: func(s S) S { return s }, Next: m.next, Terminal: m.ended,
		Violation: func(s S, _ []string) string { return m.wrong(s) },
	}, maxStates).Report(describe)
}

// line formats a step or a state as a line of the report.
func line(format string, args ...any) string { return strings.TrimSpace(fmt.Sprintf(format, args...)) }
