package txmanager

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
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

// Fingerprint identifies an accepted payload: a retry has the same one. It depends on the handler
// that makes a transaction from the payload; "": no handler.
func Fingerprint(handler string, payload []byte) [32]byte {
	return FingerprintUntil(handler, payload, nil)
}

// FingerprintUntil is [Fingerprint] of a payload with a validUntil; nil: without. A payload is
// JSON and contains no byte 0. The input therefore has two zero bytes with a validUntil, and one
// with a handler alone.
func FingerprintUntil(handler string, payload []byte, until *time.Time) [32]byte {
	input := string(payload)
	if handler != "" || until != nil {
		input = handler + "\x00" + input
	}
	if until != nil {
		input += "\x00" + until.UTC().Format(validUntilForm)
	}
	return sha256.Sum256([]byte(input))
}

// validUntilForm formats a validUntil in a fingerprint: in UTC, with microseconds.
const validUntilForm = "2006-01-02T15:04:05.000000Z"

// Terms are the input of t's MAC.
func (t Tx) Terms() IntentTerms {
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

// UnprovedReason is why the payload must not be signed, or "".
func (a Authenticity) UnprovedReason() string { return cmp.Or(a.Forged, a.Unknown) }

// Proof is the result of an intent's check.
type Proof string

// The results for an intent that is not proved authentic.
const (
	ProofForged   Proof = "forged"
	ProofNoKey    Proof = "keyless"  // this process lacks the key
	ProofUnknown  Proof = "unknown"  // the service that holds the key gave no answer
	ProofUnmarked Proof = "unmarked" // it has no MAC and needs none: it is signed
)
