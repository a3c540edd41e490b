package txmanager

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// NonceContext is what a [Handler] is asked about.
type NonceContext struct {
	Submitter Submitter
	Nonce     uint64 // bound to this request for ever
	TxID      string
	RequestID string
	Input     json.RawMessage // what came with the request

	// Signer signs for Submitter and Nonce, while the handler is asked. A handler that
	// has no use for the bytes leaves that to whoever asks it.
	Signer NonceSigner
}

// NonceSigner signs the transaction of one nonce for the handler that is asked for
// it.
type NonceSigner interface {
	// Sign completes c by gas and fees as for any other, signs it for the nonce, and
	// returns the bytes once they are stored: from then on they are the request's
	// transaction, and what is mined decides. The same call again gets the same bytes.
	// The handler returns them, as [Transaction.Signed], or an error: then a
	// placeholder competes with them.
	//
	// The error wraps [ErrNotNow] where the call could not go out now (balance, fee
	// ceiling, node, signer), and [ErrSignedOther] where another was signed: then
	// nothing was. Once the handler is waited for no more it wraps [ErrHandlerCallOver].
	Sign(ctx context.Context, c Call) (Signed, error)
}

// Transaction is what a [Handler] made of a request: one of both.
type Transaction struct {
	Call          // signed by whoever asked, where Signed is nil
	Signed []byte // by the submitter's key, for the nonce, on its chain
}

// Handler makes the transaction of a request whose nonce is bound already. It
// never sends, and never manages the nonce.
//
// It is asked by whatever process holds the lease, and may be asked again for the
// same request, with the same NonceContext, where its answer was lost or cannot
// be carried out yet (balance, fee ceiling, node, signer). It may take as long as
// ctx allows. An error, a panic, a time-out, what no chain could do, bytes that are
// not signed by the submitter for the nonce and the chain, what the submitter's
// policy refuses, or a call that would revert, costs a placeholder: the nonce is
// consumed, and the request ends FAILED/PLACEHOLDER with the reason, which its caller
// may read. Nothing that it does elsewhere is undone. An error that wraps [ErrNotNow]
// has it asked again later, for as long as [Rules.HandlerPatience].
type Handler func(ctx context.Context, n NonceContext) (Transaction, error)

// Errors between a handler and whoever asks it.
var (
	// ErrNotNow says that the answer may be another one a little later. Nothing was changed.
	ErrNotNow = errors.New("not now")

	// ErrSignedOther reports a nonce for which another transaction is signed.
	ErrSignedOther = errors.New("another transaction was signed for the nonce")

	// ErrHandlerCallOver reports a signer that was used after its handler was given up.
	ErrHandlerCallOver = errors.New("the handler is not asked any more")
)

// maxHandlerCalls is how often a handler is asked for one nonce without an answer
// being stored: a process that dies asking would otherwise be followed by the
// next for ever.
const maxHandlerCalls = 3

// decidedByHandler is who ordered the placeholder of a handler that failed.
const decidedByHandler = "handler"

// needsHandlerCall says that t's handler is to be asked.
func (t Tx) needsHandlerCall() bool {
	return t.Handler != "" && t.State == InFlight && t.RequestedAction == ""
}

// nextHandlerCall is the transaction whose handler is to be asked now. Nothing that
// stands behind a nonce which no node holds is asked for: its answer could not
// go out.
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

// failHandler is t with a placeholder ordered, or STUCK where an operator has to
// be asked first.
func (r Rules) failHandler(t Tx, reason string, w SubmitterState) Transition {
	return r.requestPlaceholder(t, decidedByHandler, reason, w)
}

// requestPlaceholder is [Rules.failHandler], decided by whoever is named.
func (r Rules) requestPlaceholder(t Tx, by, reason string, w SubmitterState) Transition {
	from := t.State
	if r.AskBeforePlaceholder {
		return Transition{From: from, To: r.markStuck(t, w.now(), reason+"; nonce.placeholder=ask: an operator must decide")}
	}
	t.RequestedAction, t.LastError = ActionPlaceholder, reason
	return Transition{From: from, To: t, Decision: &Decision{Action: ActionPlaceholder, By: by, Reason: reason}}
}

// handlerResult is what came of asking a handler.
type handlerResult struct {
	call   Call
	params GasParams
	signed *Signed // the bytes it gave, proven; nil: they are still to be signed
	stored bool    // they were signed for it while it was asked, and are stored
	failed string  // why a placeholder is due; "": it is not
	wait   string  // why it has to be asked again later; "": not
	asked  bool    // it was, and answered: no attempt is left without an answer
}

// missingHandlerReason says that this process does not have t's handler, or "": another
// version of the program may have it.
func (w *Worker) missingHandlerReason(t Tx) string {
	if _, known := w.Handlers[t.Handler]; known || t.Handler == "" {
		return ""
	}
	return "no handler " + t.Handler + " in this process"
}

// keepWaiting is t, which keeps its nonce without bytes for this reason until it is
// asked for again. Nobody waits for ever: see [Rules.hasWaitedTooLong].
func (r Rules) keepWaiting(t Tx, m handlerResult, now time.Time) Tx {
	if m.asked {
		t.SubmitAttempts = 0
	}
	if t.FirstSubmitAt == nil {
		t.FirstSubmitAt = &now
	}
	return t
}

// shorten bounds a text that comes from outside, in bytes.
func shorten(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// handlerVersion is the first version of t as its handler made it.
func handlerVersion(t Tx, m handlerResult) (signingJob, string) {
	if m.wait != "" {
		return signingJob{}, m.wait
	}
	t.Gas = &m.params
	return signingJob{tx: t, kind: VersionOriginal, unsigned: buildUnsigned(t, m.call), signed: m.signed}, ""
}
