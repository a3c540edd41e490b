package payout_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// stopped pauses a worker where it posts the payout. It posts when goOn is closed.
func (h *env) stopped(x transfer.Transfer) (goOn chan struct{}, ended <-chan transfer.Outcome) {
	h.t.Helper()
	there, goOn, out := make(chan struct{}), make(chan struct{}), make(chan transfer.Outcome, 1)
	var once sync.Once
	h.manager.set(func(m *manager) {
		m.beforeCreate = func() {
			mine := false
			once.Do(func() { mine = true })
			if mine {
				close(there)
				<-goOn
			}
		}
	})
	go func() { out <- h.ledger.Deposit(h.t.Context(), x.Call()) }()
	<-there
	return goOn, out
}

// H1a: one worker's post is paused on the wire, the payer enters PROTECT, and another worker's post
// is refused. That is no refusal of the payout: when PROTECT ends the first post runs, and the
// payout is paid.
func TestH01PayoutSeamARefusalInProtectDoesNotRefund(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	goOn, first := h.stopped(x)
	h.protect()
	h.drive(x.ReqID, transfer.TargetPending)
	h.wantUnknown(x, payout.ErrInDoubt)
	h.release()
	close(goOn)
	unknown(t, <-first, payout.ErrPending)
	h.mineUntil(x.ReqID, "CONFIRMED")
	h.drive(x.ReqID, transfer.Committed)
	h.wantPaid(onePayment)
	h.has(coin, "8.5")
}

// H1a, and the payout is given up in between. The paused post finds the tombstone: the user is
// refunded, and nothing is paid.
func TestH01PayoutSeamAGivenUpMeanwhile(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	goOn, first := h.stopped(x)
	h.protect()
	if got := h.giveUp(x.ReqID); got.State != transfer.TargetPending || h.managed(x.ReqID) != "" {
		t.Errorf("given up in PROTECT: got %s, transaction %q; want TARGET_PENDING and none, since what is not on record may have run", got.State, h.managed(x.ReqID))
	}
	h.release()
	if got := h.giveUp(x.ReqID); got.State != transfer.RolledBack || got.Reason != payout.Cancelled {
		t.Errorf("given up: got %s, %s; want ROLLED_BACK by %s", got.State, got.Reason, payout.Cancelled)
	}
	close(goOn)
	refused(t, <-first, payout.Cancelled)
	h.neverPaid(x)
}

// neverPaid runs the worker once more and requires that nothing is paid and everything is refunded.
func (h *env) neverPaid(x transfer.Transfer) {
	h.t.Helper()
	h.manager.set(func(m *manager) { m.beforeCreate = nil })
	h.ledger.Deposit(h.t.Context(), x.Call())
	h.serve()
	h.mine(confirmations + 1)
	h.serve()
	check.Equal(h.t, "paid", h.paid(), "0")
	h.drive(x.ReqID, transfer.RolledBack)
	h.has(coin, "10")
}

// H1b: a deploy names another payer between two attempts. Each attempt uses the payer on the row.
func TestH01PayoutSeamBPayerIsFixed(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.manager.set(func(m *manager) { m.fail = errors.New("the answer was lost") })
	h.drive(x.ReqID, transfer.TargetPending)
	h.unguarded()
	h.asset(coin, "", h.pays(accounts[1], store.PayoutCaller))
	h.manager.set(func(m *manager) { m.fail = nil })
	h.ledger = h.newLedger(100)
	h.openCoordinator()
	h.pay(x) // only one transaction: managed would show both
	h.wantPaid(onePayment)
	if h.request(coin).Payout.Submitter == x.Payout.Submitter {
		t.Error("payer of the next payout: got the old one, want the new: the test changed nothing")
	}
}

// H1c: each attempt posts the same bytes, whatever has changed in between.
func TestH01PayoutSeamCPayloadIsFixed(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	h.deploy(contracts.Token())
	x := h.due(token)
	full := h.newLedger(0) // a queue without room: nothing is stored
	for range 3 {
		unknown(t, full.Deposit(t.Context(), x.Call()), store.ErrQueueFull)
	}
	h.drive(x.ReqID, transfer.TargetPending)
	check.Same(t, "posts", h.manager.posted, slices.Repeat([][]byte{x.Payout.Payload}, 4))
}

// H1c: another build has posted the same payment in another rendering. The recorded transaction
// decides the payout.
func TestH01PayoutSeamCAnotherRenderingDecidesByRow(t *testing.T) {
	t.Parallel()
	for _, end := range []transfer.State{transfer.Committed, transfer.RolledBack} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			h, x := newDue(t)
			other := h.intentOf(x)
			other.Payload = bytes.ReplaceAll(other.Payload, []byte(" "), nil)
			other.Fingerprint = txmanager.Fingerprint("", other.Payload)
			goOn, first := h.stopped(x)
			check.OK(t)(h.db.Store.Create(t.Context(), other, 100))
			close(goOn)
			unknown(t, <-first, store.ErrRequestConflict)
			h.drive(x.ReqID, transfer.TargetPending)
			if end == transfer.RolledBack {
				h.giveUp(x.ReqID)
				h.neverPaid(x)
				return
			}
			h.mineUntil(x.ReqID, "CONFIRMED")
			h.drive(x.ReqID, end)
		})
	}
}

// newReverted is [newEnv] with a payout of a token, whose transaction is mined and reverts: one before it has switched the contract.
func newReverted(t *testing.T) (h *env, x transfer.Transfer, contract string) {
	t.Helper()
	h = newEnv(t)
	contract = h.deploy(contracts.Switched())
	x = h.due(token)
	h.drive(x.ReqID, transfer.TargetPending)
	h.serveUntil(x.ReqID, "TRACKING/PENDING")
	check.OK(t)(h.chain.MineExactly(h.lost(accounts[3], 0, contract, "0", nil).Raw, h.raw(x.ReqID)))
	return h, x, contract
}

