package stack

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// A stack without a binary of the core builds one. The log of the core is in another folder than the binary.
func TestCoreIsBuiltAndStarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := &Stack{options: Options{}.withDefaults(), folder: t.TempDir()}
	t.Cleanup(func() { check.OK(t)(s.Close()) })
	check.OK(t)(s.startCore(ctx))
	check.Err(t, "the core", nil)(s.Core.Process().Err())
}
