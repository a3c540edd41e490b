//go:build !crashpoints

package crash

import (
	"errors"
	"os"
)

// FromEnvironment returns no points. It is an error if [Variable] is set: the test would wait for a
// crash that never happens, or pass without one.
func FromEnvironment() (Points, error) {
	if os.Getenv(Variable) != "" {
		return nil, errors.New(Variable + " is set, and this program was built without crash points: build it with -tags " + Tag + ", or unset " + Variable)
	}
	return nil, nil
}
