package payouts

import (
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
)

// victim is one kill: the process' action, the point at which it dies, the state it leaves, and the
// end.
type victim struct {
	point string
	does  func(v *user, addr string) (reqID string)
	left  transfer.State
	made  bool // the managed transaction is stored
	ends  []transfer.State
}

// victims has an entry for every point that a payout reaches.
var victims = []victim{
	{"transfer.received", posts, 0, false, happy},
	{"transfer.beginning", posts, transfer.Init, false, happy},
	{"transfer.begun", posts, transfer.SourcePending, false, happy},
	{"transfer.withdraw.calling", posts, transfer.SourcePending, false, happy},
	{"transfer.withdraw.called", posts, transfer.SourcePending, false, happy},
	{"transfer.withdraw.recording", posts, transfer.SourcePending, false, happy},
	{"transfer.withdraw.recorded", posts, transfer.TargetPending, false, happy},
	{"transfer.advancing", advances, transfer.SourceDone, false, happy},
	{"transfer.advanced", advances, transfer.TargetPending, false, happy},
	{"transfer.deposit.calling", posts, transfer.TargetPending, false, happy},
	{"payout.posting", posts, transfer.TargetPending, false, happy},
	{"payout.posted", posts, transfer.TargetPending, true, happy},
	{"payout.woken", posts, transfer.TargetPending, true, happy},
	{"transfer.deposit.called", posts, transfer.TargetPending, true, happy},
	{"transfer.deposit.recording", posts, transfer.TargetPending, true, happy},
	{"transfer.deposit.recorded", posts, transfer.TargetPending, true, happy},
	{"transfer.driven", posts, transfer.TargetPending, true, happy},
	{"transfer.enqueued", posts, transfer.TargetPending, true, happy},

	{"transfer.deposit.called", commits, transfer.TargetPending, true, happy},
	{"transfer.deposit.recording", commits, transfer.TargetPending, true, happy},
	{"transfer.deposit.recorded", commits, transfer.Committed, true, happy},
	{"transfer.driven", commits, transfer.Committed, true, happy},
	{"transfer.swept", isSwept, transfer.TargetPending, false, happy},

	{"payout.cancelling", givesUp, transfer.TargetPending, false, happy}, // the operator's call was lost and is not repeated
	{"payout.cancelled", givesUp, transfer.TargetPending, true, rollback},
	{"transfer.deposit.recording", givesUp, transfer.TargetPending, true, rollback},
	{"transfer.deposit.recorded", givesUp, transfer.Compensating, true, rollback},
	{"transfer.refund.calling", givesUp, transfer.Compensating, true, rollback},
	{"transfer.refund.called", givesUp, transfer.Compensating, true, rollback},
	{"transfer.refund.recording", givesUp, transfer.Compensating, true, rollback},
	{"transfer.refund.recorded", givesUp, transfer.RolledBack, true, rollback},
}

// A process dies by SIGKILL once at each point of a payout. Its task or the sweep makes the others end
// it by one payment or one refund, as the chain and Funding's journal show. The test fails if a point
// is not reached.
func TestPayoutKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	wantEveryPoint(t)
	h := still(t)
	left := make([]*user, len(victims))
	for i := range victims {
		asset := []transfer.Asset{h.coin(), h.token()}[i%2]
		left[i] = h.newUser(t, asset, 1_000_000)
	}
	t.Run("killed", func(t *testing.T) {
		for i, v := range victims {
			parallel(t, v.point, func(t *testing.T) {
				v.dies(t, *left[i])
			})
		}
	})
	if t.Failed() {
		return
	}
	h.goOn(t)
	for i, v := range victims {
		u := left[i]
		poll(t, v.point+": the payout ends", func() bool {
			return u.only().State.Terminal() || h.RunSweep(u.Ctx) != nil // whose process may be gone
		})
		if x := u.ends(u.only().ReqID, v.ends); x.CID != "" {
			u.Want("posted again", u.pay(400_001, "cid", "c"), http.StatusOK, x.State.String(), "DUPLICATE_REQUEST")
		}
		u.wantOnce(v.point, v.ends[len(v.ends)-1])
	}
}

