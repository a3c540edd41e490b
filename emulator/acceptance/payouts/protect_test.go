package payouts

import (
	"net/http"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// useTheKey sends a transaction of the payer past the transaction manager, as a foreign signer would.
func (h *deployment) useTheKey(t *testing.T, n uint64) { h.payOutside(t, n, 0) }

// payOutside is useTheKey with a payment of wei.
func (h *deployment) payOutside(t *testing.T, n uint64, wei int64) {
	t.Helper()
	tx := h.Sign(h.PayerAccount(), h.Payment(n, common.Address{0xba, 0xd0}, wei, 1))
	check(t, h.Chain.MineExactly(must(tx.MarshalBinary())(t)))
}

func (h *deployment) inProtect(t *testing.T) (incident int) {
	t.Helper()
	poll(t, "the payer is in PROTECT", func() bool {
		return h.DB.QueryRow(t.Context(), `select incident from protect_incident where submitter = $1 and closed_at is null`, h.Payer).Scan(&incident) == nil
	})
	return incident
}

// release releases the payer from PROTECT: a foreign signer used one nonce.
func (h *deployment) release(t *testing.T, incident int) {
	t.Helper()
	check(t, h.Chain.Mine(70)) // the foreign transaction is finalized
	operator := must(h.Client(stack.OperatorAccount))(t)
	var err error
	poll(t, "nobody serves the payer just now", func() bool {
		_, err = operator.Release(t.Context(), string(h.Payer), client.Release{
			Incident: incident, Mode: "resync", Count: new(uint64(1)), Reason: "the key was shared", Requests: map[uint64]string{0: "by hand"},
		})
		return client.CodeOf(err) != "NOT_LEADER"
	})
	check(t, err)
}

// diedInInit returns a payout whose process died right after it stored it.
func (u *user) diedInInit() (reqID string) { return u.diedAt("transfer.beginning") }

// H1a: a foreign signer uses the payer's key, and PROTECT opens while payouts are at every step before
// their nonce. Meanwhile no payout begins, pays or is refunded, since the foreign transaction's origin
// is unknown. After the release each payout ends by one payment or one refund, even if a create
// arrives late.
func TestH01ProtectOfThePayer(t *testing.T) {
	t.Parallel()
	h := own(t, true, stack.Options{})
	begun, tooOld := h.newUser(t, h.coin(), 1_000_000), h.newUser(t, h.token(), 1_000_000)
	inInit, late := begun.diedInInit(), tooOld.diedInInit()
	inside, after := h.newUser(t, h.coin(), 1_000_000), h.newUser(t, h.token(), 1_000_000)
	early, arrivesInside := inside.stopped("payout.posting", 400_001)
	tardy, arrivesAfter := after.stopped("payout.posting", 400_001)
	h.useTheKey(t, 0)
	queued := h.newUser(t, h.coin(), 1_000_000)
	waits := queued.pay(400_001, "cid", "c")
	incident := h.inProtect(t)

	queued.Want("a new payout", queued.pay(1, "cid", "new"), http.StatusServiceUnavailable, "", "SYSTEM_ERROR")
	queued.only() // the refused payout is not stored
	queued.Want("a known payout", queued.pay(400_001, "cid", "c"), http.StatusOK, "PENDING", "DUPLICATE_REQUEST")
	tooOld.Age(late, "16 minutes")
	for range 3 {
		for u, reqID := range map[*user]string{begun: inInit, tooOld: late, inside: arrivesInside, after: arrivesAfter, queued: waits.ReqID} {
			equal(t, "a step in PROTECT", u.Task(reqID), http.StatusNoContent)
		}
	}
	begun.held(inInit, transfer.Init, 1_000_000, "")
	if x := tooOld.ends(late, never); x.Reason != transfer.Expired {
		t.Errorf("too old: got %s, want EXPIRED", x.Reason)
	}
	inside.Want("given up in doubt", inside.resolve(arrivesInside), http.StatusOK, "TARGET_PENDING", "")
	inside.held(arrivesInside, transfer.TargetPending, 599_999, "")
	says(t, "the evidence of why", inside.why(arrivesInside).LastEvidence, "in doubt")
	early.wakesTo("its create arrives in PROTECT", http.StatusAccepted, "PENDING", "")
	inside.held(arrivesInside, transfer.TargetPending, 599_999, "")
	queued.held(waits.ReqID, transfer.TargetPending, 599_999, "QUEUED")
	queued.Want("given up in the queue", queued.resolve(waits.ReqID), http.StatusOK, "TARGET_PENDING", "")
	queued.held(waits.ReqID, transfer.TargetPending, 599_999, "QUEUED")

	h.release(t, incident)
	after.wantGivenUp("given up after the release", after.resolve(arrivesAfter))
	tardy.wakesTo("its create arrives then", http.StatusUnprocessableEntity, "ROLLED_BACK", "PAYOUT_CANCELLED")
	after.ends(arrivesAfter, rollback)
	queued.ends(waits.ReqID, happy)
	again := queued.accepted(400_001)
	begun.stepTo(inInit, happy)
	inside.ends(arrivesInside, happy)
	queued.ends(again, happy)
	for u, want := range map[*user][2]uint64{
		begun: {599_999, 400_001}, tooOld: {1_000_000, 0}, inside: {599_999, 400_001}, after: {1_000_000, 0}, queued: {199_998, 800_002},
	} {
		u.wantMoney(u.asset.Name, want[0], want[1], int(want[1]/400_001))
	}
}

// held requires the payout in its state, and no money at the address.
func (u *user) held(reqID string, s transfer.State, inFunding uint64, managed string) {
	u.T.Helper()
	if got, m := u.Load(reqID).State, u.managed(reqID); got != s || m != managed {
		u.T.Errorf("in PROTECT: got %s and the transaction %q, want %s and %q", got, m, s, managed)
	}
	u.wantMoney("in PROTECT", inFunding, 0, 0)
}
