package worker

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// outline summarises an allocation plan.
func outline(p rules.AllocationPlan) string {
	var parts []string
	for _, a := range p.Allocations {
		parts = append(parts, fmt.Sprintf("%s=%d", a.Tx.ID, a.Nonce))
	}
	for _, m := range p.Transitions {
		what := "waits"
		switch {
		case m.To.State == txmanager.Failed && m.To.Sub == txmanager.Rejected:
			what = "rejected"
		case m.To.DeferredUntilNonce != nil:
			what = fmt.Sprintf("aside until %d", *m.To.DeferredUntilNonce)
		}
		parts = append(parts, m.To.ID+" "+what)
	}
	return strings.Join(parts, ", ")
}
