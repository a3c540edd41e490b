package rules

import (
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

func rulesOf(confirmations uint64) Rules {
	return Rules{
		Finality: txmanager.ByConfirmations, Confirmations: confirmations, BlockTime: 12 * time.Second,
		Resubmit: true, ResubmitEvery: time.Minute, MaxResubmits: 20, StuckAfter: 30 * time.Minute,
	}
}
