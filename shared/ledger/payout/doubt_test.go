package payout_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// accept makes the restored copy the accepted database.
func (h *env) accept(reason string) {
	h.t.Helper()
	check.OK(h.t)(h.db.Store.AcceptDatabase(h.t.Context(), "ann", reason))
}

// resume ends the halt of transfers that an acceptance begins.
func (h *env) resume() {
	h.t.Helper()
	h.run(`update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'ann', resume_reason = 'test' where resumed_at is null`)
}

// awaitFilled waits until the placeholders of the release are final.
func (h *env) awaitFilled() {
	h.t.Helper()
	h.awaitMined("the placeholders are final", func() bool {
		return value[int](h, `select count(*) from managed_tx where fills and state = 'FAILED'`) == filled
	})
}

// restored makes the database a restored, accepted and released one, at the chain's current
// transaction count.
func (h *env) restored(count uint64, named map[uint64]string) {
	h.t.Helper()
	h.restore()
	h.await("PROTECT is open", func() bool {
		_ = h.worker.ServeSubmitter(h.t.Context(), h.payer, txmanager.KindAdvance) // the worker detects the other database identity
		return value[bool](h, `select exists (select from protect_incident where closed_at is null)`)
	})
	h.accept("reconciled")
	h.mine(80)
	h.awaitServed("what consumed the nonces is read", func() bool { return value[uint64](h, `select count(*) from foreign_transaction`) == count })
	leave := txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "restored", Count: count, Requests: named}
	check.OK(h.t)(h.worker.ReleaseSubmitter(h.t.Context(), h.payer, leave))
	h.resume()
}

// says records an operator's statement.
func (h *env) says(reqID string, st store.PayoutStatement) {
	h.t.Helper()
	st.By, st.Reason = "ann", "looked at the explorer"
	check.OK(h.t)(h.db.Store.StatePayout(h.t.Context(), reqID, st))
}

// withdraws takes back the operator's statement.
func (h *env) withdraws(reqID, reason string) {
	h.t.Helper()
	check.OK(h.t)(h.db.Store.WithdrawStatement(h.t.Context(), reqID, "ann", reason))
}

func (h *env) ends(reqID string, want transfer.State, paid, has string) {
	h.t.Helper()
	h.drive(reqID, want)
	h.wantPaid(paid)
	h.has(coin, has)
}

// before prepares a payout in each state that a backup can have it in.
var before = map[string]func(h *env) transfer.Transfer{
	"INIT":           func(h *env) transfer.Transfer { return h.stored(coin) },
	"TARGET_PENDING": func(h *env) transfer.Transfer { return h.due(coin) },
}

// A payout is in the backup and its transaction is not: it was paid after the backup. It is neither
// posted nor refunded, by any caller, until an operator names the payment. Then the chain proves
// it, and the payout is COMMITTED.
func TestRestoredPayoutIsInDoubtUntilItsPaymentIsNamed(t *testing.T) {
	t.Parallel()
	for state, prepare := range before {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			h := newFunded(t)
			x := prepare(h)
			m := h.monitor()
			hash := h.outside(0, address, onePayment)
			h.restored(1, map[uint64]string{0: txmanager.NoRequest})
			named := value[string](h, `select coalesce(released -> 'requests' ->> '0', '') from protect_incident`)
			check.Equal(t, "nonce 0 in the record of the release", named, txmanager.NoRequest)
			h.drive(x.ReqID, transfer.TargetPending)
			h.wantUnknown(x, payout.ErrUnstated)
			if got := h.giveUp(x.ReqID); got.State != transfer.TargetPending || h.managed(x.ReqID) != "" {
				t.Fatalf("given up: got %s, transaction %q; want TARGET_PENDING and none", got.State, h.managed(x.ReqID))
			}
			if _, err := h.db.Store.Create(t.Context(), h.intentOf(x), 100); err == nil {
				t.Fatal("posted without reading the record: got no error, want a refusal by the database")
			}
			h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
			h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
			h.serve()
			h.wantManaged(x, "FAILED/CANCELLED") // nothing is sent for it
			check.Same(t, "conservation", found(t, m, true), []conservation.Kind(nil))
		})
	}
}

