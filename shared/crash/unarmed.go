//go:build !crashpoints

package crash

import (
	"errors"
	"os"
)

// FromEnvironment is no points. Where [Variable] is set it is an error: whoever set it
// would wait for a crash that never comes, or take that for a test that passed.
func FromEnvironment() (Points, error) {
	if os.Getenv(Variable) != "" {
		return nil, errors.New(Variable + " is set, and this program was built without crash points: build it with -tags " + Tag + ", or unset " + Variable)
	}
	return nil, nil
}
