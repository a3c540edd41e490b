package rules

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Submitters that were served at different moments of one block interval must be polled at the same
// time, so that their invocations meet. The time must not depend on what a process remembers.
func TestPollsOfAllSubmittersAreDueTogether(t *testing.T) {
	t.Parallel()
	head := txmanager.Header{Number: 100, Time: uint64(txtest.Now.Unix())}
	for name, c := range map[string]struct {
		block          time.Duration
		from, to, want time.Duration // since the head's time: served from, before; polled at
	}{
		"the next block":                       {12 * time.Second, 0, 12500 * time.Millisecond, 12500 * time.Millisecond},
		"a late block, first quarter":          {12 * time.Second, 12500 * time.Millisecond, 15500 * time.Millisecond, 15500 * time.Millisecond},
		"a late block, second quarter":         {12 * time.Second, 15500 * time.Millisecond, 18500 * time.Millisecond, 18500 * time.Millisecond},
		"a block that is later than another":   {12 * time.Second, 24500 * time.Millisecond, 36500 * time.Millisecond, 36500 * time.Millisecond},
		"blocks of a second":                   {time.Second, 0, 1050 * time.Millisecond, 1050 * time.Millisecond},
		"a late one":                           {time.Second, 1050 * time.Millisecond, 2050 * time.Millisecond, 2050 * time.Millisecond},
		"blocks shorter than the clock shows":  {250 * time.Millisecond, 512500 * time.Microsecond, 762500 * time.Microsecond, 762500 * time.Microsecond},
		"a chain without blocks for two hours": {12 * time.Second, 2*time.Hour + 500*time.Millisecond, 2*time.Hour + 12500*time.Millisecond, 2*time.Hour + 12500*time.Millisecond},
		"a chain's clock that is ahead":        {12 * time.Second, -1 * time.Hour, -1*time.Hour + 500*time.Millisecond, -1*time.Hour + 500*time.Millisecond},
	} {
		r := rulesOf(20)
		r.BlockTime = c.block
		for at := c.from; at < c.to; at += (c.to - c.from) / 7 {
			check.Equal(t, fmt.Sprintf("%s: served at %v after the head: poll at", name, at), r.AfterBlocks(1, head, txtest.Now.Add(at)).Sub(txtest.Now), c.want)
		}
	}
}

// A check is planned for later than now, and at most one block time later than the next block can be seen. The chain's
// clock and a wrong time of a node's block do not change that.
func TestNextBlockIsPolledForSoon(t *testing.T) {
	t.Parallel()
	here := uint64(txtest.Now.Unix())
	nonsense := rapid.SampledFrom([]uint64{0, 1, 1 << 62, 1 << 63, math.MaxUint64 - 10_000_000_000, math.MaxUint64 - 62_135_596_805, math.MaxUint64})
	rapid.Check(t, func(t *rapid.T) {
		r := rulesOf(20)
		r.BlockTime = time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(time.Minute)).Draw(t, "block time"))
		now := txtest.Now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "now")))
		head := txmanager.Header{Time: rapid.OneOf(rapid.Uint64Range(here-7200, here+7200), nonsense).Draw(t, "the head's time")}
		at := r.AfterBlocks(1, head, now)
		if !at.After(now) || at.After(now.Add(2*r.BlockTime)) {
			t.Fatalf("got the next poll %v from now, want later than now, and within two block times of %v", at.Sub(now), r.BlockTime)
		}
		n := rapid.Uint64Range(0, 40).Draw(t, "blocks")
		check.Equal(t, fmt.Sprintf("poll for block %d, after that for the next one", n), r.AfterBlocks(n, head, now).Sub(at), time.Duration(max(n, 1)-1)*r.BlockTime)
	})
}
