// Package transactions serves the callers of the transaction manager. They post intents, read what came
// of them and cancel them. It signs nothing and queries no node.
package transactions

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/web"
)

// The answer to a create that is refused for now, with 429, waits for a moment. Clients that repeat it at
// once then leave the processor to others. One caller can then have these and
// http.maxRequestsPerCaller at once, which is well below what an instance serves.
const (
	refusalDelay    = 250 * time.Millisecond
	delayedRefusals = 16 // of a process; further ones are answered at once
)

// NewHolds holds back the answers to refused creates of a process.
func NewHolds() *web.Holds { return web.NewHolds(delayedRefusals, refusalDelay) }

// delayRefusal delays the answer to r if one of its creates is refused for now.
func (a *Server) delayRefusal(r *http.Request, refusals ...error) {
	if slices.ContainsFunc(refusals, isForNow) {
		a.Held.Hold(r.Context(), a.AtWork)
	}
}

// isForNow reports whether the answer to err is 429.
func isForNow(err error) bool {
	var p *web.Problem
	return err != nil && errors.As(serve.Problem(err), &p) && p.Code.Status == http.StatusTooManyRequests
}

// Server serves the functions create, query and cancel.
type Server struct {
	*serve.Base
	Store    counted.Store
	Handlers []string // the handlers that requests may name

	MaxQueued  int        // per submitter
	Held       *web.Holds // of answers to creates that are refused for now
	EventsKept bool       // the events can be read again
	EventsMode string     // for the text of the answer if not
}
