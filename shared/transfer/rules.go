package transfer

import (
	"fmt"
	"time"
)

// Rules are the settings that govern every transfer of a deployment.
type Rules struct {
	InitTimeout time.Duration // a transfer that has not begun by then is EXPIRED
	CallTimeout time.Duration // of one call to a ledger
	RetryFirst  time.Duration // until the next attempt after an unknown answer; doubled after each further one
	RetryMost   time.Duration // the longest between two attempts
	RescueAfter time.Duration // a transfer that nobody has moved or postponed for so long lost its worker

	// PendingLimit is how long a transfer may be in TARGET_PENDING before a person
	// is told; PayoutLimit is that of a payout: twice the expected finality.
	PendingLimit time.Duration
	PayoutLimit  time.Duration
	PayoutMost   time.Duration // RetryMost of a payout in TARGET_PENDING, whose answer takes blocks
	RefundLimit  int           // refunds unknown in a row before a person is paged
}

// DefaultRules are those of the specification.
func DefaultRules() Rules {
	return Rules{
		InitTimeout: 15 * time.Minute, CallTimeout: 5 * time.Second,
		RetryFirst: time.Second, RetryMost: time.Minute, RescueAfter: time.Minute,
		PendingLimit: time.Minute, PayoutLimit: 30 * time.Minute, PayoutMost: 30 * time.Second, RefundLimit: 3,
	}
}

func (r Rules) check() error {
	for name, d := range map[string]time.Duration{
		"InitTimeout": r.InitTimeout, "CallTimeout": r.CallTimeout, "RetryFirst": r.RetryFirst, "RescueAfter": r.RescueAfter,
		"PendingLimit": r.PendingLimit, "PayoutLimit": r.PayoutLimit,
	} {
		if d <= 0 {
			return fmt.Errorf("rules: %s is %s, want it above 0", name, d)
		}
	}
	switch {
	case r.RetryMost < r.RetryFirst || r.PayoutMost < r.RetryFirst:
		return fmt.Errorf("rules: RetryMost %s and PayoutMost %s, want at least RetryFirst %s", r.RetryMost, r.PayoutMost, r.RetryFirst)
	case r.CallTimeout >= r.RescueAfter:
		return fmt.Errorf("rules: CallTimeout %s, want it below RescueAfter %s: a call under way is nobody to rescue", r.CallTimeout, r.RescueAfter)
	}
	return nil
}

// limit is how long t may be in TARGET_PENDING before a person is told.
func (r Rules) limit(t Type) time.Duration {
	if t == FundingToChain {
		return r.PayoutLimit
	}
	return r.PendingLimit
}

// retryMost is the longest between two attempts at t, in the state it is in.
func (r Rules) retryMost(t Transfer) time.Duration {
	if t.Type == FundingToChain && t.State == TargetPending {
		return r.PayoutMost
	}
	return r.RetryMost
}
