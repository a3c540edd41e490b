package txmanager

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// NonceContext is the input of a [Handler].
type NonceContext struct {
	Submitter Submitter
	Nonce     uint64 // bound to this request permanently
	TxID      string
	RequestID string
	Input     json.RawMessage // the request's payload

	// Signer signs for Submitter and Nonce during the handler call. A handler that does not need
	// the signed bytes returns a Call instead, which the transaction manager signs.
	Signer NonceSigner
}

// NonceSigner signs the transaction of one nonce during a handler call.
type NonceSigner interface {
	// Sign completes gas and fees of c as for any intent, signs it for the nonce, stores the bytes
	// and returns them. From then on they are the request's transaction, and the mined version
	// decides. The same call gets the same bytes again. The handler must return them as
	// [Transaction.Signed]. If it returns an error instead, a placeholder competes with them.
	//
	// The error wraps [ErrNotNow] where the call could not be sent now (balance, fee limit, node,
	// signer). It wraps [ErrSignedOther] where another call was signed before; c is then not
	// signed. After the handler call ended it wraps [ErrHandlerCallOver].
	Sign(ctx context.Context, c Call) (Signed, error)
}

// Transaction is the result of a [Handler]: either Call or Signed.
type Transaction struct {
	Call          // signed by the transaction manager, where Signed is nil
	Signed []byte // signed by the submitter's key, for the nonce, on its chain
}

// Handler makes the transaction of a request whose nonce is already bound. It must not send it.
//
// The process that holds the lease calls the handler. It may call it again for the same request,
// with the same NonceContext, where the answer was lost or cannot be carried out yet (balance, fee
// limit, node, signer). The handler may take as long as ctx allows. It fails by an error, a panic
// or a time-out. A call also fails if it is invalid, would revert or is refused by the submitter's
// policy. Bytes fail if the submitter did not sign them for the nonce and chain. A placeholder
// then consumes the nonce. The request ends FAILED/PLACEHOLDER with the reason, which its caller
// can read. Effects of the handler elsewhere are not undone. After an error that wraps [ErrNotNow]
// the handler is called again later, for as long as [HandlerLimits.Patience].
type Handler func(ctx context.Context, n NonceContext) (Transaction, error)

// Errors of handler calls.
var (
	// ErrNotNow reports that a later call may succeed. Nothing was changed.
	ErrNotNow = errors.New("not now")

	// ErrSignedOther reports a nonce for which another transaction is signed.
	ErrSignedOther = errors.New("another transaction was signed for the nonce")

	// ErrHandlerCallOver reports a signer that was used after its handler call ended.
	ErrHandlerCallOver = errors.New("the handler is not asked any more")
)

// maxHandlerCalls is how often a handler is called for one nonce without a stored answer. Without
// this limit, a handler that kills its process would be called forever.
const maxHandlerCalls = 3

// decidedByHandler is recorded as the decider of the placeholder after a failed handler call.
const decidedByHandler = "handler"

// needsHandlerCall reports whether t's handler must be called.
func (t Tx) needsHandlerCall() bool {
	return t.Handler != "" && t.State == InFlight && t.RequestedAction == ""
}

// nextHandlerCall is the transaction whose handler is to be called now. No handler is called above
// a nonce that no node holds: its transaction could not be sent.
func (w SubmitterState) nextHandlerCall() (Tx, bool) {
	for _, t := range w.Open {
		switch {
		case t.needsHandlerCall():
			return t, t.isDueBy(w.now())
		case !t.isBroadcasting():
			return Tx{}, false
		}
	}
	return Tx{}, false
}

// failHandler is t with a placeholder requested, or STUCK where an operator must decide first.
func (r Rules) failHandler(t Tx, reason string, w SubmitterState) Transition {
	return r.requestPlaceholder(t, decidedByHandler, reason, w)
}

// requestPlaceholder requests a placeholder for t, or marks t STUCK where an operator must decide
// first. by is recorded as the decider.
func (r Rules) requestPlaceholder(t Tx, by, reason string, w SubmitterState) Transition {
	from := t.State
	if r.AskBeforePlaceholder {
		return Transition{From: from, To: r.markStuck(t, w.now(), reason+"; nonce.placeholder=ask: an operator must decide")}
	}
	t.RequestedAction, t.LastError = ActionPlaceholder, reason
	return Transition{From: from, To: t, Decision: &Decision{Action: ActionPlaceholder, By: by, Reason: reason}}
}

// handlerResult is the result of a handler call.
type handlerResult struct {
	call   Call
	params GasParams
	signed *Signed // the bytes it returned, checked; nil: still to be signed
	stored bool    // they were signed and stored during the call
	failed string  // why a placeholder is needed; "": it is not
	wait   string  // why it must be called again later; "": no need
	asked  bool    // the handler was called and answered, so that the count of calls without an answer is reset
}

// missingHandlerReason is why t's handler cannot be called by this process, or "". Another version
// of the program may have the handler.
func (w *Worker) missingHandlerReason(t Tx) string {
	if _, known := w.Handlers[t.Handler]; known || t.Handler == "" {
		return ""
	}
	return "no handler " + t.Handler + " in this process"
}

// keepWaiting is t, which keeps its nonce without bytes until the next handler call.
// [Rules.hasWaitedTooLong] limits the wait.
func (r Rules) keepWaiting(t Tx, m handlerResult, now time.Time) Tx {
	if m.asked {
		t.SubmitAttempts = 0
	}
	if t.FirstSubmitAt == nil {
		t.FirstSubmitAt = &now
	}
	return t
}

// shorten cuts a text from outside to 300 bytes.
func shorten(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// handlerVersion is the first version of t from its handler's result, or the reason to wait.
func handlerVersion(t Tx, m handlerResult) (signingJob, string) {
	if m.wait != "" {
		return signingJob{}, m.wait
	}
	t.Gas = &m.params
	return signingJob{tx: t, kind: VersionOriginal, unsigned: buildUnsigned(t, m.call), signed: m.signed}, ""
}
