package payouts

import (
	"net/http"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
)

// MON-001, H31: a payout is late after twice its expected finality, which is 40 s here. It is not late
// after the minute of other transfers, and is after 80 s. A process whose settings expect five blocks
// of 20 s each raises no alert before 200 s.
func TestMON001PayoutHasItsChainsLimit(t *testing.T) {
	t.Parallel()
	h := still(t)
	h.Chain.StopMining()
	u := h.newUser(t, h.coin(), 1_000_000)
	ages := []string{"62 seconds", "90 seconds", "170 seconds", "210 seconds"}
	pays := make(map[string]string)
	for _, ago := range ages {
		pays[ago] = u.accepted(1)
	}
	slowBlocks := h.Aside(t, map[string]string{"FENCEPOST_CHAIN_BLOCK_TIME": "20s"})
	for _, c := range []struct {
		addr string
		want []string
	}{{slowBlocks.Addr(), ages[3:]}, {h.Processes()[0].Addr(), ages[1:]}} {
		for _, ago := range ages { // just before the check, as they grow older
			h.ChangeOne(t, `update transfers_tb set state_at = clock_timestamp() - $2::text::interval where req_id = $1 and state = 30`, pays[ago], ago)
		}
		equal(t, "a sweep", u.Internal(c.addr, stack.SchedulerAccount, "sweep", struct{}{}), http.StatusOK)
		var paged []string
		poll(t, "the sweep has paged", func() bool {
			paged = slices.DeleteFunc(slices.Clone(ages), func(ago string) bool {
				return len(h.Log.Lines(`"severity":"CRITICAL"`, `"alert":"MON-001"`, pays[ago])) == 0
			})
			return len(paged) >= len(c.want)
		})
		same(t, "paged", paged, c.want)
	}
	h.Chain.StartMining()
	for _, ago := range ages {
		u.stepTo(pays[ago], happy)
	}
}
