package payout

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Chain is a payer's chain, read for a proof. It is a part of [nonce.ChainConnector],
// and one call more.
type Chain interface {
	Call(payload []byte) (nonce.Call, error)
	Look(ctx context.Context, q nonce.Look) (nonce.View, error)
	Taken(ctx context.Context, s nonce.Submitter, n uint64) (nonce.Taker, error)
	Transaction(ctx context.Context, hash nonce.Hash) (evm.Transaction, error)
}

// needsEvidence says that the record alone cannot tell whether the payout was paid.
func needsEvidence(t transfer.Transfer, found store.Payout) bool {
	switch {
	case found.Foreign || found.ProvedBy != "":
		return false
	case found.InDoubt():
		return true
	case found.Taken && (found.TxID == "" || found.State.Final()): // a release has named it
		return !notPaid(found)
	case matched(found):
		return !confirmedNotPaid(found)
	case found.State == nonce.Confirmed && found.Caller == store.PayoutCaller:
		return !confirmedNotPaid(found) && paid(*t.Payout, found.Payload, found.Receipt) != nil
	}
	return false
}

// Doubtful says whether an operator's statement about the payout would count: the record
// cannot tell whether it was paid, and it has not ended.
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
	return found, needsEvidence(t, found), nil
}

// own says that the coordinator's own transaction is CONFIRMED: where it proves nothing
// an operator decides, and nothing that was lost can be meant.
func own(found store.Payout) bool {
	return found.State == nonce.Confirmed && found.Caller == store.PayoutCaller && !found.Taken && !matched(found)
}

// matched says that an operator has matched the coordinator's request with a foreign
// transaction: what that one paid is to be proved.
func matched(found store.Payout) bool {
	return found.SubState == nonce.RecordedOnChain && found.Caller == store.PayoutCaller && !found.Taken
}

// statement is what an operator says of the payout as it stands now: what was said of
// lost transactions is not about one that is CONFIRMED.
func statement(found store.Payout) *store.PayoutStatement {
	if s := found.Statement; s != nil && s.OfConfirmed == (found.State == nonce.Confirmed) {
		return s
	}
	return nil
}

// statesPaid says that an operator's statement has it paid.
func statesPaid(found store.Payout) bool {
	said := statement(found)
	return said != nil && said.Paid
}

// confirmedNotPaid says that an operator's statement has taken effect that the payout's
// own transaction, which is CONFIRMED, did not pay.
func confirmedNotPaid(found store.Payout) bool {
	said := statement(found)
	return found.State == nonce.Confirmed && said != nil && said.Acted
}

// recordedNotPaid is confirmedNotPaid of a request that a release has put on record as
// failed, for a name that was wrong.
func recordedNotPaid(found store.Payout) bool {
	return found.TxID != "" && found.Caller != store.PayoutCaller && found.State == nonce.Failed && !found.Taken && notPaid(found)
}

// notPaid says that an operator's statement has taken effect that nothing which was lost,
// or which a release named, paid it.
func notPaid(found store.Payout) bool {
	said := statement(found)
	return said != nil && said.Acted
}

// takeEvidence tries what an operator, or a release, said of the payout, and reads the
// record again. Without such a word it changes nothing.
func (l *Ledger) takeEvidence(ctx context.Context, t transfer.Transfer, found store.Payout) (store.Payout, error) {
	if !needsEvidence(t, found) || t.State != transfer.TargetPending {
		return found, nil
	}
	var err error
	switch said := statement(found); {
	case said != nil && said.Paid:
		err = l.prove(ctx, t, found, said.TxHash, said.ID)
	case matched(found) && found.TakenAt != nil:
		if err = l.proveNamed(ctx, t, found); said != nil && (errors.Is(err, ErrNotBorneOut) || errors.Is(err, store.ErrProofUsed)) {
			err = l.act(ctx, t, found, *said)
		}
	case said != nil && !said.Acted:
		err = l.act(ctx, t, found, *said)
	case found.Taken && found.TakenAt != nil:
		err = l.proveNamed(ctx, t, found)
	default:
		return found, nil
	}
	if err != nil {
		return found, err
	}
	return l.Manager.Payout(ctx, payer(t), t.ReqID)
}

