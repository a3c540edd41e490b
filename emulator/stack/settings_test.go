package stack

import (
	"maps"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A shell that has the variables of the program fencepost can start the emulator.
func TestVariablesOfTheCommandLineAreNoSettings(t *testing.T) {
	t.Parallel()
	s := Settings{}
	s.AddEnvironment([]string{"FENCEPOST_API=http://a", "FENCEPOST_TOKEN=t", "FENCEPOST_OPERATOR_TOKEN=t", "FENCEPOST_USER_TOKEN=t", "FENCEPOST_TOKEN_FILE=f",
		"FENCEPOST_USER_TOKEN_FILE=f", "FENCEPOST_AUDIENCE=a", "FENCEPOST_IMPERSONATE=a", "FENCEPOST_WEBHOOK_SECRET=s",
		"FENCEPOST_LOG_LEVEL=debug", "FENCEPOST_TOKENS=misspelt", "HOME=/"})
	check.Same(t, "settings", slices.Sorted(maps.Keys(s)), []string{"FENCEPOST_LOG_LEVEL", "FENCEPOST_TOKENS"})
}
