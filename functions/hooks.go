package functions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/reservation"
)

// ErrHooksOff reports that hooks.enabled is false. Nothing was changed.
var ErrHooksOff = errors.New("the low-level hooks are off: set hooks.enabled to use them")

// Reservation is a nonce allocated to an owner without an intent. Only the owner may mark it, by TxID
// and Owner, and only before Until.
type Reservation struct {
	TxID      string // of the transaction that records it; queries accept it like any other
	RequestID string
	Submitter txmanager.Submitter
	Nonce     uint64                     // where State is RECYCLABLE another transaction can have it by now
	State     txmanager.ReservationState // RESERVED, USED or RECYCLABLE
	Owner     string
	Until     time.Time // by the database's clock
	Over      bool      // the owner can no longer mark it
}

// Allocate reserves the next nonces of s for owner, one for each request, all or none. Recycled nonces
// come first, lowest first. If the owner has asked under the same requests before, it gets the stored
// reservations in their present state, which can be Over. The requests are named as intents are, and
// none may be the requestId of an intent.
//
// The owner signs and then calls [App.MarkUsed] or [App.MarkRecyclable] within
// hooks.reservationTimeout. A failure that it will try again needs no call. After the timeout a
// placeholder transaction consumes the nonce. Until then the reservation blocks the transactions
// behind it. The owner must not send its bytes: the manager sends them once they are stored.
//
// The error wraps [ErrHooksOff], [store.ErrRequestConflict], [store.ErrUnknownSubmitter] (not
// registered, or its callers do not name "hooks") or one of these:
//
// [txmanager.ErrNotLeader]: another invocation serves s; try again.
//
// [txmanager.ErrRetryLater]: PROTECT, no room, no money, or a nonce that no node has acknowledged;
// try again later.
//
// [txmanager.ErrPolicyAllowsNothing]: the submitter's policy allows no fee.
//
// [txmanager.ErrTooManyNonces]: more than the window of s, which is 1 while nonce.strict.enabled is
// true; ask for fewer.
//
// [store.PolicyError]: each request counts as an intent in the submitter's maxPerMinute. Its Rule is
// [store.RuleRate] if the same call can pass later, and [store.RuleCount] if the policy never allows
// so many at once.
//
// After any other error the result is unknown: call again with the same requests.
func (a *App) Allocate(ctx context.Context, s txmanager.Submitter, owner string, requests ...string) ([]Reservation, error) {
	ctx, deliver := a.base.CollectEvents(ctx)
	defer deliver()
	if err := a.hooksMay(owner, requests); err != nil {
		return nil, err
	}
	if err := a.base.Mark.Compare(ctx, a.base.Log); err != nil {
		return nil, err
	}
	found, err := a.reserved(ctx, s, owner, requests)
	if err != nil {
		return nil, err
	}
	if found != nil {
		a.recheckReservation(ctx, s)
		return found, nil
	}
	if err := a.hooksAllowed(ctx, s); err != nil {
		return nil, err
	}
	ask := txmanager.ReserveRequest{Owner: owner, For: a.config.Hooks.ReservationTimeout, Caller: store.HooksCaller, Requests: requests}
	for range requests {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make a txId: %w", err)
		}
		ask.TxIDs = append(ask.TxIDs, id.String())
	}
	worker, err := a.workerFor(s)
	if err != nil {
		return nil, err
	}
	if err := reservation.Reserve(ctx, &worker.Service, s, ask); err != nil {
		// The nonces can still be stored: by this call, whose answer was lost, or by another one.
		if found, again := a.reserved(ctx, s, owner, requests); again == nil && found != nil {
			return found, nil
		}
		if errors.Is(err, txmanager.ErrHooksForbidden) { // an operator has just removed the hooks from the callers
			err = fmt.Errorf("%w: %w", err, store.ErrUnknownSubmitter)
		}
		return nil, fmt.Errorf("reserve nonces of %s for %s: %w", s, owner, err)
	}
	return a.reserved(ctx, s, owner, requests)
}

