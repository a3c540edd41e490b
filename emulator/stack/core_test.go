package stack

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// A stack without a binary of the core builds one. The core then recovers in a folder of its own.
func TestCoreIsBuiltAndStarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := &Stack{options: Options{}.withDefaults(), folder: t.TempDir()}
	t.Cleanup(func() { check.OK(t)(s.Close()) })
	check.OK(t)(s.startCore(ctx))
	check.Err(t, "the core", nil)(s.Core.Process().Err())
}