// A payout that is queued in the backup is in doubt too. If it is given up it is not refunded until
// its payment is named, or an operator states that there was none.
func TestRestoredQueuedPayoutIsNotRefunded(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.drive(x.ReqID, transfer.TargetPending)
	hash := h.outside(0, address, onePayment)
	h.restore()
	h.accept("reconciled")
	h.mine(80)
	h.release()
	if got := h.giveUp(x.ReqID); got.State != transfer.TargetPending || h.managed(x.ReqID) != "FAILED/CANCELLED" {
		t.Fatalf("given up: got %s, transaction %s; want TARGET_PENDING and FAILED/CANCELLED", got.State, h.managed(x.ReqID))
	}
	h.wantUnknown(x, payout.ErrUnstated)
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// A payout that was created after the restore is posted and paid as usual.
func TestPayoutCreatedAfterARestoreIsPaid(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.restored(0, nil)
	x := h.due(coin)
	h.confirm(x)
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// One transaction proves one payout. If it fits two, the operator chooses one, and the other stays
// in doubt. A wrong statement can be withdrawn.
func TestOneTransactionProvesOnePayout(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	x, y := h.due(coin), h.due(coin)
	hash := h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: txmanager.NoRequest})
	for _, one := range []transfer.Transfer{x, y} {
		h.says(one.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	}
	h.drive(x.ReqID, transfer.Committed)
	h.drive(y.ReqID, transfer.TargetPending)
	h.wantUnknown(y, store.ErrProofUsed)
	check.Equal(t, "transaction of the other, which is not proved", h.managed(y.ReqID), "")
	second := store.PayoutStatement{Refund: true, By: "bob", Reason: "another view"}
	check.Err(t, "a second statement", store.ErrStatementStands)(h.db.Store.StatePayout(t.Context(), y.ReqID, second))
	h.withdraws(y.ReqID, "it was the other one")
	h.wantUnknown(y, payout.ErrUnstated)
	check.Err(t, "withdraw what is proved", store.ErrNoStatement)(h.db.Store.WithdrawStatement(t.Context(), x.ReqID, "ann", "too late"))
	h.has(coin, "7")
}

// A named transaction is checked against the chain. It proves nothing if it has another recipient,
// amount or sender, has reverted, or is not final.
func TestNamedTransactionIsCheckedAgainstTheChain(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	elsewhere := h.outside(0, "0x00000000000000000000000000000000000000c4", onePayment)
	less := h.outside(1, address, "1499999999999999999")
	h.restored(2, nil)
	for name, hash := range map[string]string{"another recipient": elsewhere, "another amount": less} {
		h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
		if o := h.ledger.Deposit(t.Context(), x.Call()); !errors.Is(o.Err, payout.ErrNotProven) {
			t.Errorf("%s: got %s, %v; want ErrNotBorneOut", name, o.Verdict, o.Err)
		}
		h.withdraws(x.ReqID, "wrong")
	}
	young := h.outside(2, address, onePayment)
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: young})
	h.wantUnknown(x, payout.ErrPending)
	h.drive(x.ReqID, transfer.TargetPending)
	h.mine(confirmations)
	h.drive(x.ReqID, transfer.Committed)
	h.has(coin, "8.5")
}

// "Not paid" takes effect only once each nonce that lost bytes can have is consumed. Then the
// payout is paid again or refunded, as stated. Here the release has filled fewer nonces than were
// stated, and further payouts consume the rest.
func TestNotPaidTakesEffectWhenNothingLostCanBeMined(t *testing.T) {
	t.Parallel()
	for name, refund := range map[string]bool{"paid again": false, "given back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, x := newDue(t)
			h.restored(0, nil)
			h.says(x.ReqID, store.PayoutStatement{Refund: refund, NoncesBelow: filled + 2})
			h.wantUnknown(x, store.ErrNoncesOpen)
			first, second := h.due(coin), h.due(coin)
			h.confirm(first)
			h.wantUnknown(x, store.ErrNoncesOpen)
			h.drive(second.ReqID, transfer.TargetPending)
			h.serveUntil(second.ReqID, "TRACKING/PENDING")
			h.wantUnknown(x, store.ErrNoncesOpen)
			h.mineUntil(second.ReqID, "CONFIRMED")
			if refund {
				h.ends(x.ReqID, transfer.RolledBack, "3000000000000000000", "7")
				return
			}
			h.drive(x.ReqID, transfer.TargetPending)
			check.Err(t, "withdraw what has taken effect", store.ErrNoStatement)(h.db.Store.WithdrawStatement(t.Context(), x.ReqID, "ann", "too late"))
			h.mineUntil(x.ReqID, "CONFIRMED")
			h.ends(x.ReqID, transfer.Committed, "4500000000000000000", "5.5")
		})
	}
}