// MarkUsed stores the bytes that the owner signed for the reservation's nonce. The manager then sends,
// tracks and confirms them like its own. The same bytes again get the same answer.
//
// The error wraps [ErrHooksOff], [txmanager.ErrSignedBytes], [txmanager.ErrNotOwner],
// [txmanager.ErrNotLeader], [txmanager.ErrRetryLater], [store.PolicyError] or [store.ErrNotFound].
// ErrRetryLater means that the account cannot pay for them, or that no block would include them now.
// PolicyError means that their value, their recipient or the day's total is not allowed. After each of
// these nothing was changed. After any other error the result is unknown: call again.
func (a *App) MarkUsed(ctx context.Context, txID, owner string, raw []byte) error {
	ctx, deliver := a.base.CollectEvents(ctx)
	defer deliver()
	r, err := a.ownReservation(ctx, txID, owner)
	if err != nil {
		return err
	}
	worker, err := a.workerFor(r.Submitter)
	if err != nil {
		return fmt.Errorf("mark %s used: %w", r.TxID, err)
	}
	tx, signed, err := reservation.ParseSignedFor(&worker.Service, r.Submitter, raw)
	switch {
	case err != nil:
		return fmt.Errorf("mark %s used: %w", r.TxID, err)
	case r.FirstHash == signed.Hash.String():
		a.recheckReservation(ctx, r.Submitter)
		return nil
	case r.Over || r.Nonce == nil:
		return fmt.Errorf("mark %s used: %w", r.TxID, txmanager.ErrNotOwner)
	case tx.Nonce != *r.Nonce:
		return fmt.Errorf("mark %s used: %w: they have the nonce %d, and %d is reserved", r.TxID, txmanager.ErrSignedBytes, tx.Nonce, *r.Nonce)
	}
	gas := txmanager.GasParams{Gas: tx.Gas, Legacy: tx.Legacy, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei, ValueWei: tx.Value}
	does := txmanager.Call{To: tx.To, Value: tx.Value, Data: tx.Data}
	err = reservation.Mark(ctx, &worker.Service, r.Submitter, txmanager.ReservationMark{TxID: r.TxID, Owner: owner, To: txmanager.Used, Signed: &signed, Call: does, Gas: &gas})
	if err != nil {
		if now, again := a.store.Reservation(ctx, r.TxID); again == nil && now.FirstHash == signed.Hash.String() {
			return nil
		}
		return fmt.Errorf("mark %s used: %w", r.TxID, err)
	}
	return nil
}

// MarkRecyclable returns the reservation's nonce. The owner guarantees that nothing was signed for it,
// so that the next reservation or intent can use the nonce. The same call again gets the same answer.
//
// The error wraps [ErrHooksOff], [txmanager.ErrNotOwner], [txmanager.ErrNotLeader] or
// [store.ErrNotFound]. After any other error the result is unknown: call again.
func (a *App) MarkRecyclable(ctx context.Context, txID, owner, reason string) error {
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > serve.MaxReason {
		return fmt.Errorf("a reason is required, in at most %d bytes: it is kept", serve.MaxReason)
	}
	r, err := a.ownReservation(ctx, txID, owner)
	switch {
	case err != nil:
		return err
	case r.State == txmanager.Recyclable:
		a.recheckReservation(ctx, r.Submitter)
		return nil
	case r.Over:
		return fmt.Errorf("mark %s recyclable: %w", r.TxID, txmanager.ErrNotOwner)
	}
	worker, err := a.workerFor(r.Submitter)
	if err != nil {
		return fmt.Errorf("mark %s recyclable: %w", r.TxID, err)
	}
	if err := reservation.Mark(ctx, &worker.Service, r.Submitter, txmanager.ReservationMark{TxID: r.TxID, Owner: owner, To: txmanager.Recyclable, Reason: reason}); err != nil {
		if now, again := a.store.Reservation(ctx, r.TxID); again == nil && now.State == txmanager.Recyclable {
			return nil
		}
		return fmt.Errorf("mark %s recyclable: %w", r.TxID, err)
	}
	return nil
}

