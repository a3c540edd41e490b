package steps_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/check"
)

var errStep, errClose = errors.New("step"), errors.New("close")

// The first error ends the steps, and is returned with that of a deferred call. Another panic is not caught.
func TestFirstErrorEndsTheSteps(t *testing.T) {
	t.Parallel()
	done := 0
	run := func(first, closing error) (err error) {
		defer steps.Return(&err)
		defer func() { err = errors.Join(err, closing) }()
		steps.OK(first, "step ", 1)
		done += steps.Value(1, nil)
		steps.Value(1, errStep)
		done++
		return nil
	}
	if err := run(errStep, errClose); done != 0 || !errors.Is(err, errStep) || err.Error() != "step 1: step\nclose" {
		t.Errorf("an error in the first step: got %v after %d steps", err, done)
	}
	if err := run(nil, nil); done != 1 || !errors.Is(err, errStep) || err.Error() != "step" {
		t.Errorf("an error in the second step: got %v after %d steps", err, done)
	}
	assigned := func() (err error) {
		defer steps.Return(&err)
		err = errStep
		steps.OK(err, "assigned")
		return nil
	}
	check.Equal(t, "an error that the result had already", assigned().Error(), "assigned: step")
	defer func() { check.Equal(t, "the other panic", recover(), any("other")) }()
	func() (err error) {
		defer steps.Return(&err)
		panic("other")
	}()
}
