package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// Reasons that a caller reads in lastError.
const (
	forgedMAC         = "the intent's MAC is missing or wrong: nothing is signed for it"
	forgedFingerprint = "the intent's payload differs from the accepted one: nothing is signed for it"
	unknownKey        = "the function that signs does not have the key of the intent's MAC"
)

// checkAuthenticity checks x's fingerprint against its payload, and its MAC.
func (t *invocation) checkAuthenticity(ctx context.Context, x txmanager.Tx) txmanager.Authenticity {
	if print := txmanager.FingerprintUntil(x.Handler, x.Payload, x.ValidUntil); !slices.Equal(print[:], x.Fingerprint) {
		return t.noteForged(ctx, x, forgedFingerprint, txmanager.ErrForged)
	}
	switch {
	case x.NeedsNoMAC:
		t.noteUnproved(ctx, txmanager.ProofUnmarked)
		return txmanager.Authenticity{}
	case x.MAC.Key == "":
		return t.noteForged(ctx, x, forgedMAC, txmanager.ErrForged)
	case t.worker.Intents == nil:
		return t.noteUnknown(ctx, x, txmanager.ErrMACKey)
	}
	err := t.CallOutside(ctx, func(ctx context.Context) error { return t.worker.Intents.Verify(ctx, x.Terms(), x.MAC) })
	switch {
	case errors.Is(err, txmanager.ErrForged):
		return t.noteForged(ctx, x, forgedMAC, err)
	case err != nil: // includes a lost lease, after which every write fails
		return t.noteUnknown(ctx, x, err)
	}
	return txmanager.Authenticity{}
}

func (t *invocation) noteForged(ctx context.Context, x txmanager.Tx, reason string, err error) txmanager.Authenticity {
	t.Log.Log(ctx, session.LevelCritical, "an intent differs from the accepted one: nothing is signed for it",
		append(t.LogAttrs(), "txId", x.ID, "requestId", x.RequestID, "caller", x.Caller, "macKey", x.MAC.Key, "reason", reason, "error", err.Error())...)
	t.noteUnproved(ctx, txmanager.ProofForged)
	return txmanager.Authenticity{Forged: reason}
}

func (t *invocation) noteUnknown(ctx context.Context, x txmanager.Tx, err error) txmanager.Authenticity {
	t.Log.ErrorContext(ctx, "the MAC of an intent cannot be checked: the intent waits",
		append(t.LogAttrs(), "txId", x.ID, "macKey", x.MAC.Key, "error", err.Error())...)
	if errors.Is(err, txmanager.ErrMACKey) {
		t.noteUnproved(ctx, txmanager.ProofNoKey)
		return txmanager.Authenticity{Unknown: unknownKey, NoKey: true}
	}
	t.noteUnproved(ctx, txmanager.ProofUnknown)
	return txmanager.Authenticity{Unknown: rules.Unverified}
}

func (t *invocation) noteUnproved(ctx context.Context, p txmanager.Proof) {
	if t.Watcher != nil {
		t.Watcher.IntentUnproved(ctx, p)
	}
}

// checkQueue checks as many intents as can get a nonce now, and the deferred ones among them. It
// stops when a service gives no answer about one, and when the time for signatures is over. A
// later iteration continues.
func (t *invocation) checkQueue(ctx context.Context) {
	began, proved, room := time.Now(), 0, rules.NextSlots(t.State).Count
	for i := range t.State.Queue {
		x := &t.State.Queue[i]
		if proved == room || i > 0 && t.isSigningTimeOver(began) {
			return
		}
		if x.Unchecked {
			x.Authenticity = t.checkAuthenticity(ctx, *x)
		}
		switch {
		case x.UnprovedReason() == "" && x.DeferredAt == nil:
			proved++
		case x.UnprovedReason() == "":
		case x.Forged == "" && !x.NoKey:
			return
		}
	}
}

// checkOpen checks the open transactions whose payload may be signed, or passed to a handler, now.
// Reservations and fills have no payload to sign.
func (t *invocation) checkOpen(ctx context.Context) {
	for i := range t.State.Open {
		x := &t.State.Open[i]
		if !x.Unchecked || x.Payload == nil || x.FillsLostNonce || x.Reservation != nil {
			continue
		}
		first := len(x.Versions) == 0 && x.State == txmanager.InFlight && x.RequestedAction == ""
		if first || x.RequestedAction == txmanager.ActionReplace || t.Rules.IsBumpDue(*x, t.State.DatabaseTime()) {
			x.Authenticity = t.checkAuthenticity(ctx, *x)
		}
	}
}