// A payout whose transaction is CONFIRMED without proof ends by an operator's statement, and the
// check of conservation counts it so. Either it is paid by its own transaction, or not paid and
// refunded.
func TestConfirmedWithoutProofEndsByAStatement(t *testing.T) {
	t.Parallel()
	for name, paid := range map[string]bool{"paid": true, "not paid": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEnv(t)
			h.deploy(contracts.Liar()) // emits no Transfer event
			x := h.due(token)
			m := h.monitor()
			h.confirm(x)
			h.wantUnknown(x, payout.ErrNotPaid)
			if !paid {
				h.says(x.ReqID, store.PayoutStatement{Refund: true})
				check.Equal(t, "reason", h.drive(x.ReqID, transfer.RolledBack).Reason, payout.NotPaid)
				h.has(token, "10")
			} else {
				h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: h.txHash(x)})
				h.drive(x.ReqID, transfer.Committed)
				h.has(token, "8.5")
			}
			check.Same(t, "conservation", found(t, m, true), []conservation.Kind(nil))
		})
	}
}

// The statement that a CONFIRMED payout was paid counts for the payout's own transaction. Another one of the payer
// proves nothing, and stays to be explained, also if it makes the same call.
func TestConfirmedWithoutProofIsNotPaidByAnotherTransaction(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	contract := h.deploy(contracts.Liar()) // emits no Transfer event
	x := h.due(token)
	call := check.Value(h.connector.ParsePayload(x.Payout.Payload))(t)
	h.confirm(x)
	others := []string{h.outside(1, "0x00000000000000000000000000000000000000c4", "5"), h.sends(accounts[0], 2, contract, "0", call.Data)}
	h.mine(confirmations + 1)
	for _, other := range others {
		h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: other})
		h.wantUnknown(x, payout.ErrNotProven)
		proof := store.PayoutProof{ChainID: x.Payout.ChainID, TxHash: other, LogIndex: store.OperatorDecided, Receipt: []byte(`{}`)}
		check.Err(t, "another's hash by an operator's decision", store.ErrProofUsed)(h.db.Store.ProvePayout(t.Context(), h.intentOf(x), proof))
		h.withdraws(x.ReqID, "another transaction")
	}
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: h.txHash(x)})
	h.drive(x.ReqID, transfer.Committed)
}

// A CONFIRMED transaction under the payout's request that makes another call is not the payout's payment, whatever
// an operator states.
func TestAnotherCallUnderTheRequestIsNotPaid(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	other := h.intentOf(x)
	other.Payload = []byte(`{"to": "0x00000000000000000000000000000000000000c4", "value": "5"}`)
	other.Fingerprint = sha256.Sum256(other.Payload)
	check.Value(h.db.Store.Create(t.Context(), other, 100))(t)
	h.mineUntil(x.ReqID, "CONFIRMED")
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: h.txHash(x)})
	h.wantUnknown(x, payout.ErrNotProven)
	check.Equal(t, "proofs", value[int](h, `select count(*) from payout_proof`), 0)
}

// A payout that a release has named ends by the transaction that consumed the nonce. A wrong name
// ends by the statement that it was not paid.
func TestNamedPayoutEndsByTheConsumingTransactionOrAStatement(t *testing.T) {
	t.Parallel()
	t.Run("named rightly", func(t *testing.T) {
		t.Parallel()
		h, x := newDue(t)
		h.outside(0, address, onePayment)
		h.restored(1, map[uint64]string{0: x.ReqID})
		h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
	})
	t.Run("named by mistake", func(t *testing.T) {
		t.Parallel()
		h, x := newDue(t)
		h.drive(x.ReqID, transfer.TargetPending)
		h.serveUntil(x.ReqID, "TRACKING/PENDING")
		h.outside(0, "0x00000000000000000000000000000000000000c4", "5")
		h.mineUntil(x.ReqID, "PROTECT")
		h.resync(map[uint64]string{0: x.ReqID})
		h.drive(x.ReqID, transfer.TargetPending)
		h.wantUnknown(x, payout.ErrNotProven)
		h.says(x.ReqID, store.PayoutStatement{Refund: true})
		h.ends(x.ReqID, transfer.RolledBack, "0", "10")
	})
}

