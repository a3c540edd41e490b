package payroll

import (
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// GiveUp is the prefix of the request ids that [Impatient] gives up. All others wait for an operator.
const GiveUp = "give-up-"

// Impatient requests a placeholder for each STUCK transaction whose request id begins with [GiveUp].
type Impatient struct{}

// Resolve implements [txmanager.StuckResolution].
func (Impatient) Resolve(t txmanager.Tx) (txmanager.Action, string) {
	if strings.HasPrefix(t.RequestID, GiveUp) {
		return txmanager.ActionPlaceholder, "the business gives it up"
	}
	return txmanager.ActionWait, ""
}
