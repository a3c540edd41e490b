package payouts

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/crash"
)

// A process dies at each point of a deposit. The sweep ends one of each pair, a repeat of the call the
// other. Each is booked once, by the ledgers' own balances.
func TestDepositKilledIsBookedOnce(t *testing.T) {
	t.Parallel()
	h := own(t, true, stack.Options{})
	operator := must(h.Client(stack.OperatorAccount))(t)
	token := must(h.Issuer.Token(t.Context(), stack.OperatorAccount, stack.PublicAudience))(t)
	user := int64(900)
	for _, point := range crash.Of("account.") {
		for _, side := range []string{"FUNDING", "SPOT"} {
			for _, swept := range []bool{false, true} {
				user++
				id := strings.Join([]string{point, side, map[bool]string{true: "swept", false: "repeated"}[swept]}, "-")
				in := client.Money{ID: id, Amount: "2.5", Account: side, Reason: "a wire"}
				p, hit := h.Armed(t, point, crash.Kill, nil)
				if status, _, err := stack.CallWith(t.Context(), token, http.MethodPost, "http://"+p.Addr()+"/admin/v1/accounts/"+strconv.FormatInt(user, 10)+"/ETH/deposits", in); err == nil {
					t.Fatalf("%s: got the answer %d of a process that was to die", id, status)
				}
				died(t, p, hit, point)
				if swept {
					_ = must(h.DB.Exec(t.Context(), `update account_act set next_at = clock_timestamp() where request_id = $1`, id))(t)
					check(t, h.RunSweep(t.Context()))
				}
				poll(t, id+" is booked", func() bool {
					if !swept {
						act, err := operator.BookDeposit(t.Context(), user, "ETH", in)
						return err == nil && act.State == "DONE"
					}
					got, err := operator.ShowAccount(t.Context(), user, "ETH")
					return err == nil && len(got.Acts) == 1 && got.Acts[0].State == "DONE"
				})
				got := must(operator.ShowAccount(t.Context(), user, "ETH"))(t)
				if balance := got.Funding.Available + got.Spot.Available; balance != "2.5" || len(got.Acts) != 1 {
					t.Errorf("%s: got %+v, want 2.5 by one act", id, got)
				}
			}
		}
	}
}
