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

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// hookCaller is whose the reservations are: a submitter's callers must name it.
const hookCaller = store.HooksCaller

// ErrHooksOff reports that hooks.enabled is not set. Nothing was changed.
var ErrHooksOff = errors.New("the low-level hooks are off: set hooks.enabled to use them")

// Reservation is a nonce that somebody asked for by itself. Its owner alone may mark
// it, by TxID and Owner, and only until Until.
type Reservation struct {
	TxID      string // of the transaction that stands for it, to be looked at like any
	RequestID string
	Submitter txmanager.Submitter
	Nonce     uint64                     // where State is RECYCLABLE it may be somebody else's by now
	State     txmanager.ReservationState // RESERVED, USED or RECYCLABLE
	Owner     string
	Until     time.Time // by the database's clock
	Over      bool      // its owner may mark it no more
}

// Allocate reserves the next nonces of s for owner, one for each request, all or none.
// Those that were given back come first, the lowest first. What was asked for before
// under the same requests and by the same owner is answered as it is on record by now,
// which may be Over. The requests are named as intents are, and none may be one's.
//
// Until hooks.reservationTimeout has passed the owner signs, and calls [App.MarkUsed]
// or [App.MarkRecyclable]; a failure that it will try again needs no call. Then a
// placeholder consumes the nonce. All the while what comes behind it waits. The owner
// must not send its bytes: they are sent once they are stored.
//
// The error wraps [ErrHooksOff], [txmanager.ErrNotLeader] (another invocation serves s: try
// again), [txmanager.ErrNotNow] (PROTECT, no room, no money: try again later), [txmanager.ErrTooManyNonces]
// (more at once than the window of s, which is 1 while nonce.strict.enabled: ask for fewer),
// [store.ErrRequestConflict], [store.ErrUnknownSubmitter] (not registered, or its
// callers do not name "hooks"), or [store.PolicyError]: each request counts as an intent
// in the submitter's maxPerMinute. Its Rule is [store.RuleRate] where the same may pass
// later, and [store.RuleCount] where more were asked for at once than it ever allows. Any other is unknown: ask again with the same
// requests.
func (a *App) Allocate(ctx context.Context, s txmanager.Submitter, owner string, requests ...string) ([]Reservation, error) {
	ctx, tell := a.collecting(ctx)
	defer tell()
	if err := a.hooksMay(owner, requests); err != nil {
		return nil, err
	}
	if err := a.marks.compare(ctx, a.log); err != nil {
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
	ask := txmanager.ReserveRequest{Owner: owner, For: a.config.Hooks.ReservationTimeout, Caller: hookCaller, Requests: requests}
	for range requests {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make a txId: %w", err)
		}
		ask.TxIDs = append(ask.TxIDs, id.String())
	}
	worker, err := a.workerOf(s)
	if err != nil {
		return nil, err
	}
	if err := worker.ReserveNonces(ctx, s, ask); err != nil {
		// Written all the same, perhaps: by this call, whose answer was lost, or by another.
		if found, again := a.reserved(ctx, s, owner, requests); again == nil && found != nil {
			return found, nil
		}
		if errors.Is(err, txmanager.ErrHooksForbidden) { // they were taken off the list a moment ago
			err = fmt.Errorf("%w: %w", err, store.ErrUnknownSubmitter)
		}
		return nil, fmt.Errorf("reserve nonces of %s for %s: %w", s, owner, err)
	}
	return a.reserved(ctx, s, owner, requests)
}

// MarkUsed hands in what its owner signed for the reservation's nonce. The bytes are
// stored, then sent, tracked and confirmed like any other's. The same bytes again are
// answered as before.
//
// The error wraps [ErrHooksOff], [txmanager.ErrSignedBytes], [txmanager.ErrNotOwner],
// [txmanager.ErrNotLeader], [txmanager.ErrNotNow] (the account cannot pay for them, or no block
// would take them now), [store.PolicyError] (what they do is not allowed: their value,
// their receiver, or the value of the day) or [store.ErrNotFound]; after each, nothing
// was changed. Any other is unknown: call again.
func (a *App) MarkUsed(ctx context.Context, txID, owner string, raw []byte) error {
	ctx, tell := a.collecting(ctx)
	defer tell()
	r, err := a.ownReservation(ctx, txID, owner)
	if err != nil {
		return err
	}
	worker, err := a.workerOf(r.Submitter)
	if err != nil {
		return fmt.Errorf("mark %s used: %w", r.TxID, err)
	}
	tx, signed, err := worker.ParseSignedFor(r.Submitter, raw)
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
	err = worker.MarkReservation(ctx, r.Submitter, txmanager.ReservationMark{TxID: r.TxID, Owner: owner, To: txmanager.Used, Signed: &signed, Call: does, Gas: &gas})
	if err != nil {
		if now, again := a.store.Reservation(ctx, r.TxID); again == nil && now.FirstHash == signed.Hash.String() {
			return nil
		}
		return fmt.Errorf("mark %s used: %w", r.TxID, err)
	}
	return nil
}