// act lets the statement that the payout was not paid take effect.
func (l *Ledger) act(ctx context.Context, t transfer.Transfer, found store.Payout, said store.PayoutStatement) error {
	chain, err := l.chainOf(t)
	if err != nil {
		return err
	}
	call, err := chain.Call(t.Payout.Payload)
	if err != nil {
		return fmt.Errorf("the transfer's payload: %w", err)
	}
	return l.Manager.ActOnStatement(ctx, payer(t), t.ReqID, said, call.Digest(), found.Older && !own(found))
}

// proveNamed proves the payout by the transaction that took the nonce which a release
// named it for, as it was read before that release. A node may tell of the last blocks
// alone by which transaction a nonce was consumed.
func (l *Ledger) proveNamed(ctx context.Context, t transfer.Transfer, found store.Payout) error {
	if found.TakenBy != "" {
		if err := l.prove(ctx, t, found, found.TakenBy, 0); err != nil {
			return fmt.Errorf("%w: a release, or an operator, named it for nonce %d: %w", ErrTaken, *found.TakenAt, err)
		}
		return nil
	}
	chain, err := l.chainOf(t)
	if err != nil {
		return err
	}
	taker, err := chain.Taken(ctx, payer(t), *found.TakenAt) // nothing was read before the release
	if errors.Is(err, nonce.ErrNotTold) {
		err = fmt.Errorf("state whether it was paid, with the transaction's hash if it was: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%w: a release, or an operator, named it for nonce %d: %w", ErrTaken, *found.TakenAt, err)
	}
	if err := l.prove(ctx, t, found, taker.Hash.String(), 0); err != nil {
		return fmt.Errorf("%w: a release, or an operator, named it for nonce %d: %w", ErrTaken, *found.TakenAt, err)
	}
	return nil
}

func (l *Ledger) chainOf(t transfer.Transfer) (Chain, error) {
	if l.ChainOf == nil {
		return nil, errors.New("no chain is configured to read a proof from")
	}
	return l.ChainOf(payer(t))
}

// prove records that the transaction paid the payout, if the chain bears that out at
// finality, and nothing can be sent for the payout any more. Otherwise the error wraps
// [ErrNotBorneOut] where a person must look, or [ErrPending].
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
	if found.TxID != "" && !found.State.Final() { // in the queue: it must never run
		if found, err = l.cancelQueued(ctx, in, t, found); err != nil {
			return err
		}
	}
	return l.Manager.ProvePayout(ctx, in, proof)
}

// cancelQueued ends a payout that waits in the queue, and of which it is known by now
// that something else paid it.
func (l *Ledger) cancelQueued(ctx context.Context, in store.Intent, t transfer.Transfer, found store.Payout) (store.Payout, error) {
	if _, err := l.Manager.CancelPayout(ctx, in, "another transaction paid transfer "+t.ReqID); err != nil {
		return found, err
	}
	found, err := l.Manager.Payout(ctx, payer(t), t.ReqID)
	if err == nil && !found.State.Final() {
		err = fmt.Errorf("transaction %s is %s, and must end first: %w", in.RequestID, found.State, ErrPending)
	}
	return found, err
}

// proofOf reads the chain: the transaction is the payer's and does what the payout
// wants, and its receipt is final and says that it succeeded.
func (l *Ledger) proofOf(ctx context.Context, t transfer.Transfer, found store.Payout, hash string) (store.PayoutProof, error) {
	proof := store.PayoutProof{ChainID: t.Payout.ChainID, TxHash: hash, LogIndex: store.CoinMoved}
	chain, err := l.chainOf(t)
	if err != nil {
		return proof, err
	}
	h, err := nonce.ParseHash(hash)
	if err != nil {
		return proof, fmt.Errorf("%w: %w", ErrNotBorneOut, err)
	}
	tx, err := chain.Transaction(ctx, h)
	if err != nil {
		return proof, err
	}
	want, err := chain.Call(t.Payout.Payload)
	if err != nil {
		return proof, fmt.Errorf("%w: the transfer's %w", ErrNotBorneOut, err)
	}
	if tx.From != payer(t).Address() || !own(found) && !want.Does(tx.Does) {
		return proof, fmt.Errorf("it is not the payer's, or does not do what the payout wants (to, value and data): %w", ErrNotBorneOut)
	}
	receipt, err := l.finalReceipt(ctx, chain, payer(t), h)
	if err != nil {
		return proof, err
	}
	proof.BlockNumber, proof.Receipt = receipt.BlockNumber, receipt.Document
	err = paid(*t.Payout, t.Payout.Payload, receipt.Document)
	switch {
	case err != nil && (own(found) || matched(found) && statesPaid(found)) && receipt.Succeeded:
		proof.LogIndex = store.OperatorDecided
		return proof, nil
	case err != nil:
		return proof, fmt.Errorf("%w: %w", ErrNotBorneOut, err)
	case t.Payout.Token != "":
		proof.LogIndex, err = transferIndex(*t.Payout, receipt.Document)
	}
	return proof, err
}

