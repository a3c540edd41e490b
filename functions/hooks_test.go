package functions_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/functions"
)

// The hooks are off unless they are switched on: each says so, before it looks at
// anything else.
func TestHooksAreOffByDefault(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]bool{"by default": false, "switched on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var settings []string
			if on {
				settings = append(settings, "FENCEPOST_HOOKS_ENABLED=true")
			}
			app, err := build(t).app(settings...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = app.Close(t.Context()) })
			id := uuid.NewString()
			_, allocated := app.Allocate(t.Context(), payer, "x", "r")
			for hook, err := range map[string]error{"Allocate": allocated, "MarkUsed": app.MarkUsed(t.Context(), id, "x", nil), "MarkRecyclable": app.MarkRecyclable(t.Context(), id, "x", "r")} {
				if err == nil || errors.Is(err, functions.ErrHooksOff) == on {
					t.Errorf("%s: got %v, want that the hooks are off: %t", hook, err, !on)
				}
			}
		})
	}
}
