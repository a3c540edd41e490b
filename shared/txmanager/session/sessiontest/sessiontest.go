// Package sessiontest has the rules and time limits of lease sessions in tests.
package sessiontest

import (
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// Rules make a transaction final after some confirmations.
func Rules(confirmations uint64) rules.Rules {
	return rules.Rules{
		Finality:     rules.Finality{By: txmanager.ByConfirmations, Confirmations: confirmations, BlockTime: 12 * time.Second},
		Broadcasting: rules.Broadcasting{Resubmit: true, ResubmitEvery: time.Minute, MaxResubmits: 20, StuckAfter: 30 * time.Minute},
	}
}

// Service serves lease sessions by these rules. Its store may be nil, and its log is discarded.
func Service(r rules.Rules, s txmanager.Store) session.Service {
	return session.Service{Rules: r, Store: s, Log: slog.New(slog.DiscardHandler), Timing: Timing}
}

// Timing are the time limits of every lease session.
var Timing = session.Timing{
	Lease:       lease.Rules{Duration: 10 * time.Second, RenewBelow: 5 * time.Second, ClockSkewAllowance: time.Second},
	CallTimeout: 10 * time.Second, IterationsEndAfter: 30 * time.Second,
}
