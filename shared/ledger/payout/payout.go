// Package payout is the ledger of the outside: its deposit is a payment on a chain,
// made by the transaction manager as a managed transaction whose request is the
// transfer's req_id.
//
// What is paid, by whom, to whom and by which payload was fixed on the transfer's row
// when it was created ([Prepare]), and every attempt posts exactly these bytes. How a
// deposit ended is judged by the managed transaction's row and by nothing else:
//
//	CONFIRMED, with proof of payment      Success
//	CONFIRMED, without                    Unknown, and CRITICAL: an operator says whether it was paid
//	FAILED, by whatever sub-state         Refused: it is final, and never runs;
//	                                      Unknown while the payer is in PROTECT, and
//	                                      where a release recorded that it was paid
//	any other state                       Unknown: ask again
//	no row                                the payout is posted; Unknown
//
// One thing goes before the row: a payout that was created before the last change of
// the authority, and has no nonce, is in doubt. What the database has lost may have
// paid it. It is neither posted nor refused until an operator has stated, for this
// req_id, that it was not paid, or a transaction of the payer proves that it was.
// A proof ([store.Store.ProvePayout]) is Success, whatever the row says.
//
// What the manager says to the post is no answer: PROTECT, a conflict, a full queue,
// an error and silence are all Unknown. To give up is to cancel ([Ledger.Resolve]):
// where there is no row the cancel makes one that is FAILED, so that a post which is
// still on its way cannot run. So a payout is made once, or refunded once.
//
// The manager keeps others away from a payer: see [store.PayoutCaller].
package payout

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Transfers reads the row that fixed the payout.
type Transfers interface {
	// Load wraps [transfer.ErrNotFound] where there is none.
	Load(ctx context.Context, reqID string) (transfer.Transfer, error)
}

// Manager is the transaction manager's record. [store.Store] is one. Every error is
// unknown: what was asked for may have happened. Each call may be made twice.
type Manager interface {
	// Payout reads what is on record. That there is nothing is no error.
	Payout(ctx context.Context, s nonce.Submitter, requestID string) (store.Payout, error)

	// Create stores the intent in the queue, or finds what is stored.
	Create(ctx context.Context, in store.Intent, queueBound int) (store.Accepted, error)

	// CancelPayout has the request never be carried out, if that is still possible.
	CancelPayout(ctx context.Context, in store.Intent, reason string) (store.Payout, error)

	// ActOnStatement lets the statement that the payout was not paid take effect: with
	// lostBytes only once nothing that was lost can be mined any more, and never while a
	// foreign transaction with the same call is nobody's.
	ActOnStatement(ctx context.Context, s nonce.Submitter, requestID string, st store.PayoutStatement, call [32]byte, lostBytes bool) error

	// ProvePayout records that the transaction paid the request, and that nothing more
	// is sent for it.
	ProvePayout(ctx context.Context, in store.Intent, proof store.PayoutProof) error
}

// Waker asks for a look at a submitter's queue. Where it fails the sweep finds it.
type Waker interface {
	Advance(ctx context.Context, s nonce.Submitter, token int64) error
}

// Options are the parts of a ledger.
type Options struct {
	Transfers  Transfers
	Manager    Manager
	Wake       Waker
	QueueBound int // queue.maxPerSubmitter

	// ChainOf reads a payer's chain for proofs; nil: no payout is proved by a
	// transaction that is not on record.
	ChainOf func(nonce.Submitter) (Chain, error)

	// Finality and Confirmations are the manager's, and say when a payment, or its
	// failure, is believed.
	Finality      nonce.Finality
	Confirmations uint64

	// FinalityOf says the same of a payer's own chain; nil: every payer's is that.
	FinalityOf func(nonce.Submitter) (nonce.Finality, uint64, error)

	Log *slog.Logger
	At  func(point string) // passed at each step by its name ([Points]); nil but in tests
}

// Ledger is the [transfer.Ledger] of [transfer.Chain]. It keeps nothing between two
// calls.
type Ledger struct {
	Options
	off error // why no answer can be trusted; nil: it can
}

var _ transfer.Ledger = (*Ledger)(nil)

