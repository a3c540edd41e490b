package page_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// A field's text comes before a code's. A refusal after an attempt without an answer is no proof that nothing was changed.
func TestWaysOn(t *testing.T) {
	t.Parallel()
	ways := page.Ways{
		Fields: map[string]string{"count": "look again"}, Codes: map[string]string{"TOO_LATE": "Nothing was changed.", "INVALID_FIELD": "correct it"},
		Causes: map[string]string{"UNAVAILABLE": "A node did not answer."},
	}
	refused := func(code, field string) error {
		return fmt.Errorf("POST x: %w", &client.Problem{Status: 409, Code: code, Field: field})
	}
	after := func(code string) error {
		return fmt.Errorf("%w; of an earlier attempt %w", refused(code, "count"), client.ErrUnknown)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""}, {errors.New("x"), ""}, {refused("OTHER", ""), ""}, {refused("TOO_LATE", ""), "Nothing was changed."}, {refused("INVALID_FIELD", "count"), "look again"}, {refused("INVALID_FIELD", "reason"), "correct it"},
		{after("TOO_LATE"), page.Unknown}, {after("UNAVAILABLE"), page.Unknown + " A node did not answer."}, {client.ErrUnknown, page.Unknown},
	} {
		check.Equal(t, fmt.Sprint(c.err), ways.After(c.err), c.want)
	}
	check.Equal(t, "status of a refusal", page.StatusOf(refused("TOO_LATE", "")), 409)
	check.Equal(t, "status of another error", page.StatusOf(errors.New("x")), 502)
}
