package payouts

import (
	"cmp"
	"net/http"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/transfer"
)

// H1a without PROTECT: a worker is delayed just before it creates the payment. An operator gives the
// payout up: the tombstone is written, and the money is refunded. Then the create arrives and does not
// run. If the worker is delayed after the create, the cancel of the queued or allocated intent has the
// same result.
func TestH01GivenUpBesideACreate(t *testing.T) {
	t.Parallel()
	h := still(t)
	h.Chain.StopMining() // transactions with a nonce are not mined meanwhile
	before := h.newUser(t, h.coin(), 1_000_000)
	worker, reqID := before.stopped("payout.posting", 400_001)
	if got := before.managed(reqID); got != "" || before.Load(reqID).State != transfer.TargetPending {
		t.Errorf("held up before the create: got %s and %q, want TARGET_PENDING and no transaction", before.Load(reqID).State, got)
	}
	before.wantGivenUp("given up", before.resolve(reqID))
	equal(t, "given up (the tombstone)", before.managed(reqID), "FAILED/CANCELLED")
	worker.wakesTo("the create arrives", http.StatusUnprocessableEntity, "ROLLED_BACK", "PAYOUT_CANCELLED")
	equal(t, "after the create (the tombstone alone)", before.managed(reqID), "FAILED/CANCELLED")

	behind := h.newUser(t, h.token(), 1_000_000)
	worker, late := behind.stopped("payout.posted", 400_001)
	behind.resolve(late)
	worker.wakes()
	h.Chain.StartMining()
	behind.stepTo(late, rollback)
	behind.wantMoney("given up behind the create", 1_000_000, 0, 0)
	before.ends(reqID, rollback)
	before.wantMoney("given up before the create", 1_000_000, 0, 0)
}

// A payout that is given up while it waits for a block ends by its placeholder. Once it is CONFIRMED,
// giving up finds it paid. Once the transfer is COMMITTED, giving up is refused.
func TestGivenUpOnItsWay(t *testing.T) {
	t.Parallel()
	h := still(t)
	h.Chain.StopMining()
	pending := h.newUser(t, h.coin(), 1_000_000)
	reqID := pending.accepted(400_001)
	pending.awaitManaged(reqID, "TRACKING/PENDING")
	pending.Want("given up in the pool", pending.resolve(reqID), http.StatusOK, "TARGET_PENDING", "")
	pending.placeholder(reqID)
	h.Chain.StartMining()
	pending.awaitManaged(reqID, "FAILED/PLACEHOLDER")
	pending.stepTo(reqID, rollback)
	pending.wantMoney("given up in the pool", 1_000_000, 0, 0)

	final := h.newUser(t, h.token(), 1_000_000)
	reqID = final.accepted(400_001)
	final.awaitManaged(reqID, "CONFIRMED")
	equal(t, "before it was given up", final.Load(reqID).State, transfer.TargetPending)
	final.Want("given up when it was paid", final.resolve(reqID), http.StatusOK, "COMMITTED", "")
	final.Want("given up after that", final.resolve(reqID), http.StatusConflict, "", "NOTHING_TO_RESOLVE")
	final.ends(reqID, happy)
	final.wantMoney("given up when it was paid", 599_999, 400_001, 1)
}

// placeholder waits until the placeholder of the payout's cancel is in the pool.
func (u *user) placeholder(reqID string) {
	u.T.Helper()
	u.Await(u.T, "the placeholder of "+reqID+" is sent", `
select exists (select from tx_version v where v.tx_id = m.tx_id and v.kind = 'PLACEHOLDER') and m.state = 'TRACKING'
  from managed_tx m where m.request_id = $1`, reqID)
}

// Several operators give up a payout at any stage, while its task is delivered many times. It ends by
// one payment or one refund.
func TestOnePaymentOrOneRefund(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for i, until := range []string{"", "QUEUED", "TRACKING/PENDING", "TRACKING/INCLUDED", "CONFIRMED", ""} {
		asset := []transfer.Asset{h.coin(), h.token()}[i%2]
		parallel(t, asset.Name+" at "+cmp.Or(until, "once"), func(t *testing.T) {
			u := h.newUser(t, asset, 1_000_000)
			reqID := u.accepted(400_001)
			poll(t, "it is "+until+", or further", func() bool { return stage(u.managed(reqID)) >= stage(until) })
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { _, _ = u.resolveAt(u.URLMap.PublicURL(), reqID) })
				all.Go(func() { u.Task(reqID) })
			}
			all.Wait()
			poll(t, "it has ended", func() bool { return u.Load(reqID).State.Terminal() })
			u.wantOnce("its end", u.Load(reqID).State)
		})
	}
}

// stage returns how far a transaction in that state has come.
func stage(managed string) int {
	switch managed {
	case "":
		return 0
	case "QUEUED":
		return 1
	case "IN_FLIGHT", "SUBMITTED", "TRACKING/PENDING":
		return 2
	case "TRACKING/INCLUDED":
		return 3
	}
	return 4
}

// A worker that stops at any step of a payout, while others carry it to its end, changes nothing when
// it resumes.
func TestWokenAfterTheEnd(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, point := range []string{"transfer.begun", "transfer.withdraw.called", "transfer.deposit.calling", "payout.posting", "payout.posted", "transfer.deposit.recording"} {
		parallel(t, point, func(t *testing.T) {
			u := h.newUser(t, h.coin(), 1_000_000)
			worker, reqID := u.stopped(point, 400_001)
			u.ends(reqID, happy)
			worker.wakesTo("woken", http.StatusOK, "COMMITTED", "")
			u.wantMoney("woken", 599_999, 400_001, 1)
		})
	}
}