// New is the ledger of o. By a finality that a reorg may undo it is off: what was
// refunded could then be paid after all.
func New(o Options) *Ledger {
	l := &Ledger{Options: o}
	switch {
	case o.Finality == nonce.ByFinalized, o.Finality == nonce.ByConfirmations && o.Confirmations > 0:
	case o.Finality == nonce.ByConfirmations:
		l.off = errors.New("confirmations.required=0 ends a payout at its inclusion, and a reorg may pay what was refunded: set it to the depth that you trust with refunds, or finality.mode=finalized")
	default:
		l.off = fmt.Errorf("finality.mode=%s may be undone by a reorg, which may pay what was refunded: set finalized, or confirmations with the depth that you trust with refunds", o.Finality)
	}
	return l
}

// Off is why payouts are off, or nil. Every call is Unknown then: payouts that were
// accepted before wait.
func (l *Ledger) Off() error { return l.off }

// Causes of an Unknown that no further try will change.
var (
	// ErrNoLedger reports an operation that a chain does not have: nothing can be
	// withdrawn from an address outside, nor given back to it.
	ErrNoLedger = errors.New("the chain only takes deposits")
	// ErrOtherFields reports a call that is not what the transfer's row says.
	ErrOtherFields = errors.New("the transfer's row says otherwise")
	// ErrNotPaid reports a payout that is CONFIRMED, and nothing proves that it paid.
	ErrNotPaid = errors.New("CONFIRMED without proof of payment")
	// ErrTaken reports a req_id that stands for another's transaction: one that
	// somebody else made, or one that a release recorded as lost.
	ErrTaken = errors.New("the payout's request stands for a transaction that is not the coordinator's")
	// ErrNotPayer reports a submitter that is not registered for the coordinator alone.
	ErrNotPayer = errors.New("the submitter is not registered for the transfer coordinator alone")
	// ErrBarred reports a payout that the payer's policy does not allow: an operator
	// changes the policy, or gives the transfer up.
	ErrBarred = errors.New("the payer's policy does not allow the payout")
	// ErrUnstated reports a payout that is in doubt, and of which no operator has said
	// whether it was paid.
	ErrUnstated = errors.New("it was created before the database was restored, and may have been paid by what was lost: an operator must state whether it was paid")
	// ErrNotBorneOut reports a transaction that was named as the payment, and is not.
	ErrNotBorneOut = errors.New("the chain does not bear out that this transaction paid it: withdraw the statement, or name another transaction")
)

// Causes of an Unknown that pass.
var (
	// ErrPending reports a payout that is on its way.
	ErrPending = errors.New("pending")
	// ErrNotDue reports a payout that is not on record, and of which the transfer does
	// not wait for an answer: it is not posted.
	ErrNotDue = errors.New("not on record, and the transfer does not wait for it")
	// ErrInDoubt reports that what is on record, or is not, proves nothing: the payer
	// is in PROTECT, or the database a restored one.
	ErrInDoubt = errors.New("in doubt until a person has reconciled the payer")
)

// Withdraw is Unknown with [ErrNoLedger].
func (l *Ledger) Withdraw(_ context.Context, c transfer.Call) transfer.Outcome {
	return unknown(transfer.Withdraw, c, ErrNoLedger)
}

// Refund is Unknown with [ErrNoLedger].
func (l *Ledger) Refund(_ context.Context, c transfer.Call) transfer.Outcome {
	return unknown(transfer.Refund, c, ErrNoLedger)
}

// Deposit says what became of the payment, and posts it where nothing is on record.
func (l *Ledger) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	t, err := l.load(ctx, c)
	if err != nil {
		return unknown(transfer.Deposit, c, err)
	}
	found, err := l.Manager.Payout(ctx, payer(t), t.ReqID)
	if err == nil {
		found, err = l.takeEvidence(ctx, t, found)
	}
	switch {
	case err == nil && refunds(found):
		return l.cancelled(ctx, transfer.Deposit, t)
	case err == nil && (found.TxID == "" || reposts(found)):
		if err = l.post(ctx, t, found); err == nil { // whatever it met, the row is the answer
			found, err = l.Manager.Payout(ctx, payer(t), t.ReqID)
		}
	case err == nil && !found.InDoubt() && found.State == nonce.Queued && found.Caller == store.PayoutCaller:
		l.wake(ctx, t, found.TxID, found.Token) // whoever posted it may have died before
	}
	if err != nil {
		return l.blocked(ctx, transfer.Deposit, c, err)
	}
	return l.judge(ctx, transfer.Deposit, t, found)
}

