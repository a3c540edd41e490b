package functions

import (
	"fmt"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// attentionLimits are the limits beyond which something needs a person. The limit of a wait is that of
// the gauge of blocked heads.
func (a *App) attentionLimits() store.AttentionLimits {
	l := store.AttentionLimits{Transfers: a.transfers.rules, Endpoints: a.base.Endpoints}
	for _, cause := range txmanager.WaitCauses() {
		guide := cause.Guide()
		if guide.Limit > 0 {
			l.Waits = append(l.Waits, store.WaitLimit{Cause: cause, Limit: guide.Limit})
		}
		for _, c := range a.chains {
			if limit := guide.LimitOn(a.workers[c].Rules.TimeToFinality()); limit > 0 {
				l.Waits = append(l.Waits, store.WaitLimit{Chain: fmt.Sprintf("%s:%d", c.Namespace, c.ID), Cause: cause, Limit: limit})
			}
		}
	}
	return l
}
