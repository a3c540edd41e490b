package payout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Chain is a chain from which proofs and payments are read. [chain.Node] is one node of it.
type Chain interface {
	txmanager.ChainConnector
	Payments(ctx context.Context, q chain.PaymentsQuery) (chain.Payments, error)
	PaymentsStart(ctx context.Context, q chain.PaymentsQuery, before time.Time) (chain.PaymentsStart, error)
}

// PayerChain is a payer's chain with the manager's rule there: when a payment, or its failure, counts.
type PayerChain struct {
	Chain
	Finality      txmanager.Finality
	Confirmations uint64
}

// needsEvidence reports whether the record alone cannot show if the payout was paid.
func (l *Ledger) needsEvidence(t transfer.Transfer, found store.Payout) bool {
	switch {
	case found.Foreign || found.ProvedBy != "":
		return false
	case found.InDoubt():
		return true
	case found.Taken && (found.TxID == "" || found.State.Terminal()): // a release has named it
		return !isNotPaid(found)
	case isMatched(found):
		return !isConfirmedNotPaid(found)
	case found.State == txmanager.Confirmed && found.Caller == store.PayoutCaller:
		return !isConfirmedNotPaid(found) && !isPaid(l.Families, *t.Payout, found.Payload, found.Receipt)
	}
	return false
}

// Doubtful reports whether an operator's statement about the payout would take effect: the record
// cannot show if it was paid, and the transfer is open.
func (l *Ledger) Doubtful(ctx context.Context, t transfer.Transfer) (store.Payout, bool, error) {
	if t.Type != transfer.FundingToChain || t.Payout == nil || t.State.Terminal() || t.State == transfer.Compensating {
		return store.Payout{}, false, nil
	}
	found, err := l.Manager.Payout(ctx, payer(t), t.ReqID)
	if err != nil {
		return found, false, err
	}
	if found.Foreign {
		return found, false, ErrInDoubt
	}
	return found, l.needsEvidence(t, found), nil
}

// isOwnConfirmed reports whether the coordinator's own transaction is CONFIRMED. If its receipt
// proves no payment, an operator decides; a lost transaction cannot have paid it.
func isOwnConfirmed(found store.Payout) bool {
	return found.State == txmanager.Confirmed && found.Caller == store.PayoutCaller && !found.Taken && !isMatched(found)
}

// isMatched reports whether an operator has matched the coordinator's request with a foreign
// transaction. That transaction's payment must then be proved.
func isMatched(found store.Payout) bool {
	return found.SubState == txmanager.RecordedOnChain && found.Caller == store.PayoutCaller && !found.Taken
}

// statement returns the operator's statement that applies to the payout's present state. A
// statement about lost transactions does not apply to a CONFIRMED one.
func statement(found store.Payout) *store.PayoutStatement {
	if s := found.Statement; s != nil && s.OfConfirmed == (found.State == txmanager.Confirmed) {
		return s
	}
	return nil
}

// isConfirmedNotPaid reports whether a statement has taken effect that the payout's own CONFIRMED
// transaction did not pay.
func isConfirmedNotPaid(found store.Payout) bool {
	return found.State == txmanager.Confirmed && isNotPaid(found)
}

// isRecordedNotPaid is isConfirmedNotPaid for a request that a release recorded as FAILED under a
// wrong name.
func isRecordedNotPaid(found store.Payout) bool {
	return found.TxID != "" && found.Caller != store.PayoutCaller && found.State == txmanager.Failed && !found.Taken && isNotPaid(found)
}

// isNotPaid reports whether a statement has taken effect that no lost or named transaction paid the
// payout.
func isNotPaid(found store.Payout) bool {
	said := statement(found)
	return said != nil && said.Acted
}

// readWithEvidence reads the record. If there is an operator's statement or a release's name for the
// payout, it applies that and reads the record again.
func (l *Ledger) readWithEvidence(ctx context.Context, t transfer.Transfer) (store.Payout, error) {
	found, err := l.Manager.Payout(ctx, payer(t), t.ReqID)
	if err != nil || !l.needsEvidence(t, found) || t.State != transfer.TargetPending {
		return found, err
	}
	if applied, err := l.applyEvidence(ctx, t, found); err != nil || !applied {
		return found, err
	}
	return l.Manager.Payout(ctx, payer(t), t.ReqID)
}

