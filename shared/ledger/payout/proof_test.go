package payout_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const waits = "a payout waits for an operator"

// A payout of the chain's own coin is COMMITTED only at finality, and the address gets it once.
func TestCoinPayoutIsCommittedAtFinality(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	created, err := h.coordinator.Submit(t.Context(), h.request(coin), terms)
	if err != nil || created.State != transfer.TargetPending {
		t.Fatalf("submit: got %s, %v; want TARGET_PENDING", created.State, err)
	}
	check.Equal(t, "advance tasks", h.tasks.Load(), 1)
	h.has(coin, "8.5")
	for _, state := range []string{"TRACKING/PENDING", "TRACKING/INCLUDED"} {
		if state == "TRACKING/INCLUDED" {
			h.mine(1)
		}
		h.serveUntil(created.ReqID, state)
		h.drive(created.ReqID, transfer.TargetPending)
	}
	h.mineUntil(created.ReqID, "CONFIRMED")
	h.drive(created.ReqID, transfer.Committed)
	if got := h.paid(); got != onePayment || h.states(created.ReqID) != "0 10 20 30 40" {
		t.Errorf("paid %s, states %s; want %s, the ordinary states", got, h.states(created.ReqID), onePayment)
	}
	h.has(coin, "8.5")
	succeeds(t, h.ledger.Deposit(t.Context(), created.Call()))
	check.Equal(t, "critical lines", h.log.severe("CRITICAL", ""), 0)
}

// H14: a token that returns false without reverting, or passes on less, is CONFIRMED with status 1.
// The transfer stays, a critical line is logged, and a resolve changes nothing, because the record
// does not prove that it was not paid.
func TestH14ConfirmedIsNotPaid(t *testing.T) {
	t.Parallel()
	for name, contract := range map[string][]byte{"returns false": contracts.Liar(), "passes on less": contracts.Skimming()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEnv(t)
			h.deploy(contract)
			x := h.due(token)
			h.confirm(x)
			check.Equal(t, "the call succeeded", h.succeeded(x), true)
			h.drive(x.ReqID, transfer.TargetPending)
			h.wantUnknown(x, payout.ErrNotPaid)
			check.Equal(t, "critical lines", h.log.severe("CRITICAL", waits), 2)
			check.Equal(t, "after giving up", h.giveUp(x.ReqID).State, transfer.TargetPending)
			h.has(token, "8.5")
			check.Same(t, "journal", h.journal(), []transfer.Entry(nil))
		})
	}
}

// withWord replaces the word of call data at an index, counted from 0.
func withWord(data []byte, place int, word *big.Int) []byte {
	changed := append([]byte{}, data...)
	word.FillBytes(changed[4+32*place : 4+32*place+32])
	return changed
}

// Only its Transfer log proves a token payout. Another sender, contract, recipient or amount, or a
// coin payment, proves nothing, whether an operator states it or a release named it. None of them
// commits or refunds the payout.
func TestNoWrongNameCommitsAPayoutOfAToken(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	contract := h.deploy(contracts.Token())
	elsewhere := check.Value(contracts.Deploy(t.Context(), h.chain, accounts[2], contracts.Token()))(t).String()
	x := h.due(token)
	call := check.Value(h.connector.ParsePayload(x.Payout.Payload))(t)
	wrong := map[string]string{
		"another sender":    h.sends(accounts[1], 0, contract, "0", call.Data),
		"another contract":  h.sends(accounts[0], 0, elsewhere, "0", call.Data),
		"another recipient": h.sends(accounts[0], 1, contract, "0", withWord(call.Data, 0, big.NewInt(0xd5))),
		"another amount":    h.sends(accounts[0], 2, contract, "0", withWord(call.Data, 1, big.NewInt(7))),
		"the coin":          h.sends(accounts[0], 3, address, onePayment, nil),
	}
	right := h.sends(accounts[0], 4, contract, "0", call.Data)
	h.restored(5, map[uint64]string{0: x.ReqID, 4: txmanager.NoRequest})
	h.wantUnknown(x, payout.ErrNotProven) // nonce 0, as the release named it
	for name, hash := range wrong {
		h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
		if o := h.ledger.Deposit(t.Context(), x.Call()); o.Verdict != transfer.Unknown || !errors.Is(o.Err, payout.ErrNotProven) {
			t.Errorf("%s: got %s, %v; want it unknown, not borne out", name, o.Verdict, o.Err)
		}
		h.drive(x.ReqID, transfer.TargetPending)
		h.withdraws(x.ReqID, "wrong")
	}
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: right})
	h.drive(x.ReqID, transfer.Committed)
	check.Equal(t, "log index of the one log in its block", value[int](h, `select log_index from payout_proof where tx_hash = $1`, right), 0)
	h.has(token, "8.5")
}

