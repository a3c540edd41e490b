package nonce

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

// unproved says why nothing is signed for a payload, or "".
func (a Authenticity) unproved() string {
	if a.Forged != "" {
		return a.Forged
	}
	return a.Unknown
}

// unchecked is w as it was loaded: nothing in it was checked yet.
func (w Work) unchecked() Work {
	for _, list := range [][]Tx{w.Unsettled, w.Queue} {
		for i := range list {
			list[i].Authenticity = Authenticity{Unknown: unverified, Unchecked: true}
		}
	}
	return w
}

// authentic checks x's fingerprint against its payload, and its MAC.
func (t *tenure) authentic(ctx context.Context, x Tx) Authenticity {
	if print := FingerprintUntil(x.Handler, x.Payload, x.ValidUntil); !slices.Equal(print[:], x.Fingerprint) {
		return t.forged(ctx, x, forgedFingerprint, ErrForged)
	}
	switch {
	case x.Unmarked:
		t.unproved(ctx, ProofUnmarked)
		return Authenticity{}
	case x.MAC.Key == "":
		return t.forged(ctx, x, forgedMAC, ErrForged)
	case t.Intents == nil:
		return t.unknown(ctx, x, ErrMACKey)
	}
	err := t.call(ctx, func(ctx context.Context) error { return t.Intents.Verify(ctx, x.terms(), x.MAC) })
	switch {
	case errors.Is(err, ErrForged):
		return t.forged(ctx, x, forgedMAC, err)
	case err != nil: // a lost lease among them: then nothing more is written
		return t.unknown(ctx, x, err)
	}
	return Authenticity{}
}

func (t *tenure) forged(ctx context.Context, x Tx, reason string, err error) Authenticity {
	t.Log.Log(ctx, levelCritical, "an intent is not what was accepted: nothing is signed for it",
		append(t.attrs(), "txId", x.ID, "requestId", x.RequestID, "caller", x.Caller, "macKey", x.MAC.Key, "reason", reason, "error", err.Error())...)
	t.unproved(ctx, ProofForged)
	return Authenticity{Forged: reason}
}

func (t *tenure) unknown(ctx context.Context, x Tx, err error) Authenticity {
	t.Log.ErrorContext(ctx, "the MAC of an intent cannot be checked: it waits",
		append(t.attrs(), "txId", x.ID, "macKey", x.MAC.Key, "error", err.Error())...)
	if errors.Is(err, ErrMACKey) {
		t.unproved(ctx, ProofNoKey)
		return Authenticity{Unknown: unknownKey, NoKey: true}
	}
	t.unproved(ctx, ProofUnknown)
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

func (t *tenure) unproved(ctx context.Context, p Proof) {
	if t.Watch != nil {
		t.Watch.Unproved(ctx, p)
	}
}

// checkQueue checks as many intents as may get a nonce now, and those that are deferred. It stops at the first whose
// authenticity is unknown because a service gave no answer, and after the time that
// signatures may take: a later iteration goes on from there.
func (t *tenure) checkQueue(ctx context.Context) {
	began, proved := time.Now(), 0
	for i := range t.work.Queue {
		x := &t.work.Queue[i]
		if proved == t.work.seat().most || i > 0 && t.signedLong(began) {
			return
		}
		if x.Unchecked {
			x.Authenticity = t.authentic(ctx, *x)
		}
		switch {
		case x.unproved() == "" && x.DeferredAt == nil:
			proved++
		case x.unproved() == "":
		case x.Forged == "" && !x.NoKey:
			return
		}
	}
}

// checkBound checks the transactions that hold a nonce and whose payload may be signed or
// given to a handler now. Reservations and fills have no payload to sign.
func (t *tenure) checkBound(ctx context.Context) {
	for i := range t.work.Unsettled {
		x := &t.work.Unsettled[i]
		if !x.Unchecked || x.Payload == nil || x.Fills || x.Reservation != nil {
			continue
		}
		first := len(x.Versions) == 0 && x.State == InFlight && x.Ordered == ""
		if first || x.Ordered == OrderReplace || t.Rules.bumpDue(*x, t.work.now()) {
			x.Authenticity = t.authentic(ctx, *x)
		}
	}
}

// forgedNext is a placeholder for a transaction that got a nonce although it is not what
// was accepted: the nonce is consumed, and what is behind it goes on.
func (r Rules) forgedNext(t Tx, w Work) Move {
	return r.placeholderInstead(t, decidedByMAC, t.Forged, w)
}

// decidedByMAC is who ordered the placeholder of a transaction whose MAC is wrong.
const decidedByMAC = "intent MAC"
