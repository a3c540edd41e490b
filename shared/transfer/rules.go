package transfer

import (
	"fmt"
	"time"
)

// Rules are the settings of all transfers of a deployment.
type Rules struct {
	InitTimeout time.Duration // age at which a transfer in INIT becomes EXPIRED
	CallTimeout time.Duration // of one call to a ledger
	RetryFirst  time.Duration // delay after the first unknown answer; doubled after each further one
	RetryMax    time.Duration // the longest delay between two attempts
	RescueAfter time.Duration // time without a move or postponement after which the sweep assumes that the worker died

	PendingLimit   time.Duration // how long a transfer can be in TARGET_PENDING before an alert
	PayoutLimit    time.Duration // the same for a payout: twice the expected finality
	PayoutRetryMax time.Duration // RetryMax of a payout in TARGET_PENDING: its answer takes blocks
	RefundLimit    int           // consecutive unknown refunds before a person is paged
}

// DefaultRules returns the values of the specification.
func DefaultRules() Rules {
	return Rules{
		InitTimeout: 15 * time.Minute, CallTimeout: 5 * time.Second,
		RetryFirst: time.Second, RetryMax: time.Minute, RescueAfter: time.Minute,
		PendingLimit: time.Minute, PayoutLimit: 30 * time.Minute, PayoutRetryMax: 30 * time.Second, RefundLimit: 3,
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
	case r.RetryMax < r.RetryFirst || r.PayoutRetryMax < r.RetryFirst:
		return fmt.Errorf("rules: RetryMax %s and PayoutRetryMax %s, want at least RetryFirst %s", r.RetryMax, r.PayoutRetryMax, r.RetryFirst)
	case r.CallTimeout >= r.RescueAfter:
		return fmt.Errorf("rules: CallTimeout %s, want it below RescueAfter %s, or the sweep would repeat a call that is still under way", r.CallTimeout, r.RescueAfter)
	}
	return nil
}
