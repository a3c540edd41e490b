package payroll

import (
	"strings"

	"github.com/fencepost/fencepost/shared/nonce"
)

// GiveUp begins the request ids that [Impatient] gives up. All others wait for an operator.
const GiveUp = "give-up-"

// Impatient orders a placeholder for each STUCK transaction whose request id begins with
// [GiveUp].
type Impatient struct{}

// Resolve implements [nonce.StuckResolution].
func (Impatient) Resolve(t nonce.Tx) (nonce.Order, string) {
	if strings.HasPrefix(t.RequestID, GiveUp) {
		return nonce.OrderPlaceholder, "the business gives it up"
	}
	return nonce.OrderWait, ""
}
