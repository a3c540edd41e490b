// Package payout is the ledger of payouts. Its deposit is a payment on a chain, made by the
// transaction manager as a managed transaction whose request id is the transfer's req_id.
//
// The transfer's row fixes payer, recipient, amount and payload at its creation ([Prepare]), and
// each attempt posts exactly these bytes. Only the managed transaction's row decides the result of
// a deposit:
//
//	CONFIRMED, with proof of payment      Success
//	CONFIRMED, without                    Unknown, and CRITICAL: an operator states whether it was paid
//	FAILED, in any sub-state              Refused: it is final, and never sent again;
//	                                      Unknown while the payer is in PROTECT, and
//	                                      if a release recorded that it was paid
//	any other state                       Unknown: ask again
//	no row                                the payout is posted; Unknown
//
// There is one exception. A payout that was created before the last change of the database
// identity, and has no nonce, is in doubt: a lost transaction may have paid it. It is neither
// posted nor refused until an operator has stated for this req_id that it was not paid, or a
// transaction of the payer proves the payment. A proof ([store.Store.ProvePayout]) is Success,
// whatever state the row has.
//
// The manager's response to the post decides nothing: PROTECT, a conflict, a full queue, an error
// and a missing response are all Unknown. To give a payout up is to cancel it ([Ledger.Resolve]).
// If there is no row the cancel writes a FAILED one, so that a post that is still under way cannot
// run. So a payout is made once, or refunded once.
//
// The manager admits no other caller to a payer: see [store.PayoutCaller].
package payout

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Transfers reads the row that fixed the payout.
type Transfers interface {
	// Load wraps [transfer.ErrNotFound] if there is none.
	Load(ctx context.Context, reqID string) (transfer.Transfer, error)
}

// Manager is the port to the transaction manager's record. [store.Store] implements it. After an
// error the call may or may not have happened. Each call can be repeated.
type Manager interface {
	// Payout reads the record. A missing record is no error.
	Payout(ctx context.Context, s txmanager.Submitter, requestID string) (store.Payout, error)

	// Create stores the intent in the queue, or returns the stored one.
	Create(ctx context.Context, in store.Intent, queueBound int) (store.StoredIntent, error)

	// CancelPayout prevents the request from being carried out, if that is still possible.
	CancelPayout(ctx context.Context, in store.Intent, reason string) (store.Payout, error)

	// ActOnStatement makes the statement that the payout was not paid take effect. With lostBytes
	// it does so only once no lost transaction can be mined any more. It never does so while a
	// foreign transaction with the same call belongs to no request.
	ActOnStatement(ctx context.Context, s txmanager.Submitter, requestID string, st store.PayoutStatement, call [32]byte, lostBytes bool) error

	// ProvePayout records that the transaction paid the request, and that nothing more is sent for
	// it.
	ProvePayout(ctx context.Context, in store.Intent, proof store.PayoutProof) error
}

// Options are the parts of a ledger.
type Options struct {
	Transfers  Transfers
	Families   chain.Families // of the payers
	Manager    Manager
	Tasks      txmanager.TaskEnqueuer // if it fails, the sweep finds the payout
	QueueBound int                    // queue.maxPerSubmitter

	ChainOf func(payer txmanager.Submitter) (PayerChain, error)

	// Finality and Confirmations are the weakest rule of all chains. They decide whether payouts are on.
	Finality      txmanager.Finality
	Confirmations uint64

	Log *slog.Logger
	At  func(point string) // called at each crash point, payout.*; nil outside tests
}

// Ledger is the [transfer.Ledger] of [transfer.Chain]. It keeps no state between two calls.
type Ledger struct {
	Options
	off error // why payouts are off; nil: they are on
}

var _ transfer.Ledger = (*Ledger)(nil)

// New returns the ledger of o. Payouts are off if a reorg can revert o's finality: a refunded
// payout could then be paid.
func New(o Options) *Ledger {
	l := &Ledger{Options: o}
	switch {
	case o.Finality == txmanager.ByFinalized, o.Finality == txmanager.ByConfirmations && o.Confirmations > 0:
	case o.Finality == txmanager.ByConfirmations:
		l.off = errors.New("confirmations.required=0 ends a payout at its inclusion, and a reorg can pay a refunded payout: set it to the depth that you trust with refunds, or finality.mode=finalized")
	default:
		l.off = fmt.Errorf("finality.mode=%s can be undone by a reorg, which can pay a refunded payout: set finalized, or confirmations with the depth that you trust with refunds", o.Finality)
	}
	return l
}

