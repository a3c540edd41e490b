package rules

import (
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// BlockSlack is how long after its expected time a block is polled for.
func (r Rules) BlockSlack() time.Duration { return min(r.BlockTime/20, 500*time.Millisecond) }

// AfterBlocks is when to poll for n more blocks on top of head, by the database's clock. It depends
// on head and the block time alone, so that the polls of all submitters of a chain are due together,
// in every process. If the next block is late, it is polled for again at common times: each quarter
// of the block time, then each block time. If the chain's clock is ahead of the database's, or more
// than a day behind, the polls are due at multiples of the block time.
func (r Rules) AfterBlocks(n uint64, head txmanager.Header, now time.Time) time.Time {
	next := time.Unix(int64(head.Time), 0).Add(r.BlockTime + r.BlockSlack())
	if next.After(now.Add(2*r.BlockTime)) || next.Before(now.Add(-24*time.Hour)) {
		next = now.Truncate(r.BlockTime).Add(r.BlockSlack())
	}
	if late := now.Sub(next); late >= 0 {
		every := r.BlockTime
		if late < r.BlockTime {
			every = min(r.BlockTime, max(r.BlockTime/4, time.Second)) // polls are named by the second
		}
		next = next.Add((late/every + 1) * every)
	}
	return next.Add(time.Duration(max(n, 1)-1) * r.BlockTime)
}

// expectedFinalAt is when to poll for the finality of the receipt, at most [Rules.WatchEvery] from
// now.
func (r Rules) expectedFinalAt(rec txmanager.Receipt, v txmanager.ChainObservation, now time.Time) time.Time {
	missing := uint64(1)
	if last := rec.BlockNumber + r.Confirmations; r.By == txmanager.ByConfirmations && last > v.Head.Number {
		missing = last - v.Head.Number
	}
	at, latest := r.AfterBlocks(missing, v.Head, now), now.Add(r.WatchEvery)
	if r.WatchEvery <= 0 || !at.After(latest) {
		return at
	}
	next := r.AfterBlocks(1, v.Head, now)
	return next.Add(max(0, latest.Sub(next)).Truncate(r.BlockTime))
}