// H1d: the payment is mined and reverts, which is not final. A reorg executes it again with
// success: COMMITTED, without a refund.
func TestH01PayoutSeamDRevertedIsNotFinal(t *testing.T) {
	t.Parallel()
	h, x, contract := newReverted(t)
	h.serveUntil(x.ReqID, "TRACKING/INCLUDED")
	check.Equal(t, "the call succeeded", h.succeeded(x), false)
	h.drive(x.ReqID, transfer.TargetPending)
	check.OK(t)(h.chain.Reorg(1, [][]byte{h.raw(x.ReqID)}, nil))
	h.chain.DropPool()
	h.mineUntil(x.ReqID, "CONFIRMED")
	h.drive(x.ReqID, transfer.Committed)
	check.Equal(t, "paid", h.held(contract), onePayment)
	h.has(token, "8.5")
}

// H1d, without the reorg: a final revert is a refusal.
func TestH01PayoutSeamDFinalRevertRefunds(t *testing.T) {
	t.Parallel()
	h, x, contract := newReverted(t)
	h.mineUntil(x.ReqID, "FAILED/REVERTED")
	if got := h.drive(x.ReqID, transfer.RolledBack); got.Reason != payout.Reverted || h.held(contract) != "0" {
		t.Errorf("got %s, paid %s; want %s, nothing", got.Reason, h.held(contract), payout.Reverted)
	}
	h.has(token, "10")
}

// H1e: a payout that is given up after it had a nonce ends by its placeholder and is refunded once.
func TestH01PayoutSeamEMinedPlaceholderRefunds(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.drive(x.ReqID, transfer.TargetPending)
	h.serveUntil(x.ReqID, "TRACKING/PENDING")
	check.Equal(t, "given up, where either may be mined", h.giveUp(x.ReqID).State, transfer.TargetPending)
	h.mineUntil(x.ReqID, "FAILED/PLACEHOLDER")
	check.Equal(t, "reason", h.drive(x.ReqID, transfer.RolledBack).Reason, payout.Replaced)
	h.neverPaid(x)
}

// H1e: a foreign transaction consumes the nonce, and an operator accepts the loss with proof. The
// payout ends and is refunded once.
func TestH01PayoutSeamELostNonceRefunds(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.loseNonce(x.ReqID)
	check.Equal(t, "given up in PROTECT", h.giveUp(x.ReqID).State, transfer.TargetPending)
	h.resync(nil)
	check.Equal(t, "reason", h.drive(x.ReqID, transfer.RolledBack).Reason, payout.Displaced)
	h.neverPaid(x)
}

// H1e, and the operator states that the foreign transaction was this payout. Then it is never
// refunded.
func TestH01PayoutSeamENamedAsPaidNeverRefunds(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.loseNonce(x.ReqID)
	h.resync(map[uint64]string{0: x.ReqID})
	for range 2 {
		h.drive(x.ReqID, transfer.TargetPending)
		check.Equal(t, "given up", h.giveUp(x.ReqID).State, transfer.TargetPending)
	}
}

// loseNonce makes a foreign transaction consume the payout's nonce after it was sent.
func (h *env) loseNonce(reqID string) {
	h.t.Helper()
	h.drive(reqID, transfer.TargetPending)
	h.serveUntil(reqID, "TRACKING/PENDING")
	h.outside(0, common.Address{1}.String(), "0")
	h.mineUntil(reqID, "PROTECT")
}

// resync accepts the loss once it is finalized.
func (h *env) resync(named map[uint64]string) {
	h.t.Helper()
	h.mine(80)
	leave := txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "a stolen key", Count: 1, Requests: named}
	check.OK(h.t)(h.worker.ReleaseSubmitter(h.t.Context(), h.payer, leave))
}

// turning is a manager whose database becomes a restored copy just before the payout's row is read.
type turning struct {
	*manager
	turn func()
}

func (m turning) Payout(ctx context.Context, s txmanager.Submitter, requestID string) (store.Payout, error) {
	m.turn()
	return m.manager.Payout(ctx, s, requestID)
}

// H8: the transfer is read while the database is the one written last, and the payout's row when it
// is a copy. The row then counts neither as a failure, which would be refunded, nor as a payment.
func TestH08PayoutReadFromACopyIsInDoubt(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]func(*env, transfer.Transfer){
		"FAILED/CANCELLED": func(h *env, x transfer.Transfer) {
			refused(h.t, h.ledger.Resolve(h.t.Context(), transfer.Deposit, x.Call()), payout.Cancelled)
		},
		"CONFIRMED": func(h *env, x transfer.Transfer) {
			unknown(h.t, h.ledger.Deposit(h.t.Context(), x.Call()), payout.ErrPending)
			h.mineUntil(x.ReqID, "CONFIRMED")
			succeeds(h.t, h.ledger.Deposit(h.t.Context(), x.Call()))
		},
	} {
		h, x := newDue(t)
		end(h, x)
		h.wantManaged(x, want)
		l := payout.New(payout.Options{
			Families:  families,
			Transfers: h.Store, Manager: turning{h.manager, h.restore}, Tasks: h.tasks, QueueBound: 100,
			Finality: txmanager.ByConfirmations, Confirmations: confirmations, Log: slog.New(slog.DiscardHandler),
		})
		unknown(t, l.Deposit(t.Context(), x.Call()), payout.ErrInDoubt)
	}
}