// applyEvidence reports whether there is a statement or a name.
func (l *Ledger) applyEvidence(ctx context.Context, t transfer.Transfer, found store.Payout) (applied bool, err error) {
	switch said := statement(found); {
	case said != nil && said.Paid:
		return true, l.prove(ctx, t, found, said.TxHash, said.ID)
	case isMatched(found) && found.TakenAt != nil:
		if err = l.proveNamed(ctx, t, found); said != nil && (errors.Is(err, ErrNotProven) || errors.Is(err, store.ErrProofUsed)) {
			err = l.act(ctx, t, found, *said)
		}
		return true, err
	case said != nil && !said.Acted:
		return true, l.act(ctx, t, found, *said)
	case found.Taken && found.TakenAt != nil:
		return true, l.proveNamed(ctx, t, found)
	}
	return false, nil
}

// act makes the statement that the payout was not paid take effect.
func (l *Ledger) act(ctx context.Context, t transfer.Transfer, found store.Payout, said store.PayoutStatement) error {
	chain, err := l.ChainOf(payer(t))
	if err != nil {
		return err
	}
	call, err := chain.ParsePayload(t.Payout.Payload)
	if err != nil {
		return fmt.Errorf("the transfer's payload: %w", err)
	}
	return l.Manager.ActOnStatement(ctx, payer(t), t.ReqID, said, call.Digest(), found.Older && !isOwnConfirmed(found))
}

// proveNamed proves the payout by the transaction that consumed the nonce which a release named. It
// uses the transaction that was read before the release, because a node may know only for the last
// blocks which transaction consumed a nonce.
func (l *Ledger) proveNamed(ctx context.Context, t transfer.Transfer, found store.Payout) error {
	hash := found.TakenBy
	var err error
	if hash == "" { // none was read before the release
		chain, unread := l.ChainOf(payer(t))
		if unread != nil {
			return unread
		}
		var taker txmanager.ConsumingTx
		taker, err = chain.FindConsumingTx(ctx, payer(t), *found.TakenAt)
		if hash = taker.Hash.String(); errors.Is(err, txmanager.ErrConsumerUnavailable) {
			err = fmt.Errorf("state whether it was paid, with the transaction's hash if it was: %w", err)
		}
	}
	if err == nil {
		err = l.prove(ctx, t, found, hash, 0)
	}
	if err != nil {
		return fmt.Errorf("%w: a release, or an operator, named it for nonce %d: %w", ErrForeignRequest, *found.TakenAt, err)
	}
	return nil
}

// prove records that the transaction paid the payout, once the chain proves it at finality and
// nothing more can be sent for the payout. Otherwise the error wraps [ErrPending], or
// [ErrNotProven] if an operator must act.
func (l *Ledger) prove(ctx context.Context, t transfer.Transfer, found store.Payout, hash string, statement int64) error {
	proof, err := l.proofOf(ctx, t, found, hash)
	if err != nil {
		return fmt.Errorf("transaction %s: %w", hash, err)
	}
	proof.Statement = statement
	in, err := intent(t)
	if err != nil {
		return err
	}
	if found.TxID != "" && !found.State.Terminal() { // it is queued and must never be sent
		if found, err = l.cancelQueued(ctx, in, t, found); err != nil {
			return err
		}
	}
	return l.Manager.ProvePayout(ctx, in, proof)
}

// cancelQueued cancels a queued payout that another transaction has paid.
func (l *Ledger) cancelQueued(ctx context.Context, in store.Intent, t transfer.Transfer, found store.Payout) (store.Payout, error) {
	if _, err := l.Manager.CancelPayout(ctx, in, "another transaction paid transfer "+t.ReqID); err != nil {
		return found, err
	}
	found, err := l.Manager.Payout(ctx, payer(t), t.ReqID)
	if err == nil && !found.State.Terminal() {
		err = fmt.Errorf("transaction %s is %s, and must end first: %w", in.RequestID, found.State, ErrPending)
	}
	return found, err
}

