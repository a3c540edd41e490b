package txmanager

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"
)

// IntentTerms are what the MAC of an intent is computed over. None of it changes once the
// intent is stored.
type IntentTerms struct {
	TxID        string // a UUID
	Submitter   Submitter
	RequestID   string
	Caller      string // as it is stored
	Handler     string // "": none
	Fingerprint []byte
}

// MAC shows that a function that accepts intents stored an intent.
type MAC struct {
	Key string // id of the key; "": there is no MAC
	Sum []byte
}

// IntentVerifier checks MACs of intents.
type IntentVerifier interface {
	// Verify returns nil where m is the MAC of t. The error wraps [ErrForged] where m is
	// certainly not the MAC of t, and [ErrMACKey] where this process does not have the key
	// that m names. Any other error is unknown: the service that has the key gave no answer.
	Verify(ctx context.Context, t IntentTerms, m MAC) error
}

// Errors of [IntentVerifier].
var (
	ErrForged = errors.New("no function that accepts intents stored this: the MAC is not that of the intent")
	ErrMACKey = errors.New("this process does not have the key of the MAC; add it to intents.macKeys")
)

// Reasons that a caller reads in lastError.
const (
	forgedMAC         = "the intent's MAC is missing or wrong: nothing is signed for it"
	forgedFingerprint = "the intent's payload is not the one that was accepted: nothing is signed for it"
	unknownKey        = "the function that signs does not have the key of the intent's MAC"
	unverified        = "the intent's MAC cannot be checked now"
)

// Fingerprint is what an accepted payload is recognised by: a retry has the same one. It
// depends on the handler that makes a transaction out of the payload; "": none does.
func Fingerprint(handler string, payload []byte) [32]byte {
	if handler == "" {
		return sha256.Sum256(payload)
	}
	return sha256.Sum256(append([]byte(handler+"\x00"), payload...))
}

// FingerprintUntil is [Fingerprint] of a payload that comes with a validUntil; nil: it does
// not. A payload is JSON, and has no byte 0: with the time two stand, with a handler alone one.
func FingerprintUntil(handler string, payload []byte, until *time.Time) [32]byte {
	if until == nil {
		return Fingerprint(handler, payload)
	}
	return sha256.Sum256([]byte(handler + "\x00" + string(payload) + "\x00" + until.UTC().Format(validUntilForm)))
}

// validUntilForm is how a fingerprint has a validUntil: in UTC, with all its microseconds.
const validUntilForm = "2006-01-02T15:04:05.000000Z"

// terms are what t's MAC is computed over.
func (t Tx) terms() IntentTerms {
	return IntentTerms{TxID: t.ID, Submitter: t.Submitter, RequestID: t.RequestID, Caller: t.Caller, Handler: t.Handler, Fingerprint: t.Fingerprint}
}

// Authenticity says whether a transaction is what a function that accepts intents stored.
// The zero value: it is.
type Authenticity struct {
	Forged    string // why it certainly is not; "": it is, or that is unknown
	Unknown   string // why it is unknown; "": it is known
	NoKey     bool   // where unknown: this process does not have the key of the MAC
	Unchecked bool   // where unknown: it was not checked yet
}

// unprovedReason says why nothing is signed for a payload, or "".
func (a Authenticity) unprovedReason() string {
	if a.Forged != "" {
		return a.Forged
	}
	return a.Unknown
}

// withoutChecks is w as it was loaded: nothing in it was checked yet.
func (w SubmitterState) withoutChecks() SubmitterState {
	for _, list := range [][]Tx{w.Open, w.Queue} {
		for i := range list {
			list[i].Authenticity = Authenticity{Unknown: unverified, Unchecked: true}
		}
	}
	return w
}

