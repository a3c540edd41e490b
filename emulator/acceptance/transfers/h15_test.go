package transfers

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// commits lists the commits of a transfer from Funding, by a fragment of the statement.
var commits = map[string]string{
	"created":   "insert into transfers_tb",
	"begins":    "case when late",
	"withdrawn": "funding_apply",
	"moves on":  "as m (req_id",
}

// H15: the process loses the answer to a commit that did or did not happen. It reads the stored state
// before it calls a ledger. A caller that repeats its post gets the one transfer, and each ledger has
// moved the money once.
func TestH15ACommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	h := own(t, stack.Options{WireProxy: true, Processes: 1, SweepEvery: time.Second})
	for what, fragment := range commits {
		for _, kind := range []pgproxy.Kind{pgproxy.CutBeforeCommit, pgproxy.CutAfterCommit, pgproxy.CutMidReply} {
			u := h.newUser(t, 100, 100)
			before := h.Proxy.Counts().Hits[kind]
			h.Proxy.Arm(pgproxy.Fault{Kind: kind, Match: pgproxy.Containing(fragment)})
			asked := body(funding, spot, "0.00004", "cid", "once")
			first, err := u.try(asked)
			if hits := h.Proxy.Counts().Hits[kind] - before; hits != 1 {
				t.Fatalf("%s, %v: got %d hits (%+v, %v), want 1", what, kind, hits, first, err)
			}
			again, err := u.try(asked)
			if err != nil || again.Status != http.StatusOK && again.Status != http.StatusAccepted {
				t.Fatalf("%s, %v: asked again: got %+v, %v; want the transfer", what, kind, again, err)
			}
			u.once(fmt.Sprintf("%s, %v", what, kind), again.ReqID)
		}
	}
}

// once requires that the user's one transfer is COMMITTED, with one effect on each side.
func (u *user) once(what, reqID string) {
	u.T.Helper()
	u.AwaitState(reqID, transfer.Committed)
	if got := u.Only(); got != reqID {
		u.T.Errorf("%s: got transfer %s on record, want %s", what, got, reqID)
	}
	u.wantStates(what, reqID, happy...)
	u.wantUnits(what, 60, 140)
	var after bool
	if err := u.DB.QueryRow(u.Ctx, `
select o.at >= h.at
  from transfers_tb t
  join transfer_history h on h.transfer_id = t.transfer_id and h.state = 10
  join transfer_operations o on o.req_id = t.req_id and o.op_type = 'withdraw'
 where t.req_id = $1`, reqID).Scan(&after); err != nil || !after {
		u.T.Errorf("%s: withdrawn after SOURCE_PENDING was on record: got %t, %v; want true", what, after, err)
	}
	did := u.did(reqID)
	if did[transfer.Withdraw] != 1 || did[transfer.Deposit] != 1 || did[transfer.Refund] != 0 {
		u.T.Errorf("%s: got %v, want one withdrawal and one deposit", what, did)
	}
}