// "Not paid" takes no effect while an unrecorded transaction makes the same call, until the
// operator names that transaction as another payment.
func TestNotPaidIsHeldAgainstWhatWasRead(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	hash := h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: txmanager.NoRequest})
	h.says(x.ReqID, store.PayoutStatement{NoncesBelow: 1})
	h.wantUnknown(x, store.ErrPaymentFound)
	h.withdraws(x.ReqID, "it was for another")
	h.says(x.ReqID, store.PayoutStatement{Refund: true, NoncesBelow: 1, OtherPayments: []string{hash}})
	h.ends(x.ReqID, transfer.RolledBack, onePayment, "10")
}

// The transaction of another request proves nothing, even if it makes the same payment.
func TestAnotherRequestsTransactionProvesNothing(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.restored(0, nil)
	y := h.due(coin)
	h.pay(y)
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: h.txHash(y)})
	h.wantUnknown(x, store.ErrProofUsed)
	h.wantManaged(x, "")
	h.has(coin, "7")
}

// A payout that was queued in the restored copy stays there. It continues once an operator has
// stated that it was not paid: it is paid again or refunded.
func TestHeldPayoutGoesOnByAStatement(t *testing.T) {
	t.Parallel()
	for name, refund := range map[string]bool{"paid again": false, "given back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, x := newDue(t)
			h.drive(x.ReqID, transfer.TargetPending)
			h.outside(0, "0x00000000000000000000000000000000000000d4", "1")
			h.restored(1, nil)
			check.Equal(t, "held after the acceptance", value[bool](h, `select held and state = 'QUEUED' from managed_tx where request_id = $1`, x.ReqID), true)
			h.drive(x.ReqID, transfer.TargetPending)
			h.serve()
			h.wantManaged(x, "QUEUED")
			h.says(x.ReqID, store.PayoutStatement{Refund: refund, NoncesBelow: 1})
			if refund {
				h.ends(x.ReqID, transfer.RolledBack, "0", "10")
				return
			}
			h.pay(x)
			h.wantPaid(onePayment)
		})
	}
}

// A new payout that makes the same call as a foreign transaction without a known request is held:
// its user may have repeated a lost one. An operator writes the foreign transaction off, and the
// payout is paid.
func TestNewPayoutLikeAForeignPaymentIsHeld(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.outside(0, address, onePayment)
	h.restored(1, nil)
	x := h.due(coin)
	h.drive(x.ReqID, transfer.TargetPending)
	h.serve()
	if !value[bool](h, `select held and state = 'QUEUED' and held_for = 'CALL' from managed_tx where request_id = $1`, x.ReqID) {
		t.Fatal("got it not held beside the payment that does the same")
	}
	h.wantPaid(onePayment) // the foreign payment alone
	h.giveUp(x.ReqID)
	h.wantManaged(x, "QUEUED") // it may be the one that was paid
	check.OK(t)(h.db.Store.WriteOff(t.Context(), store.HoldDecision{Submitter: h.payer, Limit: 9, By: "ann", Reason: "paid by hand, to somebody else"}))
	h.mineUntil(x.ReqID, "CONFIRMED")
	h.drive(x.ReqID, transfer.Committed)
}