// recheckReservation enqueues an iteration after a hook was answered from a stored reservation. The
// invocation that stored it can have stopped before it enqueued one. If the enqueue fails, the sweep
// finds it.
func (a *App) recheckReservation(ctx context.Context, s txmanager.Submitter) {
	ctx = context.WithoutCancel(ctx)
	v, err := a.store.Submitter(ctx, s)
	if err == nil {
		err = a.base.Tasks.EnqueueAdvance(ctx, s, v.FencingToken)
	}
	if err != nil {
		a.base.Log.WarnContext(ctx, "no advance task for a hook that was answered again", telemetry.SubmitterKey, s, "error", err.Error())
	}
}

// ownReservation returns the stored reservation if owner made it.
func (a *App) ownReservation(ctx context.Context, txID, owner string) (store.Reservation, error) {
	if !a.config.Hooks.Enabled {
		return store.Reservation{}, ErrHooksOff
	}
	id, ok := serve.ParseTxID(txID)
	if !ok {
		return store.Reservation{}, store.ErrNotFound
	}
	if err := a.base.Mark.Compare(ctx, a.base.Log); err != nil {
		return store.Reservation{}, err
	}
	r, err := a.store.Reservation(ctx, id)
	if err == nil && r.Owner != owner {
		err = fmt.Errorf("reservation %s: %w", txID, txmanager.ErrNotOwner)
	}
	return r, err
}

// hooksMay checks the owner's name and the requests.
func (a *App) hooksMay(owner string, requests []string) error {
	const limit = 128
	switch {
	case !a.config.Hooks.Enabled:
		return ErrHooksOff
	case owner == "" || len(owner) > limit || strings.ContainsRune(owner, 0) || !utf8.ValidString(owner):
		return fmt.Errorf("the owner of a reservation has 1 to %d bytes of UTF-8, without NUL", limit)
	case len(requests) == 0 || len(requests) > 10_000:
		return errors.New("want one to 10000 requests: each gets a nonce")
	}
	for i, r := range requests {
		if err := serve.NewRequestID("requestId", r); err != nil {
			return err
		}
		if !utf8.ValidString(r) {
			return fmt.Errorf("request %q is no UTF-8", r)
		}
		if slices.Contains(requests[:i], r) {
			return fmt.Errorf("request %q was given twice: give each request once", r)
		}
	}
	return nil
}

// hooksAllowed refuses a submitter whose callers do not include the hooks.
func (a *App) hooksAllowed(ctx context.Context, s txmanager.Submitter) error {
	v, err := a.store.Submitter(ctx, s)
	if err != nil {
		return err
	}
	if !slices.Contains(v.Callers, store.HooksCaller) {
		return fmt.Errorf("%s, whose callers do not name %q: %w", s, store.HooksCaller, store.ErrUnknownSubmitter)
	}
	return nil
}

// reserved returns the owner's reservations under these requests; nil if no reservation exists under
// them.
func (a *App) reserved(ctx context.Context, s txmanager.Submitter, owner string, requests []string) ([]Reservation, error) {
	found, err := a.store.Reservations(ctx, s, requests)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	all := make([]Reservation, 0, len(found))
	for _, r := range found {
		if r.State == "" || r.Owner != owner || len(found) != len(requests) {
			return nil, fmt.Errorf("request %s: %w", r.RequestID, store.ErrRequestConflict)
		}
		one := Reservation{TxID: r.TxID, RequestID: r.RequestID, Submitter: s, State: r.State, Owner: owner, Until: r.Until, Over: r.Over}
		if r.Nonce != nil {
			one.Nonce = *r.Nonce
		}
		all = append(all, one)
	}
	return all, nil
}
