package model

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// machine is what [explore] needs of a protocol.
type machine[S any] interface {
	start() S
	next(s S, emit func(step string, to S))
	wrong(s S) string
	ended(s S) bool
}

// maxStates is how many states a search meets before it gives up.
const maxStates = 20_000_000

// explore reports the first state of m that is wrong; describe puts it into words.
func explore[S comparable](m machine[S], describe func(S) string) modelcheck.Report {
	return modelcheck.Search(modelcheck.Machine[S, S, string]{
		Start: m.start(), Key: func(s S) S { return s }, Next: m.next, Terminal: m.ended,
		Violation: func(s S, _ []string) string { return m.wrong(s) },
	}, maxStates).Report(describe)
}

// line puts a sentence together.
func line(format string, args ...any) string { return strings.TrimSpace(fmt.Sprintf(format, args...)) }
