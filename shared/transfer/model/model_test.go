// Package model checks the protocol of internal transfers, and the interface between payouts and
// the transaction manager. It searches every interleaving of a few workers with crashes, lost
// answers, calls that arrive late or twice, commits without an answer, and operators.
//
// There is one transfer. A step is an atomic action of the real system: one compare-and-set, one
// call that is sent, one call that a ledger carries out, one act of an operator. A call that was
// sent stays on the wire until it is carried out, at any later time, even if its worker no longer
// waits. Time has no number: a worker can stop waiting at any moment that its budget allows, and
// the sweep drives each transfer that is not terminal.
//
// Two properties are checked. No state creates money, loses it, or refunds a payment that was
// made. And a terminal state can be reached from every state.
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
		Violation: func(s S, _ []string) string { return m.wrong(s) }, Describe: describe,
	}, maxStates)
}

// line formats a step or a state as a line of the report.
func line(format string, args ...any) string { return strings.TrimSpace(fmt.Sprintf(format, args...)) }