// A transaction with the right call does not commit the payout if its log differs or it reverted.
func TestCallsThatDoNotPayCommitNothing(t *testing.T) {
	t.Parallel()
	for name, code := range map[string][]byte{"no log": contracts.Liar(), "a log of less": contracts.Skimming(), "reverted": contracts.Closed()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEnv(t)
			contract := h.deploy(code)
			x := h.due(token)
			call := check.Value(h.connector.ParsePayload(x.Payout.Payload))(t)
			hash := h.sends(accounts[0], 0, contract, "0", call.Data)
			h.restored(1, map[uint64]string{0: x.ReqID})
			h.wantUnknown(x, payout.ErrNotProven)
			h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
			h.wantUnknown(x, payout.ErrNotProven)
			h.drive(x.ReqID, transfer.TargetPending)
			check.Equal(t, "proofs", value[int](h, `select count(*) from payout_proof`), 0)
			h.has(token, "8.5")
		})
	}
}

// voices is the payer's chain as its first node shows it, with the answers of further nodes. Each
// is the real chain, altered by the node's false answers.
type voices struct {
	payout.Chain
	first  func(*txmanager.ChainObservation)
	others []func(*txmanager.ChainObservation)
	quorum int
}

func (c voices) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	v, err := c.Chain.Query(ctx, q)
	c.first(&v)
	v.Node, v.OtherNodes = "first", c
	return v, err
}

func (c voices) Quorum() int { return c.quorum }

func (c voices) QueryOthers(ctx context.Context, q txmanager.ChainQuery, _ int, _ ...string) (all []txmanager.ChainObservation) {
	for _, says := range c.others {
		v, err := c.Chain.Query(ctx, q)
		if err == nil {
			says(&v)
			all = append(all, v)
		}
	}
	return all
}

func (voices) QueryExcluded(context.Context, txmanager.ChainQuery, ...string) []txmanager.ChainObservation {
	return nil
}
func (voices) ReportOutvoted(context.Context, string, string) {}

// A quorum of nodes must show the payment. One false node neither commits a payout nor prevents the
// commit.
func TestPaymentNeedsAQuorumOfNodes(t *testing.T) {
	t.Parallel()
	truth := func(*txmanager.ChainObservation) {}
	hides := func(v *txmanager.ChainObservation) {
		for hash := range v.Receipts {
			v.Receipts[hash] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
		}
	}
	alters := func(change func(*txmanager.Receipt)) func(v *txmanager.ChainObservation) {
		return func(v *txmanager.ChainObservation) {
			for hash, a := range v.Receipts {
				change(&a.Receipt)
				v.Receipts[hash] = a
			}
		}
	}
	reverted := alters(func(r *txmanager.Receipt) { r.Succeeded = false })
	moved := alters(func(r *txmanager.Receipt) { r.BlockHash = txmanager.Hash{1} })
	otherChain := func(v *txmanager.ChainObservation) {
		for number := range v.HashesAt {
			v.HashesAt[number] = txmanager.Hash{1}
		}
	}
	young := func(v *txmanager.ChainObservation) { v.Head.Number = 0 }
	mute := func(v *txmanager.ChainObservation) { v.NoAnswer = true }
	h, x := newDue(t)
	hash := h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: txmanager.NoRequest})
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	deposit := func(first func(*txmanager.ChainObservation), others ...func(*txmanager.ChainObservation)) transfer.Outcome {
		l := h.newLedger(100)
		l.ChainOf = finalBy(voices{h.connector, first, others, 2}, txmanager.ByConfirmations, confirmations)
		return l.Deposit(t.Context(), x.Call())
	}
	for name, others := range map[string][]func(*txmanager.ChainObservation){
		"nobody else": nil, "the other has no receipt": {hides}, "the other says it reverted": {reverted}, "the other has it in another block": {moved},
		"the other is on another chain": {otherChain}, "the other is behind": {young}, "the other is not heard": {mute}, "two that lie": {hides, otherChain},
	} {
		if o := deposit(truth, others...); o.Verdict != transfer.Unknown || !errors.Is(o.Err, payout.ErrPending) {
			t.Errorf("%s: got %s, %v; want it pending", name, o.Verdict, o.Err)
		}
	}
	for name, first := range map[string]func(*txmanager.ChainObservation){"the first hides it": hides, "the first is behind": young, "the first is on another chain": otherChain} {
		if o := deposit(first, truth, truth); o.Verdict != transfer.Unknown || !errors.Is(o.Err, payout.ErrPending) {
			t.Errorf("%s: got %s, %v; want it pending", name, o.Verdict, o.Err)
		}
	}
	succeeds(t, deposit(truth, hides, reverted, truth)) // one of three others suffices beside the first
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// With finality by tag a payment proves nothing before its block is finalized, at any depth.
func TestPaymentIsProvedByTheFinalizedTag(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.ledger.ChainOf = finalBy(h.connector, txmanager.ByFinalized, 0)
	x := h.due(coin)
	h.restored(0, nil)
	h.awaitFilled()
	hash := h.outside(filled, address, onePayment)
	h.mine(10)
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	h.wantUnknown(x, payout.ErrPending)
	h.drive(x.ReqID, transfer.TargetPending)
	h.mine(80)
	h.drive(x.ReqID, transfer.Committed)
	h.has(coin, "8.5")
}

