package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// retryAfter is the Retry-After of the answer to a busy core's callers.
const retryAfter = time.Second

// apply applies a request to the core and returns the stored line.
type apply func(context.Context, book.Request) (book.Entry, error)

// post serves requests with the body T. The function read returns the core's request for the body, and
// the method of the core that applies it.
func post[T any](read func(T) (apply, book.Request, error)) http.HandlerFunc {
	return answer(func(w http.ResponseWriter, r *http.Request) (any, error) {
		body, err := web.Decode[T](w, r, wire.MaxBody)
		if err != nil {
			return nil, err
		}
		apply, request, err := read(body)
		if err != nil {
			return nil, err
		}
		e, err := apply(r.Context(), request)
		return e.Answer(), err
	})
}

// operation reads an operation, for Do or Resolve.
func operation(method apply) func(wire.Operation) (apply, book.Request, error) {
	return func(body wire.Operation) (apply, book.Request, error) {
		c, err := body.Call()
		return method, requestOf(body.Op, c), err
	}
}

// record reads an operator's statement about a forgotten key.
func (s server) record(body wire.Record) (apply, book.Request, error) {
	c, err := body.Call()
	return func(ctx context.Context, request book.Request) (book.Entry, error) {
		return s.core.Record(ctx, request, body.Outcome == wire.Applied, body.Line)
	}, requestOf(body.Op, c), err
}

func (s server) adjust(body wire.Adjustment) (apply, book.Request, error) {
	c, balance, err := body.Call()
	return func(ctx context.Context, request book.Request) (book.Entry, error) {
		return s.core.Adjust(ctx, request, balance)
	}, requestOf(body.Op, c), err
}

func requestOf(op transfer.Op, c transfer.Call) book.Request {
	return book.Request{
		Kind: book.KindOf(op), AssetID: c.AssetID, UserID: c.UserID, Units: c.Units,
		CreatedAt: book.MicrosOf(c.CreatedAt), ReqID: c.ReqID,
	}
}

func (s server) setStatus(body wire.AccountStatus) (apply, book.Request, error) {
	createdAt, err := body.Check()
	if err != nil {
		return nil, book.Request{}, err // a required field may be missing
	}
	return s.core.Do, book.Request{
		Kind: book.SetStatus, Status: book.StatusOf(body.Status), AssetID: *body.AssetID, UserID: *body.UserID,
		CreatedAt: book.MicrosOf(createdAt), ReqID: body.ReqID,
	}, nil
}

func (s server) addAsset(body wire.Asset) (apply, book.Request, error) {
	createdAt, err := body.Check()
	if err != nil {
		return nil, book.Request{}, err // a required field may be missing
	}
	return s.core.Do, book.Request{
		Kind: book.AddAsset, Precision: *body.Precision, AssetID: *body.AssetID,
		CreatedAt: book.MicrosOf(createdAt), ReqID: body.ReqID,
	}, nil
}