// checkAuthenticity checks x's fingerprint against its payload, and its MAC.
func (t *leaseSession) checkAuthenticity(ctx context.Context, x Tx) Authenticity {
	if print := FingerprintUntil(x.Handler, x.Payload, x.ValidUntil); !slices.Equal(print[:], x.Fingerprint) {
		return t.noteForged(ctx, x, forgedFingerprint, ErrForged)
	}
	switch {
	case x.NeedsNoMAC:
		t.noteUnproved(ctx, ProofUnmarked)
		return Authenticity{}
	case x.MAC.Key == "":
		return t.noteForged(ctx, x, forgedMAC, ErrForged)
	case t.Intents == nil:
		return t.noteUnknown(ctx, x, ErrMACKey)
	}
	err := t.callOutside(ctx, func(ctx context.Context) error { return t.Intents.Verify(ctx, x.terms(), x.MAC) })
	switch {
	case errors.Is(err, ErrForged):
		return t.noteForged(ctx, x, forgedMAC, err)
	case err != nil: // a lost lease among them: then nothing more is written
		return t.noteUnknown(ctx, x, err)
	}
	return Authenticity{}
}

func (t *leaseSession) noteForged(ctx context.Context, x Tx, reason string, err error) Authenticity {
	t.Log.Log(ctx, levelCritical, "an intent is not what was accepted: nothing is signed for it",
		append(t.logAttrs(), "txId", x.ID, "requestId", x.RequestID, "caller", x.Caller, "macKey", x.MAC.Key, "reason", reason, "error", err.Error())...)
	t.noteUnproved(ctx, ProofForged)
	return Authenticity{Forged: reason}
}

func (t *leaseSession) noteUnknown(ctx context.Context, x Tx, err error) Authenticity {
	t.Log.ErrorContext(ctx, "the MAC of an intent cannot be checked: it waits",
		append(t.logAttrs(), "txId", x.ID, "macKey", x.MAC.Key, "error", err.Error())...)
	if errors.Is(err, ErrMACKey) {
		t.noteUnproved(ctx, ProofNoKey)
		return Authenticity{Unknown: unknownKey, NoKey: true}
	}
	t.noteUnproved(ctx, ProofUnknown)
	return Authenticity{Unknown: unverified}
}

// Proof says what the check of an intent came to.
type Proof string

// What it comes to where the intent is not proved to be what was accepted.
const (
	ProofForged   Proof = "forged"
	ProofNoKey    Proof = "keyless"  // this process does not have the key
	ProofUnknown  Proof = "unknown"  // the service that has the key gave no answer
	ProofUnmarked Proof = "unmarked" // it has no MAC, and none is required: it is signed
)

func (t *leaseSession) noteUnproved(ctx context.Context, p Proof) {
	if t.Watcher != nil {
		t.Watcher.IntentUnproved(ctx, p)
	}
}

// checkQueue checks as many intents as may get a nonce now, and those that are deferred. It stops at the first whose
// authenticity is unknown because a service gave no answer, and after the time that
// signatures may take: a later iteration goes on from there.
func (t *leaseSession) checkQueue(ctx context.Context) {
	began, proved := time.Now(), 0
	for i := range t.state.Queue {
		x := &t.state.Queue[i]
		if proved == t.state.nextSlots().count || i > 0 && t.isSigningTimeOver(began) {
			return
		}
		if x.Unchecked {
			x.Authenticity = t.checkAuthenticity(ctx, *x)
		}
		switch {
		case x.unprovedReason() == "" && x.DeferredAt == nil:
			proved++
		case x.unprovedReason() == "":
		case x.Forged == "" && !x.NoKey:
			return
		}
	}
}

// checkOpen checks the transactions that hold a nonce and whose payload may be signed or
// given to a handler now. Reservations and fills have no payload to sign.
func (t *leaseSession) checkOpen(ctx context.Context) {
	for i := range t.state.Open {
		x := &t.state.Open[i]
		if !x.Unchecked || x.Payload == nil || x.FillsLostNonce || x.Reservation != nil {
			continue
		}
		first := len(x.Versions) == 0 && x.State == InFlight && x.RequestedAction == ""
		if first || x.RequestedAction == ActionReplace || t.Rules.isBumpDue(*x, t.state.now()) {
			x.Authenticity = t.checkAuthenticity(ctx, *x)
		}
	}
}

// replaceForged is a placeholder for a transaction that got a nonce although it is not what
// was accepted: the nonce is consumed, and what is behind it goes on.
func (r Rules) replaceForged(t Tx, w SubmitterState) Transition {
	return r.requestPlaceholder(t, decidedByMAC, t.Forged, w)
}

// decidedByMAC is who ordered the placeholder of a transaction whose MAC is wrong.
const decidedByMAC = "intent MAC"