// Off returns why payouts are off, or nil. While they are off every call is Unknown, and accepted
// payouts wait.
func (l *Ledger) Off() error { return l.off }

// Causes of an Unknown that no repetition will change.
var (
	// ErrNoLedger reports an operation that a chain does not have: an outside address can neither
	// be debited nor refunded.
	ErrNoLedger = errors.New("the chain supports deposits only")
	// ErrOtherFields reports a call whose fields differ from the transfer's row.
	ErrOtherFields = errors.New("the call differs from the transfer's row")
	// ErrNotPaid reports a payout that is CONFIRMED without a proof of payment.
	ErrNotPaid = errors.New("CONFIRMED without proof of payment")
	// ErrForeignRequest reports a req_id of a transaction that another caller made, or that a release
	// recorded as lost.
	ErrForeignRequest = errors.New("the payout's req_id is the requestId of a transaction that the coordinator did not make")
	// ErrNotPayer reports a submitter that is not registered for the coordinator alone.
	ErrNotPayer = errors.New("the submitter must have transfer (the coordinator) as its only caller")
	// ErrPolicyForbids reports a payout that the payer's policy does not allow. An operator must change
	// the policy or give the transfer up.
	ErrPolicyForbids = errors.New("the payer's policy does not allow the payout")
	// ErrUnstated reports a payout in doubt for which no operator has stated whether it was paid.
	ErrUnstated = errors.New("it was created before the database was restored, and a lost transaction may have paid it: an operator must state whether it was paid")
	// ErrNotProven reports a transaction that was named as the payment and is not.
	ErrNotProven = errors.New("the chain does not show that this transaction paid it: withdraw the statement, or name another transaction")
)

// Causes of an Unknown that pass with time.
var (
	// ErrPending reports a payout that is under way.
	ErrPending = errors.New("pending")
	// ErrNotDue reports a payout that is not recorded and whose transfer does not wait for it: it
	// is not posted.
	ErrNotDue = errors.New("not recorded, and the transfer does not wait for it")
	// ErrInDoubt reports that the record proves nothing, because the payer is in PROTECT or the
	// database is a restored one.
	ErrInDoubt = errors.New("in doubt until an operator has reconciled the payer")
)

// Withdraw is Unknown with [ErrNoLedger].
func (l *Ledger) Withdraw(_ context.Context, c transfer.Call) transfer.Outcome {
	return unknown(transfer.Withdraw, c, ErrNoLedger)
}

// Refund is Unknown with [ErrNoLedger].
func (l *Ledger) Refund(_ context.Context, c transfer.Call) transfer.Outcome {
	return unknown(transfer.Refund, c, ErrNoLedger)
}

// Deposit returns the result of the payment. It posts the payment if none is recorded.
func (l *Ledger) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	t, err := l.load(ctx, c)
	if err != nil {
		return unknown(transfer.Deposit, c, err)
	}
	found, err := l.readWithEvidence(ctx, t)
	switch {
	case err == nil && isToBeRefunded(found):
		return l.cancel(ctx, transfer.Deposit, t)
	case err == nil && (found.TxID == "" || isToBePostedAgain(found)):
		if err = l.post(ctx, t, found); err == nil { // the row decides, whatever the post met
			found, err = l.Manager.Payout(ctx, payer(t), t.ReqID)
		}
	case err == nil && !found.InDoubt() && found.State == txmanager.Queued && found.Caller == store.PayoutCaller:
		l.enqueue(ctx, t, found.TxID, found.Token) // the poster may have died before it enqueued the task
	}
	if err != nil {
		return l.blocked(ctx, transfer.Deposit, c, err)
	}
	return l.evaluate(ctx, transfer.Deposit, t, found)
}

// isToBeRefunded reports whether an operator has stated that the payout was not paid and must be
// refunded. Nothing may be sent for it.
func isToBeRefunded(found store.Payout) bool {
	return isNotPaid(found) && found.Statement.Refund && !found.Foreign && (found.TxID == "" || found.State == txmanager.Queued)
}

// isToBePostedAgain reports whether an operator has stated that a payout was not paid which is
// queued since before the restore. Posting it again releases it.
func isToBePostedAgain(found store.Payout) bool {
	return isNotPaid(found) && !found.Statement.Refund && found.Older && found.State == txmanager.Queued && found.Caller == store.PayoutCaller
}

