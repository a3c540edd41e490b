package transactions

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// Of a process at most 16 refusals wait at once, each for a quarter of a second. Further ones are answered at once.
func TestSixteenRefusalsWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, callers := NewHolds(), web.NewCallers(100, 100, 100)
		took := make(chan time.Duration, 20)
		for range 20 {
			go func() {
				began := time.Now()
				h.Hold(t.Context(), callers)
				took <- time.Since(began)
			}()
		}
		counts := map[time.Duration]int{}
		for range 20 {
			counts[<-took]++
		}
		check.Same(t, "refusals by their delays", counts, map[time.Duration]int{0: 4, 250 * time.Millisecond: 16})
	})
}
