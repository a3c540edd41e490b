package cloudtasks

import (
	"cmp"
	"math"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retention is how old a task can get. Source: comment of CreateQueue.
const retention = 31 * 24 * time.Hour

// fillRetry sets the fields of c that are unspecified to the service's defaults
// and cuts durations to whole seconds. Those under one second are kept: the
// service's own default min_backoff is 0.1 s. Source: comments of RetryConfig,
// and for the defaults docs.cloud.google.com/tasks/docs/configuring-queues.
func fillRetry(c *cloudtaskspb.RetryConfig) {
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 100)
	c.MaxDoublings = cmp.Or(c.MaxDoublings, 16)
	c.MinBackoff = fillDuration(c.MinBackoff, 100*time.Millisecond)
	c.MaxBackoff = fillDuration(c.MaxBackoff, time.Hour)
	if c.MaxRetryDuration != nil {
		c.MaxRetryDuration = fillDuration(c.MaxRetryDuration, 0)
	}
}

func fillDuration(d *durationpb.Duration, unspecified time.Duration) *durationpb.Duration {
	value := d.AsDuration()
	switch {
	case value == 0:
		value = unspecified
	case value > time.Second:
		value = value.Truncate(time.Second)
	}
	return durationpb.New(value)
}

// checkRetry refuses what the service refuses, in its recorded words where there
// are any. It expects the defaults filled in.
func checkRetry(c *cloudtaskspb.RetryConfig) error {
	switch {
	case c.MaxAttempts < -1:
		return invalid("RetryConfig.maxAttempts must be greater or equal to -1.")
	case c.MaxDoublings < 0:
		return invalid("RetryConfig.maxDoublings cannot be negative.")
	case c.MinBackoff.AsDuration() < 0:
		return invalid("RetryConfig.minBackoff cannot be negative.")
	case c.MaxBackoff.AsDuration() < 0:
		return invalid("RetryConfig.maxBackoff cannot be negative.")
	case c.MaxRetryDuration.AsDuration() < 0:
		return invalid("RetryConfig.maxRetryDuration cannot be negative.")
	case c.MinBackoff.AsDuration() > c.MaxBackoff.AsDuration():
		return invalid("RetryConfig.minBackoff must be less than or equal to RetryConfig.maxBackoff.")
	}
	return nil
}

// backoff is the pause before retry number n, counted from 1: min_backoff doubled
// max_doublings times, then growing by the last doubled step, then max_backoff.
// Source: comment of RetryConfig.max_doublings.
func backoff(c *cloudtaskspb.RetryConfig, n int) time.Duration {
	doublings := min(n-1, int(c.MaxDoublings))
	steps := n - doublings
	pause := float64(c.MinBackoff.AsDuration()) * math.Pow(2, float64(doublings)) * float64(steps)
	if longest := c.MaxBackoff.AsDuration(); pause > float64(longest) {
		return longest
	}
	return time.Duration(pause)
}

// exhausted tells whether a task that has just failed is given up: when both
// limits are reached, or the only one that is set, or at the end of retention.
func exhausted(c *cloudtaskspb.RetryConfig, attempts int, created, first, now time.Time) bool {
	if now.Sub(created) >= retention {
		return true
	}
	longest := c.MaxRetryDuration.AsDuration()
	if c.MaxAttempts < 0 && longest == 0 {
		return false
	}
	enough := c.MaxAttempts < 0 || attempts >= int(c.MaxAttempts)
	late := longest == 0 || now.Sub(first) >= longest
	return enough && late
}