// wantEveryPoint requires a victim for each point that a payout reaches.
func wantEveryPoint(t *testing.T) {
	t.Helper()
	have := make(map[string]bool)
	for _, v := range victims {
		have[v.point] = true
	}
	for _, point := range crash.All() {
		of, _, _ := strings.Cut(point, ".")
		if (of == "transfer" || of == "payout") != have[point] {
			t.Errorf("%s: got a victim: %t; want one for each point of transfers and payouts, and no other", point, have[point])
		}
	}
}

// dies makes a process die at this step, and checks the remaining state.
func (v victim) dies(t *testing.T, u user) {
	u.T = t // the user outlives this test
	p, hit := u.armed(t, v.point, crash.Kill)
	reqID := v.does(&u, p.Addr())
	died(t, p, hit, v.point)
	if v.point == "transfer.received" {
		u.Want("posted again", u.pay(400_001, "cid", "c"), http.StatusAccepted, "PENDING", "")
		return
	}
	if reqID == "" {
		reqID = u.only().ReqID
	}
	if x, made := u.Load(reqID), u.managed(reqID) != ""; x.State != v.left || made != v.made {
		t.Errorf("left in %s, its transaction made: %t; want %s and %t", x.State, made, v.left, v.made)
	}
}

// posts posts a payout, and gets no answer.
func posts(u *user, addr string) string {
	if a, err := u.payAt(addr, 400_001, "cid", "c"); err == nil {
		u.T.Errorf("posted to a process that dies: got %+v, want no answer", a)
	}
	return ""
}

// advances delivers the task of a payout that another build has left in SOURCE_DONE.
func advances(u *user, addr string) string {
	reqID := u.withdrawn(transfer.SourceDone)
	u.wantNoAnswer(u.TaskAt(addr, reqID))
	return reqID
}

// commits delivers the task of a payout that is CONFIRMED.
func commits(u *user, addr string) string {
	reqID := u.accepted(400_001)
	u.awaitManaged(reqID, "CONFIRMED")
	u.wantNoAnswer(u.TaskAt(addr, reqID))
	return reqID
}

// isSwept sweeps until the payout was found.
func isSwept(u *user, addr string) string {
	reqID := u.withdrawn(transfer.TargetPending)
	poll(u.T, "a sweep finds it", func() bool {
		return u.Internal(addr, stack.SchedulerAccount, "sweep", struct{}{}) == 0
	})
	return reqID
}

// givesUp gives up, as an operator, a payout that is not posted yet.
func givesUp(u *user, addr string) string {
	reqID := u.withdrawn(transfer.TargetPending)
	if a, err := u.resolveAt("http://"+addr, reqID); err == nil {
		u.T.Errorf("given up at a process that dies: got %+v, want no answer", a)
	}
	return reqID
}

func (u *user) wantNoAnswer(status int) {
	u.T.Helper()
	equal(u.T, "a task at a process that dies", status, 0)
}

// withdrawn returns a payout that was withdrawn from Funding, is in the state, and was not posted.
func (u *user) withdrawn(s transfer.State) (reqID string) {
	u.T.Helper()
	terms := must(payout.Prepare(chain.NewFamilies(evm.Family{}), u.asset, 400_001, u.address.String(), 300_000))(u.T)
	amount, _ := transfer.ParseAmount(transfer.FormatUnits(400_001, u.asset.Precision))
	r := transfer.Request{ReqID: ulid.Make().String(), UserID: u.ID, From: transfer.Funding, To: transfer.Chain, Asset: u.asset.Name, Amount: amount, Payout: terms}
	made, err := u.Transfers.Create(u.Ctx, r, transfer.Terms{SafetyFactor: 10})
	if err != nil || !made.New {
		u.T.Fatalf("create: got %+v, %v; want it new", made, err)
	}
	u.Move(r.ReqID, transfer.Init, transfer.SourcePending)
	if got := u.Funding.Withdraw(u.Ctx, made.Call()); got.Verdict != transfer.Success {
		u.T.Fatalf("withdraw: got %+v, want success", got)
	}
	u.Move(r.ReqID, transfer.SourcePending, transfer.SourceDone)
	if s == transfer.TargetPending {
		u.Move(r.ReqID, transfer.SourceDone, transfer.TargetPending)
	}
	return r.ReqID
}