// A payout is in INIT in the backup, was paid after it, and Funding now refuses its withdrawal. It
// ends FAILED; nothing is posted or refunded. The payment stays named on record and counts for no
// other payout. The check of conservation finds it: the chain has paid, and no account was debited.
func TestPaidPayoutInInitWhoseWithdrawalIsRefused(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	x := h.stored(coin)
	h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: x.ReqID})
	succeeds(t, h.funding.OutsideWithdrawal(t.Context(), transfer.Call{ReqID: "booked again", UserID: user, AssetID: coin.ID, Units: 9e8}))
	if got := h.drive(x.ReqID, transfer.Failed); got.Reason == "" {
		t.Error("the reason: got none, want Funding's")
	}
	for range 3 {
		h.serve()
		h.mine(1)
	}
	if got := h.managed(x.ReqID); got != "CONFIRMED/RECORDED" || h.paid() != onePayment {
		t.Errorf("its transaction: got %s, %s paid; want it recorded, and paid once", got, h.paid())
	}
	h.has(coin, "1")
	m := h.onChain(1000)
	h.wantWrong("paid without a debit", m, "PAYMENT_DIFFERS")
	h.wantWrong("as before", m, "PAYMENT_DIFFERS")
}

// forgets is the payer's chain by a node that has only the state of its last blocks.
type forgets struct{ payout.Chain }

func (forgets) FindConsumingTx(context.Context, txmanager.Submitter, uint64) (txmanager.ConsumingTx, error) {
	return txmanager.ConsumingTx{}, fmt.Errorf("%w: the state of that block is not there any more", txmanager.ErrConsumerUnavailable)
}

// A payout that a release named is proved by the transaction that was read then, even if no node
// knows any more which transaction consumed the nonce.
func TestNamedPayoutIsProvedByTheTransactionReadBefore(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.ledger.ChainOf = finalBy(forgets{h.connector}, txmanager.ByConfirmations, confirmations)
	x := h.due(coin)
	h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: x.ReqID})
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// Nothing was read before the release that named a payout, and no node can answer any more. Then an
// operator is asked for the transaction's hash, which ends the payout.
func TestNamedPayoutWithoutEvidenceEndsByAStatement(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.ledger.ChainOf = finalBy(forgets{h.connector}, txmanager.ByConfirmations, confirmations)
	x := h.due(coin)
	hash := h.outside(0, address, onePayment)
	h.restored(1, map[uint64]string{0: x.ReqID})
	h.run(`delete from foreign_transaction`)
	out := h.ledger.Deposit(t.Context(), x.Call())
	if unknown(t, out, payout.ErrForeignRequest); !strings.Contains(fmt.Sprint(out.Err), "state whether it was paid") {
		t.Errorf("got %v, want a statement asked for", out.Err)
	}
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}

// With several chains the payer's own chain defines when a payment is final. A payment that is
// final by the default chain's rule alone proves nothing, and none waits for a tag that its chain
// does not have.
func TestPayersChainDefinesFinality(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.restored(0, nil)
	h.awaitFilled()
	hash := h.outside(filled, address, onePayment)
	h.mine(1)
	h.says(x.ReqID, store.PayoutStatement{Paid: true, TxHash: hash})
	deposit := func(other txmanager.Finality, depth uint64, own txmanager.Finality, ownDepth uint64) transfer.Outcome {
		l := h.newLedger(100)
		l.Finality, l.Confirmations = other, depth
		l.ChainOf = func(s txmanager.Submitter) (payout.PayerChain, error) {
			if s != h.payer {
				t.Errorf("asked of %s, want the payer", s)
			}
			return payout.PayerChain{Chain: h.connector, Finality: own, Confirmations: ownDepth}, nil
		}
		return l.Deposit(t.Context(), x.Call())
	}
	unknown(t, deposit(txmanager.ByConfirmations, 1, txmanager.ByFinalized, 0), payout.ErrPending)
	unknown(t, deposit(txmanager.ByConfirmations, 1, txmanager.ByConfirmations, 1000), payout.ErrPending)
	succeeds(t, deposit(txmanager.ByFinalized, 0, txmanager.ByConfirmations, 1))
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
}