// finalReceipt is the receipt of a transaction in a block that is final, as a quorum of
// the chain's nodes gives it.
func (l *Ledger) finalReceipt(ctx context.Context, chain Chain, s nonce.Submitter, h nonce.Hash) (r nonce.Receipt, err error) {
	f, err := l.finalityOf(s)
	if err != nil {
		return r, err
	}
	q := nonce.Look{Submitter: s, Receipts: []nonce.Hash{h}}
	if f.mode == nonce.ByFinalized {
		q.Finality = string(nonce.ByFinalized)
	}
	v, err := chain.Look(ctx, q)
	if err != nil {
		return r, err
	}
	r, final := f.finalIn(v, h)
	if !final {
		return r, fmt.Errorf("it is not final yet: %w", ErrPending)
	}
	q.Watch = []uint64{r.BlockNumber}
	if v, err = chain.Look(ctx, q); err != nil {
		return r, err
	}
	if !f.bearsOut(v, h, r) {
		return r, fmt.Errorf("its block is not the chain's any more: %w", ErrPending)
	}
	if v.Witnesses == nil {
		return r, nil
	}
	agree := 1
	for _, other := range v.Witnesses.Ask(ctx, q, witnessesMost, v.Node) {
		if f.bearsOut(other, h, r) {
			agree++
		}
	}
	if need := v.Witnesses.Quorum(); agree < need {
		return r, fmt.Errorf("%d nodes show its final receipt, and %d must: %w", agree, need, ErrPending)
	}
	return r, nil
}

// witnessesMost is how many other nodes are asked for a proof.
const witnessesMost = 16

// finality is by what a payer's transactions are final.
type finality struct {
	mode          nonce.Finality
	confirmations uint64
}

func (l *Ledger) finalityOf(s nonce.Submitter) (f finality, err error) {
	if l.FinalityOf == nil {
		return finality{l.Finality, l.Confirmations}, nil
	}
	f.mode, f.confirmations, err = l.FinalityOf(s)
	return f, err
}

// finalIn is the receipt in a view, and whether its block is final there.
func (f finality) finalIn(v nonce.View, h nonce.Hash) (nonce.Receipt, bool) {
	answer := v.Receipts[h]
	r := answer.Receipt
	if answer.Answer != nonce.AnswerFound || r.TxHash != h {
		return r, false
	}
	if f.mode == nonce.ByFinalized {
		return r, v.Tagged != nil && r.BlockNumber <= v.Tagged.Number
	}
	return r, v.Head.Number >= r.BlockNumber && v.Head.Number-r.BlockNumber+1 >= f.confirmations
}

// bearsOut says that a view has the same receipt, final, in a block of its chain.
func (f finality) bearsOut(v nonce.View, h nonce.Hash, r nonce.Receipt) bool {
	same, final := f.finalIn(v, h)
	return !v.Silent && final && same.BlockHash == r.BlockHash && same.Succeeded == r.Succeeded && v.Watched[r.BlockNumber] == r.BlockHash
}

// transferIndex is the place in its block of the Transfer event that paid.
func transferIndex(p transfer.Payout, receipt []byte) (int, error) {
	read, err := evm.ReadProof(receipt)
	if err != nil {
		return 0, err
	}
	for _, e := range read.Transfers {
		if pays(p, e) {
			return e.LogIndex, nil
		}
	}
	return 0, fmt.Errorf("no Transfer event: %w", ErrNotBorneOut)
}