// Resolve prevents the payment if that is still possible, and returns its result. A payment with a
// nonce is Unknown until its cancel or the payment itself is final. Only a deposit can be resolved.
func (l *Ledger) Resolve(ctx context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	if op != transfer.Deposit {
		return unknown(op, c, ErrNoLedger)
	}
	t, err := l.load(ctx, c)
	if err != nil {
		return unknown(op, c, err)
	}
	if t.State != transfer.TargetPending {
		return unknown(op, c, fmt.Errorf("transfer in %s: %w", t.State, ErrNotDue))
	}
	if _, err := l.readWithEvidence(ctx, t); err != nil {
		return l.blocked(ctx, op, c, err)
	}
	return l.cancel(ctx, op, t)
}

// cancel cancels the payout and returns its result.
func (l *Ledger) cancel(ctx context.Context, op transfer.Op, t transfer.Transfer) transfer.Outcome {
	c := t.Call()
	in, err := intent(t)
	if err != nil {
		return unknown(op, c, err)
	}
	l.reach("cancelling")
	found, err := l.Manager.CancelPayout(ctx, in, "the coordinator gives transfer "+t.ReqID+" up")
	if err != nil {
		return unknown(op, c, err)
	}
	l.reach("cancelled")
	if found.TxID != "" && !found.State.Terminal() {
		l.enqueue(ctx, t, found.TxID, found.Token)
	}
	if found, err = l.Manager.Payout(ctx, payer(t), t.ReqID); err == nil && found.TxID == "" {
		err = checkPostable(t, found)
	}
	if err != nil {
		return l.blocked(ctx, op, c, err)
	}
	return l.evaluate(ctx, op, t, found)
}

// load reads the transfer and checks that the call has its fields.
func (l *Ledger) load(ctx context.Context, c transfer.Call) (transfer.Transfer, error) {
	if l.off != nil {
		return transfer.Transfer{}, fmt.Errorf("payouts are off: %w", l.off)
	}
	t, err := l.Transfers.Load(ctx, c.ReqID)
	switch {
	case err != nil:
		return t, err
	case t.Foreign:
		return t, ErrInDoubt
	case t.Type != transfer.FundingToChain || t.Payout == nil:
		return t, fmt.Errorf("it is no payout: %w", ErrOtherFields)
	case t.UserID != c.UserID || t.AssetID != c.AssetID || t.Units != c.Units || t.Units == 0:
		return t, ErrOtherFields
	}
	return t, nil
}

func payer(t transfer.Transfer) txmanager.Submitter { return txmanager.Submitter(t.Payout.Submitter) }

// checkPostable returns why no record may be created for a payout that has none.
func checkPostable(t transfer.Transfer, found store.Payout) error {
	switch {
	case found.Taken:
		return ErrForeignRequest
	case found.InDoubt() && !found.Foreign:
		return ErrUnstated
	case !found.Pays:
		return fmt.Errorf("%s: %w", t.Payout.Submitter, ErrNotPayer)
	case found.Foreign, found.Protected:
		return ErrInDoubt
	case t.State != transfer.TargetPending: // the user's money was not withdrawn yet, or was refunded
		return fmt.Errorf("transfer in %s: %w", t.State, ErrNotDue)
	}
	return nil
}

// post stores the payout in the payer's queue and enqueues an advance task.
func (l *Ledger) post(ctx context.Context, t transfer.Transfer, found store.Payout) error {
	if err := checkPostable(t, found); err != nil {
		return err
	}
	in, err := intent(t)
	if err != nil {
		return err
	}
	l.reach("posting")
	accepted, err := l.Manager.Create(ctx, in, l.QueueBound)
	if err != nil {
		return err
	}
	l.reach("posted")
	if accepted.Queued {
		l.enqueue(ctx, t, accepted.TxID, accepted.Token)
	}
	l.reach("woken")
	return nil
}

// intent returns the intent to post: the bytes of the transfer's row, the same at each attempt of each
// build.
func intent(t transfer.Transfer) (store.Intent, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.Intent{}, fmt.Errorf("make a txId: %w", err)
	}
	return store.Intent{
		TxID: id.String(), Submitter: payer(t), RequestID: t.ReqID, Caller: store.PayoutCaller,
		Payload: t.Payout.Payload, Fingerprint: sha256.Sum256(t.Payout.Payload),
	}, nil
}

func (l *Ledger) enqueue(ctx context.Context, t transfer.Transfer, txID string, token int64) {
	if err := l.Tasks.EnqueueAdvance(ctx, payer(t), token); err != nil {
		l.Log.WarnContext(ctx, "no advance task for a payout: the sweep will find it", telemetry.SubmitterKey, t.Payout.Submitter,
			telemetry.TxIDKey, txID, "reqId", t.ReqID, "error", err.Error())
	}
}

func (l *Ledger) reach(point string) {
	if l.At != nil {
		l.At("payout." + point)
	}
}