// A repeated payout that an operator matches with its earlier payment ends by the proof of that
// payment.
func TestMatchedPayoutIsProved(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.outside(0, address, onePayment)
	h.restored(1, nil)
	x := h.due(coin)
	h.drive(x.ReqID, transfer.TargetPending)
	d := store.HoldDecision{Submitter: h.payer, Nonce: new(uint64), By: "ann", Reason: "the user's own repeat"}
	check.OK(t)(h.db.Store.MatchHold(t.Context(), d, h.txID(x)))
	h.says(x.ReqID, store.PayoutStatement{Refund: true}) // the chain proves the payment all the same
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// A payout of a token that logs nothing is matched with the payer's transaction. Nothing proves the payment, so
// that an operator decides, about that transaction alone.
func TestMatchedPayoutWithoutALogEndsByAStatement(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	contract := h.deploy(contracts.Liar()) // emits no Transfer event
	units, _ := new(big.Int).SetString(onePayment, 10)
	call := append(common.FromHex("0xa9059cbb"), make([]byte, 64)...) // transfer(address,uint256)
	call = withWord(withWord(call, 0, new(big.Int).SetBytes(common.FromHex(address))), 1, units)
	h.sends(accounts[0], 0, contract, "0", call)
	h.restored(1, nil)
	x := h.due(token)
	h.drive(x.ReqID, transfer.TargetPending)
	d := store.HoldDecision{Submitter: h.payer, Nonce: new(uint64), By: "ann", Reason: "the user's own repeat"}
	check.OK(t)(h.db.Store.MatchHold(t.Context(), d, h.txID(x)))
	h.wantUnknown(x, payout.ErrNotProven)
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: h.txHash(x)})
	h.drive(x.ReqID, transfer.Committed)
	check.Equal(t, "decided by an operator", value[int](h, `select log_index from payout_proof where req_id = $1`, x.ReqID), store.OperatorDecided)
}

// A statement does not cover what a later restore has lost. The payout may have been posted and
// paid after that backup.
func TestAStatementOfAnEarlierRestoreCountsNoMore(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.restored(0, nil)
	h.says(x.ReqID, store.PayoutStatement{})
	found := check.Value(h.db.Store.Payout(t.Context(), h.payer, x.ReqID))(t)
	// The coordinator stops before it posts, and the backup is made.
	check.OK(t)(h.db.Store.ActOnStatement(t.Context(), h.payer, x.ReqID, *found.Statement, [32]byte{}, true))
	h.restore()
	h.accept("reconciled again")
	h.release()
	h.resume()
	h.wantUnknown(x, payout.ErrUnstated)
	if _, err := h.db.Store.Create(t.Context(), h.intentOf(x), 100); err == nil {
		t.Error("posted: got no error, want the database to refuse it")
	}
	h.giveUp(x.ReqID)
	h.wantManaged(x, "")
	h.says(x.ReqID, store.PayoutStatement{})
	h.confirm(x)
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// A payout cannot be matched with a payment that proves another one. Once that payment is written
// off, the payout continues and is paid itself.
func TestPaymentOfAnotherPayoutCannotBeMatched(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	hash := h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: txmanager.NoRequest})
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	h.drive(x.ReqID, transfer.Committed)
	y := h.due(coin)
	h.drive(y.ReqID, transfer.TargetPending)
	d := store.HoldDecision{Submitter: h.payer, Nonce: new(uint64), Limit: 1, By: "ann", Reason: "a mistake"}
	check.Err(t, "match with a transaction that proves another payout", store.ErrProofUsed)(h.db.Store.MatchHold(t.Context(), d, h.txID(y)))
	check.Equal(t, "after the refusal",
		value[string](h, `select state || case when held then ' held' else '' end from managed_tx where request_id = $1`, y.ReqID), "QUEUED held")
	check.OK(t)(h.db.Store.WriteOff(t.Context(), d))
	h.mineUntil(y.ReqID, "CONFIRMED")
	h.drive(y.ReqID, transfer.Committed)
	check.Equal(t, "proofs by the transaction", value[int](h, `select count(*) from payout_proof where tx_hash = $1`, hash), 1)
}

// A proof by a foreign transaction waits while an operator matches that transaction with a request:
// only one of the two takes effect.
func TestProofWaitsForAConcurrentMatch(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	hash := h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: txmanager.NoRequest})
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	match := check.Value(h.db.DB.Begin(t.Context()))(t)
	defer func() { _ = match.Rollback(t.Context()) }()
	check.OK(t)(match.Exec(t.Context(), `select from foreign_hold where submitter = $1 and ended_at is null for update`, h.payer))
	proved := make(chan any, 1)
	go func() { proved <- h.ledger.Deposit(context.Background(), x.Call()) }()
	h.await("the proof waits", func() bool {
		return value[int](h, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) > 0
	})
	select {
	case got := <-proved:
		t.Errorf("while it is matched: got %v, want it to wait", got)
	default:
	}
	check.OK(t)(match.Rollback(t.Context()))
	<-proved
	check.Equal(t, "proofs after the match", value[int](h, `select count(*) from payout_proof where tx_hash = $1`, hash), 1)
}
