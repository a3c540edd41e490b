package txmanager

import (
	"context"
	"encoding/json"
	"errors"
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
	// The error wraps [ErrRetryLater] where the call could not be sent now (balance, fee limit, node,
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
// can read. Effects of the handler elsewhere are not undone. After an error that wraps [ErrRetryLater]
// the handler is called again later, for as long as [HandlerLimits.Patience].
type Handler func(ctx context.Context, n NonceContext) (Transaction, error)

// Errors of handler calls.
var (
	// ErrRetryLater reports that a later call may succeed. Nothing was changed.
	ErrRetryLater = errors.New("not now")

	// ErrSignedOther reports a nonce for which another transaction is signed.
	ErrSignedOther = errors.New("another transaction was signed for the nonce")

	// ErrHandlerCallOver reports a signer that was used after its handler call ended.
	ErrHandlerCallOver = errors.New("the handler is not asked any more")
)

// PanicOf calls f, which calls a deployer's code. It returns with what f panicked; nil: it did not.
func PanicOf(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}
