// Package serve is the part that the functions' servers share. It identifies the caller, reads requests
// and turns errors into answers. It has the ports to chains and tasks that several servers use, and knows no signer and no ledger.
package serve

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// MaxReason is the longest reason that an operator can give, in bytes.
const MaxReason = 1000

// Handler serves a request. The error becomes the answer.
type Handler func(http.ResponseWriter, *http.Request) error

// Base is the part that all servers of a process share. Servers embed it.
type Base struct {
	Log      *slog.Logger
	Node     string
	Points   crash.Points
	Auth     config.Auth
	Public   *web.Verifier // of callers and operators
	People   *web.Verifier // of people who have signed in to the console; nil: there is none
	Internal *web.Verifier // of Cloud Tasks and the scheduler
	AtWork   *web.Callers
	Mark     *Mark // nil: no mark is kept outside the database
	Tasks    *tasks.Tasks

	Endpoints    []string // of events; none if events are off
	MaxBodyBytes int64
	Deadline     time.Duration  // of a task or a sweep
	Families     chain.Families // of the chains that are served
	Chains       []*Chain       // that the deployment serves, first that of an address without a chain prefix
}

// Handle serves pattern by h as the function name, and logs the cost of each invocation.
func (b *Base) Handle(mux *web.Mux, name, pattern string, h Handler) {
	served := telemetry.Invocation(b.Log, name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, leave := b.AtWork.Track(r)
		defer leave()
		err := b.Mark.Compare(r.Context(), b.Log)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			web.Fail(w, r, Problem(err))
		}
	}))
	if !strings.Contains(pattern, "/internal/") {
		served = telemetry.Untrusted(served)
	}
	mux.Handle(pattern, served)
}

// HandleInternal is [Base.Handle] for POST /internal/name. It admits only the service accounts of Cloud
// Tasks and the scheduler. It trusts their tokens, never a plain header.
func (b *Base) HandleInternal(mux *web.Mux, name string, h Handler) {
	inner := web.NewMux()
	b.Handle(inner, name, "POST /internal/"+name, h)
	mux.Handle("POST /internal/"+name, web.RequireAccounts(b.Internal, b.Auth.InternalAccounts...)(inner))
}
