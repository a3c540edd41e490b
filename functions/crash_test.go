package functions_test

import (
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/crash"
)

// Functions built without crash points do not start with armed points.
func TestArmedPointsNeedTheirBuild(t *testing.T) {
	h := build(t)
	t.Setenv(crash.Variable, t.TempDir())
	says(t, "why it does not start", h.startError(functions.Extensions{}), crash.Variable, crash.Tag)
}
