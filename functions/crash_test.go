package functions_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/crash"
)

// Functions built without crash points do not start with armed points.
func TestArmedPointsNeedTheirBuild(t *testing.T) {
	h := build(t)
	t.Setenv(crash.Variable, t.TempDir())
	if app, err := h.app(); err == nil || !strings.Contains(err.Error(), crash.Variable) || !strings.Contains(err.Error(), crash.Tag) {
		t.Errorf("got %v, %v; want it not to start, and why", app, err)
	}
}