// proofOf reads the proof from the chain: the transaction is the payer's, makes the payout's call,
// and has a final receipt of success. About the transaction on record an operator may decide without
// a proof of its payment.
func (l *Ledger) proofOf(ctx context.Context, t transfer.Transfer, found store.Payout, hash string) (store.PayoutProof, error) {
	proof := store.PayoutProof{ChainID: t.Payout.ChainID, TxHash: hash}
	said := statement(found)
	receipt, err := l.paymentReceipt(ctx, t, hash)
	if err != nil {
		return proof, err
	}
	proof.BlockNumber, proof.Receipt = receipt.BlockNumber, receipt.Document
	proof.LogIndex, err = checkPaid(l.Families, *t.Payout, t.Payout.Payload, receipt.Document)
	switch {
	case err != nil && hash == found.TxHash && (isOwnConfirmed(found) || isMatched(found) && said != nil && said.Paid) && receipt.Succeeded:
		proof.LogIndex = store.OperatorDecided
	case err != nil:
		return proof, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return proof, nil
}

// paymentReceipt returns the final receipt of the payer's transaction, which must make the payout's
// call.
func (l *Ledger) paymentReceipt(ctx context.Context, t transfer.Transfer, hash string) (r txmanager.Receipt, err error) {
	chain, err := l.ChainOf(payer(t))
	if err != nil {
		return r, err
	}
	h, err := txmanager.ParseHash(hash)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	tx, err := chain.Transaction(ctx, h)
	if err != nil {
		return r, err
	}
	want, err := chain.ParsePayload(t.Payout.Payload)
	if err != nil {
		return r, fmt.Errorf("%w: the transfer's %w", ErrNotProven, err)
	}
	if tx.From != payer(t).Address() || !want.Does(tx.Tx) {
		return r, fmt.Errorf("it is not from the payer, or its to, value or data differ from the payout's: %w", ErrNotProven)
	}
	return l.finalReceipt(ctx, chain, payer(t), h)
}

// finalReceipt returns the receipt of a transaction in a final block, agreed by a quorum of nodes.
func (l *Ledger) finalReceipt(ctx context.Context, chain PayerChain, s txmanager.Submitter, h txmanager.Hash) (r txmanager.Receipt, err error) {
	q := txmanager.ChainQuery{Submitter: s, Receipts: []txmanager.Hash{h}}
	if chain.Finality == txmanager.ByFinalized {
		q.Finality = string(txmanager.ByFinalized)
	}
	v, err := chain.Query(ctx, q)
	if err != nil {
		return r, err
	}
	r, final := chain.finalIn(v, h)
	if !final {
		return r, fmt.Errorf("it is not final yet: %w", ErrPending)
	}
	q.HashesAt = []uint64{r.BlockNumber}
	if v, err = chain.Query(ctx, q); err != nil {
		return r, err
	}
	if !chain.agrees(v, h, r) {
		return r, fmt.Errorf("its block is no longer canonical: %w", ErrPending)
	}
	if v.OtherNodes == nil {
		return r, nil
	}
	agree := 1
	for _, other := range v.OtherNodes.QueryOthers(ctx, q, maxVoters, v.Node) {
		if chain.agrees(other, h, r) {
			agree++
		}
	}
	if need := v.OtherNodes.Quorum(); agree < need {
		return r, fmt.Errorf("%d nodes have its final receipt, want %d: %w", agree, need, ErrPending)
	}
	return r, nil
}

// maxVoters bounds how many other nodes are queried for a proof.
const maxVoters = 16

// finalIn returns the receipt in an observation, and whether its block is final there.
func (c PayerChain) finalIn(v txmanager.ChainObservation, h txmanager.Hash) (txmanager.Receipt, bool) {
	answer := v.Receipts[h]
	r := answer.Receipt
	if answer.Answer != txmanager.AnswerFound || r.TxHash != h {
		return r, false
	}
	if c.Finality == txmanager.ByFinalized {
		return r, v.Tagged != nil && r.BlockNumber <= v.Tagged.Number
	}
	return r, v.Head.Number >= r.BlockNumber && v.Head.Number-r.BlockNumber+1 >= c.Confirmations
}

// agrees reports whether an observation has the same receipt, final, in a canonical block.
func (c PayerChain) agrees(v txmanager.ChainObservation, h txmanager.Hash, r txmanager.Receipt) bool {
	same, final := c.finalIn(v, h)
	return !v.NoAnswer && final && same.BlockHash == r.BlockHash && same.Succeeded == r.Succeeded && v.HashesAt[r.BlockNumber] == r.BlockHash
}
