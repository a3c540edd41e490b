// Package edge is the trading core's HTTP API: it authenticates, decodes, calls the core and
// encodes. docs/ubscore.md has every request and answer.
package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/web"
)

// New returns the handler for the core. Every path but /healthz requires the secret as a bearer
// token. A halted core answers HALTED to every request.
func New(c *core.Core, secret string) http.Handler {
	s := server{core: c}
	mux := web.NewMux()
	mux.HandleFunc("POST "+wire.OperationsPath, post(operation(c.Do)))
	mux.HandleFunc("POST "+wire.ResolvePath, post(operation(c.Resolve)))
	mux.HandleFunc("POST "+wire.RecordPath, post(s.record))
	mux.HandleFunc("POST "+wire.AdjustPath, post(s.adjust))
	mux.HandleFunc("POST "+wire.StatusPath, post(s.setStatus))
	mux.HandleFunc("POST "+wire.AssetsPath, post(s.addAsset))
	mux.HandleFunc("GET "+wire.JournalPath, answer(s.journal))
	mux.HandleFunc("GET "+wire.BalancesPath, answer(s.balances))
	mux.HandleFunc("GET "+wire.BalancesPath+"/{userId}/{assetId}", answer(s.balance))
	outer := web.NewMux()
	outer.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		web.Reply(w, r, http.StatusOK, map[string]string{"status": "ok"})
	})
	outer.Handle("/", authenticated(secret, mux))
	return web.Edge(web.NewGate(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := c.Halted(); h != nil {
			web.Fail(w, r, problem(h))
			return
		}
		outer.ServeHTTP(w, r)
	}))
}

type server struct{ core *core.Core }

// answer serves requests with the value that read returns, or with the problem of its error.
func answer(read func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := read(w, r)
		if err != nil {
			web.Fail(w, r, problem(err))
			return
		}
		web.Reply(w, r, http.StatusOK, value)
	}
}

// authenticated compares digests, so that the comparison's time does not reveal the secret's length.
func authenticated(secret string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(secret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values("Authorization")
		scheme, token, _ := strings.Cut(strings.Join(values, ","), " ")
		got := sha256.Sum256([]byte(token))
		if len(values) != 1 || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			p := web.NewProblem(web.Unauthorized, "want the core's secret as a bearer token")
			p.Header = http.Header{"Www-Authenticate": {"Bearer"}}
			web.Fail(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// problem returns the part of err that the caller may see.
func problem(err error) error {
	var halt *core.HaltError
	var field *wire.FieldError
	switch {
	case errors.As(err, &halt):
		return &web.Problem{Code: wire.Halted, Detail: "the core answers nothing until an operator has looked: " + halt.Advice}
	case errors.As(err, &field):
		return web.FieldProblem(field.Field, "%s", field.Detail)
	case errors.Is(err, core.ErrBusy):
		return &web.Problem{Code: wire.Busy, Detail: "too many requests wait; nothing was done", RetryAfter: retryAfter}
	case errors.Is(err, core.ErrViewGone):
		return web.NewProblem(wire.ViewGone, "the accounts as of that line are not kept any more; begin again without at and after")
	}
	for cause, code := range undecided {
		if errors.Is(err, cause) {
			return web.NewProblem(code, "%s; nothing was stored", cause)
		}
	}
	return err
}

// undecided are the book's errors for requests with an unknown result.
var undecided = map[error]web.Code{
	book.ErrContradiction:  wire.Contradiction,
	book.ErrBeyondHorizon:  wire.BeyondHorizon,
	book.ErrNotForgotten:   wire.NotForgotten,
	core.ErrEvidence:       wire.EvidenceDiffers,
	book.ErrAccountMoved:   wire.AccountMoved,
	book.ErrOutOfRange:     wire.OutOfRange,
	book.ErrAhead:          wire.CreatedAhead,
	book.ErrNoWithdrawal:   wire.NoWithdrawal,
	book.ErrRefundOverflow: wire.RefundOverflow,
	book.ErrNothingStored:  wire.NothingStored,
}
