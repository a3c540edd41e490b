package rules

import (
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

func rulesOf(confirmations uint64) Rules {
	return Rules{
		Finality:     Finality{By: txmanager.ByConfirmations, Confirmations: confirmations, BlockTime: 12 * time.Second},
		Broadcasting: Broadcasting{Resubmit: true, ResubmitEvery: time.Minute, MaxResubmits: 20, StuckAfter: 30 * time.Minute},
	}
}

// situation is what a plan depends on. A case of a table changes a part of it.
type situation struct {
	r Rules
	w txmanager.SubmitterState
	v txmanager.ChainObservation
}
