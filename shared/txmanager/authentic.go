package txmanager

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"
)

// IntentTerms are the input of an intent's MAC. None of them changes after the intent is stored.
type IntentTerms struct {
	TxID        string // a UUID
	Submitter   Submitter
	RequestID   string
	Caller      string // as stored
	Handler     string // "": none
	Fingerprint []byte
}

// MAC proves that a function that accepts intents stored the intent.
type MAC struct {
	Key string // id of the key; "": no MAC
	Sum []byte
}

// IntentVerifier checks MACs of intents.
type IntentVerifier interface {
	// Verify returns nil if m is the MAC of t. The error wraps [ErrForged] if m is certainly not
	// the MAC of t, and [ErrMACKey] if this process lacks the key that m names. Any other error is
	// unknown: the service that holds the key gave no answer.
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
)

// Fingerprint identifies an accepted payload: a retry has the same one. It depends on the handler
// that makes a transaction from the payload; "": no handler.
func Fingerprint(handler string, payload []byte) [32]byte {
	if handler == "" {
		return sha256.Sum256(payload)
	}
	return sha256.Sum256(append([]byte(handler+"\x00"), payload...))
}

// FingerprintUntil is [Fingerprint] of a payload with a validUntil; nil: without. A payload is
// JSON and contains no byte 0. The input therefore has two zero bytes with a validUntil, and one
// with a handler alone.
func FingerprintUntil(handler string, payload []byte, until *time.Time) [32]byte {
	if until == nil {
		return Fingerprint(handler, payload)
	}
	return sha256.Sum256([]byte(handler + "\x00" + string(payload) + "\x00" + until.UTC().Format(validUntilForm)))
}

// validUntilForm formats a validUntil in a fingerprint: in UTC, with microseconds.
const validUntilForm = "2006-01-02T15:04:05.000000Z"

// terms are the input of t's MAC.
func (t Tx) terms() IntentTerms {
	return IntentTerms{TxID: t.ID, Submitter: t.Submitter, RequestID: t.RequestID, Caller: t.Caller, Handler: t.Handler, Fingerprint: t.Fingerprint}
}

// Authenticity is the result of checking that a transaction is an intent stored by a function that
// accepts intents. The zero value means that it is.
type Authenticity struct {
	Forged    string // why it certainly is not; "": it is, or the result is unknown
	Unknown   string // why the result is unknown; "": it is known
	NoKey     bool   // where unknown: this process lacks the key of the MAC
	Unchecked bool   // where unknown: it was not checked yet
}

// unprovedReason is why the payload must not be signed, or "".
func (a Authenticity) unprovedReason() string {
	if a.Forged != "" {
		return a.Forged
	}
	return a.Unknown
}

// unverified is the reason that a caller reads while an intent is not checked.
const unverified = "the intent's MAC cannot be checked now"

// withoutChecks is w with every transaction marked as unchecked.
func (w SubmitterState) withoutChecks() SubmitterState {
	for _, list := range [][]Tx{w.Open, w.Queue} {
		for i := range list {
			list[i].Authenticity = Authenticity{Unknown: unverified, Unchecked: true}
		}
	}
	return w
}

// checkAuthenticity checks x's fingerprint against its payload, and its MAC.
func (t *invocation) checkAuthenticity(ctx context.Context, x Tx) Authenticity {
	if print := FingerprintUntil(x.Handler, x.Payload, x.ValidUntil); !slices.Equal(print[:], x.Fingerprint) {
		return t.noteForged(ctx, x, forgedFingerprint, ErrForged)
	}
	switch {
	case x.NeedsNoMAC:
		t.noteUnproved(ctx, ProofUnmarked)
		return Authenticity{}
	case x.MAC.Key == "":
		return t.noteForged(ctx, x, forgedMAC, ErrForged)
	case t.worker.Intents == nil:
		return t.noteUnknown(ctx, x, ErrMACKey)
	}
	err := t.callOutside(ctx, func(ctx context.Context) error { return t.worker.Intents.Verify(ctx, x.terms(), x.MAC) })
	switch {
	case errors.Is(err, ErrForged):
		return t.noteForged(ctx, x, forgedMAC, err)
	case err != nil: // includes a lost lease, after which every write fails
		return t.noteUnknown(ctx, x, err)
	}
	return Authenticity{}
}

func (t *invocation) noteForged(ctx context.Context, x Tx, reason string, err error) Authenticity {
	t.Log.Log(ctx, levelCritical, "an intent is not what was accepted: nothing is signed for it",
		append(t.logAttrs(), "txId", x.ID, "requestId", x.RequestID, "caller", x.Caller, "macKey", x.MAC.Key, "reason", reason, "error", err.Error())...)
	t.noteUnproved(ctx, ProofForged)
	return Authenticity{Forged: reason}
}

func (t *invocation) noteUnknown(ctx context.Context, x Tx, err error) Authenticity {
	t.Log.ErrorContext(ctx, "the MAC of an intent cannot be checked: it waits",
		append(t.logAttrs(), "txId", x.ID, "macKey", x.MAC.Key, "error", err.Error())...)
	if errors.Is(err, ErrMACKey) {
		t.noteUnproved(ctx, ProofNoKey)
		return Authenticity{Unknown: unknownKey, NoKey: true}
	}
	t.noteUnproved(ctx, ProofUnknown)
	return Authenticity{Unknown: unverified}
}

// Proof is the result of an intent's check.
type Proof string

// The results for an intent that is not proved authentic.
const (
	ProofForged   Proof = "forged"
	ProofNoKey    Proof = "keyless"  // this process lacks the key
	ProofUnknown  Proof = "unknown"  // the service that holds the key gave no answer
	ProofUnmarked Proof = "unmarked" // it has no MAC and needs none: it is signed
)

func (t *invocation) noteUnproved(ctx context.Context, p Proof) {
	if t.Watcher != nil {
		t.Watcher.IntentUnproved(ctx, p)
	}
}

// checkQueue checks as many intents as can get a nonce now, and the deferred ones among them. It
// stops when a service gives no answer about one, and when the time for signatures is over. A
// later iteration continues.
func (t *invocation) checkQueue(ctx context.Context) {
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

// checkOpen checks the open transactions whose payload may be signed, or passed to a handler, now.
// Reservations and fills have no payload to sign.
func (t *invocation) checkOpen(ctx context.Context) {
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

// replaceForged requests a placeholder for a forged transaction that has a nonce, so that later
// transactions can proceed.
func (r Rules) replaceForged(t Tx, w SubmitterState) Transition {
	return r.requestPlaceholder(t, decidedByMAC, t.Forged, w)
}

// decidedByMAC is recorded as the decider of the placeholder for a wrong MAC.
const decidedByMAC = "intent MAC"
