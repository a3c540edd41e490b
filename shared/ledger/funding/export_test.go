package funding

import (
	"context"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Request is one call for [Ledger.Together].
type Request struct {
	Op   transfer.Op
	Call transfer.Call
}

// Together makes the calls in one transaction.
func (l *Ledger) Together(ctx context.Context, all []Request) ([]transfer.Outcome, error) {
	requests := make([]request, len(all))
	for i, r := range all {
		requests[i] = request{r.Op, r.Call}
	}
	outcomes := make([]transfer.Outcome, len(all))
	for i, r := range l.answerAll(ctx, requests) {
		if r.Err != nil {
			return nil, r.Err
		}
		outcomes[i] = r.Value.outcome(all[i].Op, all[i].Call, ErrNoWithdrawal)
	}
	return outcomes, nil
}
