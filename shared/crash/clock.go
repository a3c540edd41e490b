package crash

import "runtime"

// Variables of a program that is built with [Tag] on a system with [MovesClock].
const (
	// ShiftVariable is the error of the program's wall clock, as a duration. The monotonic clock stays right.
	ShiftVariable = "TIME_SHIFT"

	// SpreadVariable spreads the clocks of several processes. Of each three process ids one clock is
	// behind by this duration, one is right, and one is ahead.
	SpreadVariable = "TIME_SPREAD"
)

// MovesClock reports whether the wall clock of a program can be wrong on this system: the Go runtime reads
// it by a function that the program can replace.
const MovesClock = runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")
