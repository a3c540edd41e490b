package cloudtasks

import "time"

// How a queue slows down when its target is overloaded; see the package comment.
const (
	leastShare     = 1.0 / 8
	shareRegained  = 1.0 / 16
	longestHold    = 10 * time.Second
	bucketRounding = 1e-9 // a token short by less is there: floats do not add up exactly
)

// pace is the token bucket of one queue. Source: comment of
// RateLimits.max_burst_size.
type pace struct {
	rate   float64 // tokens per second, as configured
	burst  float64 // most tokens the bucket holds
	share  float64 // part of rate in use, 0 to 1
	tokens float64
	filled time.Time // when tokens was last brought up to date
	hold   time.Time // nothing goes before this instant
}

// newPace starts with a full bucket.
func newPace(rate, burst float64, now time.Time) pace {
	return pace{rate: rate, burst: burst, share: 1, tokens: burst, filled: now}
}

// limit changes the configured limits from now on.
func (p *pace) limit(rate, burst float64, now time.Time) {
	p.fill(now)
	p.rate, p.burst = rate, burst
	p.tokens = min(p.tokens, burst)
}

func (p *pace) fill(now time.Time) {
	p.tokens = min(p.burst, p.tokens+now.Sub(p.filled).Seconds()*p.rate*p.share)
	p.filled = now
}

// wait is how long until the next dispatch is allowed; zero means now.
func (p *pace) wait(now time.Time) time.Duration {
	if now.Before(p.hold) {
		return p.hold.Sub(now)
	}
	p.fill(now)
	if missing := 1 - p.tokens; missing > bucketRounding {
		// Never zero, which would mean now.
		return max(time.Microsecond, time.Duration(missing/(p.rate*p.share)*float64(time.Second)))
	}
	return 0
}

// take uses the token that wait has promised.
func (p *pace) take() { p.tokens-- }

// heed adapts to one answer of the target.
func (p *pace) heed(a answer, now time.Time) {
	p.fill(now)
	switch {
	case a.succeeded():
		p.share = min(1, p.share+shareRegained)
		return
	case a.overloaded():
		p.share = max(leastShare, p.share/2)
		p.tokens = min(p.tokens, 0) // a full bucket would hide the slower rate
	}
	if until := now.Add(min(a.retryAfter, longestHold)); until.After(p.hold) {
		p.hold = until
	}
}
