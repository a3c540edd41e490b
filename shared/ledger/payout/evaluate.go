package payout

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The reasons of a refusal, one for each way in which the managed transaction failed.
const (
	Rejected  transfer.Reason = "PAYOUT_REJECTED"  // its call would revert, so it was never sent
	Cancelled transfer.Reason = "PAYOUT_CANCELLED" // before it had a nonce, or before it was created
	Reverted  transfer.Reason = "PAYOUT_REVERTED"  // mined, and final
	Replaced  transfer.Reason = "PAYOUT_REPLACED"  // by the placeholder of its cancel
	Displaced transfer.Reason = "PAYOUT_DISPLACED" // a foreign transaction took its nonce
	Failed    transfer.Reason = "PAYOUT_FAILED"    // by a sub-state that this build does not know
	NotPaid   transfer.Reason = "PAYOUT_NOT_PAID"  // an operator stated it about a transaction that is CONFIRMED without proof
)

var reasons = map[txmanager.SubState]transfer.Reason{
	txmanager.Rejected: Rejected, txmanager.Cancelled: Cancelled, txmanager.Expired: Cancelled, txmanager.Reverted: Reverted, txmanager.Placeholder: Replaced, txmanager.Displaced: Displaced,
}

// evaluate returns the answer of the managed transaction's row.
func (l *Ledger) evaluate(ctx context.Context, op transfer.Op, t transfer.Transfer, found store.Payout) transfer.Outcome {
	c := t.Call()
	switch {
	case found.Foreign:
		return unknown(op, c, ErrInDoubt)
	case found.ProvedBy != "":
		return transfer.Outcome{Verdict: transfer.Success}
	case found.InDoubt():
		return l.blocked(ctx, op, c, ErrUnstated)
	case isConfirmedNotPaid(found), isRecordedNotPaid(found):
		return transfer.Outcome{Verdict: transfer.Refused, Reason: NotPaid}
	case found.TxID == "": // it was posted, and the reader lags behind the write
		return unknown(op, c, ErrPending)
	case found.Caller != store.PayoutCaller: // "" is the caller of a row that a release recorded
		return l.blocked(ctx, op, c, fmt.Errorf("made by %q: %w", found.Caller, ErrForeignRequest))
	case found.SubState == txmanager.RecordedOnChain, found.Taken && found.State.Terminal(): // an operator recorded that the payment is on the chain
		return l.blocked(ctx, op, c, fmt.Errorf("transaction %s: %w", found.TxID, ErrForeignRequest))
	case found.Protected && found.State == txmanager.Failed: // the failed payment may have been made on the chain
		return unknown(op, c, fmt.Errorf("transaction %s is %s/%s: %w", found.TxID, found.State, found.SubState, ErrInDoubt))
	case found.State == txmanager.Failed:
		return transfer.Outcome{Verdict: transfer.Refused, Reason: cmp.Or(reasons[found.SubState], Failed)}
	case found.State == txmanager.Confirmed:
		return l.evaluateConfirmed(ctx, op, t, found)
	}
	err := fmt.Errorf("transaction %s is %s: %w", found.TxID, found.State, ErrPending)
	if found.LastError != "" {
		err = fmt.Errorf("%w: %s", err, found.LastError)
	}
	return unknown(op, c, err)
}

// evaluateConfirmed returns success if the receipt of a CONFIRMED transaction proves the payment.
func (l *Ledger) evaluateConfirmed(ctx context.Context, op transfer.Op, t transfer.Transfer, found store.Payout) transfer.Outcome {
	if _, err := checkPaid(l.Families, *t.Payout, found.Payload, found.Receipt); err != nil {
		return l.blocked(ctx, op, t.Call(), fmt.Errorf("transaction %s: %w", found.TxID, err))
	}
	return transfer.Outcome{Verdict: transfer.Success}
}

// blocked returns Unknown. It logs a critical line if only a person can continue the payout.
func (l *Ledger) blocked(ctx context.Context, op transfer.Op, c transfer.Call, err error) transfer.Outcome {
	if policy := (store.PolicyError{}); errors.As(err, &policy) && policy.IsPermanent() {
		err = fmt.Errorf("%w: %w", ErrPolicyForbids, err)
	}
	for _, needsPerson := range []error{ErrNotPaid, ErrForeignRequest, ErrNotPayer, ErrPolicyForbids, ErrUnstated, ErrNotProven, store.ErrProofUsed, store.ErrPaymentFound} {
		if errors.Is(err, needsPerson) {
			l.Log.Log(ctx, telemetry.LevelCritical, "a payout waits for an operator: nothing is paid or refunded before",
				"reqId", c.ReqID, "userId", c.UserID, "assetId", c.AssetID, "units", c.Units, "error", err.Error())
		}
	}
	return unknown(op, c, err)
}

func unknown(op transfer.Op, c transfer.Call, err error) transfer.Outcome {
	return transfer.Outcome{Err: fmt.Errorf("%s of %s on the chain: %w", op, c.ReqID, err)}
}

// isPaid reports whether [checkPaid] finds the payment proved.
func isPaid(families chain.Families, p transfer.Payout, payload, receipt []byte) bool {
	_, err := checkPaid(families, p, payload, receipt)
	return err == nil
}

// checkPaid returns where the final receipt of a transaction proves the payment: the index of the Transfer event, or
// [store.CoinMoved]. If payload and receipt prove none, the error wraps [ErrNotPaid].
//
// A token must have emitted its Transfer event. A contract can return false, which the receipt does
// not show, or pass on less than was asked. The chain's own coin moves with the call itself.
func checkPaid(families chain.Families, p transfer.Payout, payload, receipt []byte) (logIndex int, err error) {
	if payload == nil || receipt == nil {
		return 0, fmt.Errorf("its payload or its receipt is missing: %w", ErrNotPaid)
	}
	family, err := families.Of(txmanager.Submitter(p.Submitter))
	if err != nil {
		return 0, err
	}
	_, want, err := family.ParsePayload(p.Payload)
	if err != nil {
		return 0, fmt.Errorf("%w: the transfer's %w", ErrNotPaid, err)
	}
	if _, got, err := family.ParsePayload(payload); err != nil || got != want {
		return 0, fmt.Errorf("its payload is not the transfer's: %w", ErrNotPaid)
	}
	proof, err := family.ReadProof(receipt)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotPaid, err)
	}
	called := p.Address
	if p.Token != "" {
		called = p.Token
	}
	from := txmanager.Submitter(p.Submitter).Address()
	if !proof.Succeeded || proof.From != from || proof.To.String() != called {
		return 0, fmt.Errorf("its receipt shows another call, or a failed one: %w", ErrNotPaid)
	}
	if p.Token == "" {
		return store.CoinMoved, nil
	}
	for _, e := range proof.Transfers {
		if isPayment(p, e) {
			return e.LogIndex, nil
		}
	}
	return 0, fmt.Errorf("its receipt has no Transfer of %s from %s to %s by %s: %w", p.BaseUnits, from, p.Address, p.Token, ErrNotPaid)
}

// isPayment reports whether the event is the transfer that the payout asks for.
func isPayment(p transfer.Payout, e chain.TokenTransfer) bool {
	from := txmanager.Submitter(p.Submitter).Address()
	return e.Token.String() == p.Token && e.From == from && e.To.String() == p.Address && e.Amount.String() == p.BaseUnits
}
