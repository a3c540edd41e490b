// Package crash lets a test kill or freeze a real process at a named crash point, from outside. Only
// programs that are built with [Tag] can do that. Any other program has no code for it, passes each
// point with a nil check, and does not start if [Variable] is set.
package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tag is the build tag of programs whose points can be armed: go build -tags crashpoints.
const Tag = "crashpoints"

// Variable names the environment variable with the folder of armed points. It is not a setting: only
// tests set it.
const Variable = "CRASH_POINTS"

// The actions at a point.
const (
	Kill = "kill" // SIGKILL
	Stop = "stop" // SIGSTOP, until the test sends SIGCONT
)

// Points reports each reached point to the test. A nil Points does nothing.
type Points func(point string)

// All returns every point, named by its function and the last action before it.
func All() []string {
	return []string{
		"create.received", "create.committed", "create.enqueued",
		"advance.taken", "advance.looked", "advance.signed", "advance.stored", "advance.unsent", "advance.sending", "advance.sent", "advance.released",
		"advance.version_signed", "advance.version_stored", "advance.handler_asked", "advance.handler_answered",
		"receipt.taken", "receipt.looked", "receipt.released",
		"confirm.taken", "confirm.looked", "confirm.released",
		"resubmit.taken", "resubmit.looked", "resubmit.claimed", "resubmit.sending", "resubmit.sent", "resubmit.released",
		"cancel.committed", "release.taken", "release.written", "sweep.found",
		"publish.taken", "publish.told", "publish.settled", "publish.released",
		"proposal.approved", "proposal.done",
		"reserve.taken", "reserve.written", "mark.taken", "mark.written",
		"transfer.received",
		"transfer.beginning", "transfer.begun",
		"transfer.withdraw.calling", "transfer.withdraw.called", "transfer.withdraw.recording", "transfer.withdraw.recorded",
		"transfer.advancing", "transfer.advanced",
		"transfer.deposit.calling", "transfer.deposit.called", "transfer.deposit.recording", "transfer.deposit.recorded",
		"transfer.refund.calling", "transfer.refund.called", "transfer.refund.recording", "transfer.refund.recorded",
		"transfer.driven", "transfer.enqueued", "transfer.swept",
		"account.ordered", "account.called",
		"payout.posting", "payout.posted", "payout.woken", "payout.cancelling", "payout.cancelled",
		"ubscore.received", "ubscore.applied", "ubscore.appended", "ubscore.synced",
	}
}

// Of returns the points whose names begin with the text.
func Of(prefix string) []string {
	return slices.DeleteFunc(All(), func(point string) bool { return !strings.HasPrefix(point, prefix) })
}

// At reports that the point is reached.
func (p Points) At(point string) {
	if p != nil {
		p(point)
	}
}

// Arm makes the process that reaches the point the hit-th time carry out the action once. All processes
// with this folder count together.
func Arm(folder, point string, hit int, action string) error {
	for n := range hit {
		if err := os.WriteFile(file(folder, point, n), []byte(action), 0o600); err != nil {
			return fmt.Errorf("arm %s: %w", point, err)
		}
	}
	return nil
}

// Hit reports whether the point was armed and has triggered.
func Hit(folder, point string) bool {
	_, err := os.Stat(file(folder, point, 0))
	return os.IsNotExist(err)
}

func file(folder, point string, left int) string {
	return filepath.Join(folder, fmt.Sprintf("%s.%d", point, left))
}
