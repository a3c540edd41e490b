package functions

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
)

// A process of one function works as long as the platform lets it; any other as long as Cloud Tasks waits. The full
// check of conservation needs half an hour.
func TestDeadlineIsTheOnlyFunctionsTimeOut(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]time.Duration{"": time.Minute, All: time.Minute, "conservation": 30 * time.Minute} {
		c := config.Config{Tasks: config.Tasks{DispatchDeadline: time.Minute}, Platform: config.Platform{FunctionTarget: target, Timeout: 30 * time.Minute}}
		check.Equal(t, "with the target "+target, deadline(c), want)
	}
	none := config.Config{Tasks: config.Tasks{DispatchDeadline: time.Minute}, Platform: config.Platform{FunctionTarget: "advance"}}
	check.Equal(t, "without a time-out", deadline(none), time.Minute)
}
