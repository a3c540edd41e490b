package core

import (
	"errors"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/wal"
)

// HaltError is the reason why a core answers no more, and advice for the operator. Every method returns
// it from then on.
type HaltError struct {
	Cause  error
	Advice string // for an operator
}

func (h *HaltError) Error() string { return "halted: " + h.Cause.Error() + "; " + h.Advice }

func (h *HaltError) Unwrap() error { return h.Cause }

// errSnapshot reports that no snapshot is complete, or none fits the log.
var errSnapshot = errors.New("the snapshots do not fit")

func advice(cause error) string {
	var damage *wal.DamageError
	switch {
	case errors.Is(cause, wal.ErrFailed):
		return "the disk refused a write: make room or replace it, then start the core again; an unanswered request is then either complete or gone"
	case errors.As(cause, &damage):
		return "do not delete anything: copy the whole folder, then bring back the file from a replica or a backup that has every line that was answered, and start the core again"
	case errors.Is(cause, errSnapshot):
		return "copy the whole folder, then bring back a snapshot from a backup, or move all snapshots away so that the core reads the whole log, and start it again"
	}
	return "copy the whole folder and find out why before the core is started again"
}

// Halted returns why the core is halted; nil: it works.
func (c *Core) Halted() *HaltError { return c.halted.Load() }

// halt halts the core, once. State in memory may not be durable, so no caller gets it any more.
func (c *Core) halt(cause error) {
	h := &HaltError{Cause: cause, Advice: advice(cause)}
	if c.halted.CompareAndSwap(nil, h) {
		c.log.Error("HALTED", "cause", cause.Error(), "advice", h.Advice, "folder", c.options.Folder)
	}
}
