package transfers

import (
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// With one process for each function, as deployed, the sweep has no access to the trading core. It
// still finds the work of lost tasks.
func TestOneProcessPerFunctionOfTransfers(t *testing.T) {
	t.Parallel()
	u := own(t, stack.Options{Split: true, Processes: 1}).newUser(t, 100, 100)
	u.committed(funding, spot, "0.00001")
	u.Tasks.SetFaults(cloudtasks.Faults{Drop: 1})
	disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.LoseAnswer, Op: transfer.Deposit, UserID: u.ID})
	a := u.post(funding, spot, "0.00002")
	u.Want("its answer lost", a, http.StatusAccepted, "PENDING", "")
	disarm()
	u.Tasks.SetFaults(cloudtasks.Faults{})
	poll(t, "the sweep finds it", func() bool {
		var ended bool
		err := u.DB.QueryRow(u.Ctx, `select not open from transfers_tb where req_id = $1`, a.ReqID).Scan(&ended)
		return err == nil && (ended || u.RunSweep(u.Ctx) != nil)
	})
	u.AwaitState(a.ReqID, transfer.Committed)
	u.wantLogged(t, "sweep found work without a task", `"transfers":1`) // no other process has ended it
	u.end()
}
