package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/ubscore/book"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// retryAfter is what callers are told where too many wait.
const retryAfter = time.Second

type do func(context.Context, book.Request) (book.Entry, error)

// operation serves a move of money, by either of the core's ways to take it.
func (s server) operation(do do) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := web.Decode[wire.Operation](w, r, wire.MaxBody)
		if err != nil {
			web.Fail(w, r, err)
			return
		}
		c, err := body.Call()
		if err != nil {
			web.Fail(w, r, problem(err))
			return
		}
		answer(w, r, do, requestOf(body.Op, c))
	}
}

// record serves what an operator says of a forgotten key.
func (s server) record(w http.ResponseWriter, r *http.Request) {
	body, err := web.Decode[wire.Record](w, r, wire.MaxBody)
	if err != nil {
		web.Fail(w, r, err)
		return
	}
	c, err := body.Call()
	if err != nil {
		web.Fail(w, r, problem(err))
		return
	}
	answer(w, r, func(ctx context.Context, request book.Request) (book.Entry, error) {
		return s.core.Record(ctx, request, body.Outcome == wire.Applied, body.Line)
	}, requestOf(body.Op, c))
}

func (s server) adjust(w http.ResponseWriter, r *http.Request) {
	body, err := web.Decode[wire.Adjustment](w, r, wire.MaxBody)
	if err != nil {
		web.Fail(w, r, err)
		return
	}
	c, balance, err := body.Call()
	if err != nil {
		web.Fail(w, r, problem(err))
		return
	}
	answer(w, r, func(ctx context.Context, request book.Request) (book.Entry, error) {
		return s.core.Adjust(ctx, request, balance)
	}, requestOf(body.Op, c))
}

func requestOf(op transfer.Op, c transfer.Call) book.Request {
	return book.Request{
		Kind: book.KindOf(op), AssetID: c.AssetID, UserID: c.UserID, Units: c.Units,
		CreatedAt: book.MicrosOf(c.CreatedAt), ReqID: c.ReqID,
	}
}

func (s server) setStatus(w http.ResponseWriter, r *http.Request) {
	body, err := web.Decode[wire.AccountStatus](w, r, wire.MaxBody)
	if err != nil {
		web.Fail(w, r, err)
		return
	}
	createdAt, err := body.Check()
	if err != nil {
		web.Fail(w, r, problem(err))
		return
	}
	answer(w, r, s.core.Do, book.Request{
		Kind: book.SetStatus, Status: book.StatusOf(body.Status), AssetID: *body.AssetID, UserID: *body.UserID,
		CreatedAt: book.MicrosOf(createdAt), ReqID: body.ReqID,
	})
}

func (s server) addAsset(w http.ResponseWriter, r *http.Request) {
	body, err := web.Decode[wire.Asset](w, r, wire.MaxBody)
	if err != nil {
		web.Fail(w, r, err)
		return
	}
	createdAt, err := body.Check()
	if err != nil {
		web.Fail(w, r, problem(err))
		return
	}
	answer(w, r, s.core.Do, book.Request{
		Kind: book.AddAsset, Precision: *body.Precision, AssetID: *body.AssetID,
		CreatedAt: book.MicrosOf(createdAt), ReqID: body.ReqID,
	})
}

func answer(w http.ResponseWriter, r *http.Request, do do, request book.Request) {
	e, err := do(r.Context(), request)
	if err != nil {
		web.Fail(w, r, problem(err))
		return
	}
	web.Reply(w, r, http.StatusOK, e.Answer())
}