// refunds says that an operator has stated that the payout was not paid, and is to be
// given back: nothing may be sent for it.
func refunds(found store.Payout) bool {
	said := statement(found)
	return said != nil && said.Acted && said.Refund && !found.Foreign && (found.TxID == "" || found.State == nonce.Queued)
}

// reposts says that an operator has stated that the payout was not paid, and that it waits
// in the queue since before the database was restored: to post it again lets it go.
func reposts(found store.Payout) bool {
	said := statement(found)
	return said != nil && said.Acted && !said.Refund && found.Older && found.State == nonce.Queued && found.Caller == store.PayoutCaller
}

// Resolve has the payment never be made, if that is still possible, and says what
// became of it. One that has a nonce is Unknown until its cancel or the payment itself
// is final. Only a deposit can be resolved.
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
	found, err := l.Manager.Payout(ctx, payer(t), t.ReqID)
	if err == nil {
		_, err = l.takeEvidence(ctx, t, found)
	}
	if err != nil {
		return l.blocked(ctx, op, c, err)
	}
	return l.cancelled(ctx, op, t)
}

// cancelled has the payout cancelled, and says what became of it.
func (l *Ledger) cancelled(ctx context.Context, op transfer.Op, t transfer.Transfer) transfer.Outcome {
	c := t.Call()
	in, err := intent(t)
	if err != nil {
		return unknown(op, c, err)
	}
	l.pass("cancelling")
	found, err := l.Manager.CancelPayout(ctx, in, "the coordinator gives transfer "+t.ReqID+" up")
	if err != nil {
		return unknown(op, c, err)
	}
	l.pass("cancelled")
	if found.TxID != "" && !found.State.Final() {
		l.wake(ctx, t, found.TxID, found.Token)
	}
	if found, err = l.Manager.Payout(ctx, payer(t), t.ReqID); err == nil && found.TxID == "" {
		err = hindrance(t, found)
	}
	if err != nil {
		return l.blocked(ctx, op, c, err)
	}
	return l.judge(ctx, op, t, found)
}

// load reads the transfer, and trusts nobody that the call is about it.
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

func payer(t transfer.Transfer) nonce.Submitter { return nonce.Submitter(t.Payout.Submitter) }

// hindrance is why nothing may be put on record where nothing is.
func hindrance(t transfer.Transfer, found store.Payout) error {
	switch {
	case found.Taken:
		return ErrTaken
	case found.InDoubt() && !found.Foreign:
		return ErrUnstated
	case !found.Pays:
		return fmt.Errorf("%s: %w", t.Payout.Submitter, ErrNotPayer)
	case found.Foreign, found.Protected:
		return ErrInDoubt
	case t.State != transfer.TargetPending: // then nothing has been taken from the user, or it was given back
		return fmt.Errorf("transfer in %s: %w", t.State, ErrNotDue)
	}
	return nil
}

// post stores the payout in the payer's queue and has it looked at.
func (l *Ledger) post(ctx context.Context, t transfer.Transfer, found store.Payout) error {
	if err := hindrance(t, found); err != nil {
		return err
	}
	in, err := intent(t)
	if err != nil {
		return err
	}
	l.pass("posting")
	accepted, err := l.Manager.Create(ctx, in, l.QueueBound)
	if err != nil {
		return err
	}
	l.pass("posted")
	if accepted.Queued {
		l.wake(ctx, t, accepted.TxID, accepted.Token)
	}
	l.pass("woken")
	return nil
}

// intent is what is posted: the bytes on the transfer's row, at every attempt, by
// every build.
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

func (l *Ledger) wake(ctx context.Context, t transfer.Transfer, txID string, token int64) {
	if err := l.Wake.Advance(ctx, payer(t), token); err != nil {
		l.Log.WarnContext(ctx, "no advance task for a payout: the sweep will find it", telemetry.SubmitterKey, t.Payout.Submitter,
			telemetry.TxIDKey, txID, "reqId", t.ReqID, "error", err.Error())
	}
}

// Points lists the names that a ledger passes.
func Points() []string {
	return []string{"payout.posting", "payout.posted", "payout.woken", "payout.cancelling", "payout.cancelled"}
}

func (l *Ledger) pass(point string) {
	if l.At != nil {
		l.At("payout." + point)
	}
}