// MarkRecyclable gives the reservation's nonce back. The owner vouches that nothing
// was signed for it: whoever needs a nonce next gets it, a reservation or an intent.
// The same again is answered as before.
//
// The error wraps [ErrHooksOff], [txmanager.ErrNotOwner], [txmanager.ErrNotLeader] or
// [store.ErrNotFound]. Any other is unknown: call again.
func (a *App) MarkRecyclable(ctx context.Context, txID, owner, reason string) error {
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > maxReason {
		return fmt.Errorf("a reason is required, in at most %d bytes: it is kept", maxReason)
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
	worker, err := a.workerOf(r.Submitter)
	if err != nil {
		return fmt.Errorf("mark %s recyclable: %w", r.TxID, err)
	}
	if err := worker.MarkReservation(ctx, r.Submitter, txmanager.ReservationMark{TxID: r.TxID, Owner: owner, To: txmanager.Recyclable, Reason: reason}); err != nil {
		if now, again := a.store.Reservation(ctx, r.TxID); again == nil && now.State == txmanager.Recyclable {
			return nil
		}
		return fmt.Errorf("mark %s recyclable: %w", r.TxID, err)
	}
	return nil
}

// recheckReservation asks for a look where a hook is answered by what is on record: whoever
// wrote that may have died before it asked. If it cannot ask, the sweep finds it.
func (a *App) recheckReservation(ctx context.Context, s txmanager.Submitter) {
	ctx = context.WithoutCancel(ctx)
	v, err := a.store.Submitter(ctx, s)
	if err == nil {
		err = a.tasks.EnqueueAdvance(ctx, s, v.FencingToken)
	}
	if err != nil {
		a.log.WarnContext(ctx, "no advance task for a hook that was answered again", telemetry.SubmitterKey, s, "error", err.Error())
	}
}

// ownReservation is what is on record of a reservation that owner made.
func (a *App) ownReservation(ctx context.Context, txID, owner string) (store.Reservation, error) {
	if !a.config.Hooks.Enabled {
		return store.Reservation{}, ErrHooksOff
	}
	id, ok := parseTxID(txID)
	if !ok {
		return store.Reservation{}, store.ErrNotFound
	}
	if err := a.marks.compare(ctx, a.log); err != nil {
		return store.Reservation{}, err
	}
	r, err := a.store.Reservation(ctx, id)
	if err == nil && r.Owner != owner {
		err = fmt.Errorf("reservation %s: %w", txID, txmanager.ErrNotOwner)
	}
	return r, err
}

// hooksMay checks what an owner asks for.
func (a *App) hooksMay(owner string, requests []string) error {
	const most = 128
	switch {
	case !a.config.Hooks.Enabled:
		return ErrHooksOff
	case owner == "" || len(owner) > most || strings.ContainsRune(owner, 0) || !utf8.ValidString(owner):
		return fmt.Errorf("the owner of a reservation has 1 to %d bytes of UTF-8, without NUL", most)
	case len(requests) == 0 || len(requests) > 10_000:
		return errors.New("want one to 10000 requests: each gets a nonce")
	}
	for i, r := range requests {
		if err := newRequestID("requestId", r); err != nil {
			return err
		}
		if !utf8.ValidString(r) {
			return fmt.Errorf("request %q is no UTF-8", r)
		}
		if slices.Contains(requests[:i], r) {
			return fmt.Errorf("request %q stands twice: each gets a nonce", r)
		}
	}
	return nil
}

// hooksAllowed refuses a submitter whose nonces are not the hooks' to reserve.
func (a *App) hooksAllowed(ctx context.Context, s txmanager.Submitter) error {
	v, err := a.store.Submitter(ctx, s)
	if err != nil {
		return err
	}
	if !slices.Contains(v.Callers, hookCaller) {
		return fmt.Errorf("%s, whose callers do not name %q: %w", s, hookCaller, store.ErrUnknownSubmitter)
	}
	return nil
}

// reserved is what owner has under these requests; nil where nobody has anything.
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
