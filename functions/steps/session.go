// Package steps serves the internal tasks of the transaction manager: the lease sessions of a submitter,
// and the delivery of events.
package steps

import (
	"errors"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
	"github.com/fencepost/fencepost/shared/web"
)

// Server serves the functions advance, receipt, confirm, resubmit and publish.
type Server struct {
	*serve.Base
	WorkerOf   func(txmanager.Submitter) (*worker.Worker, error)
	Deliveries *events.Worker
	Slots      DeliverySlots
}

type sessionRequest struct {
	Submitter string `json:"submitter"`
}

// RouteSession serves advance, receipt, confirm and resubmit. Each handles everything that is due for
// the submitter. They differ in the queue that paces them and in whether they may sign.
func (a *Server) RouteSession(kind txmanager.Kind) func(*web.Mux) {
	return func(mux *web.Mux) {
		a.HandleInternal(mux, string(kind), a.DeliverAfter(serve.Task(a.Base, func(r *http.Request, body sessionRequest) error {
			return a.serveSession(r, body, kind)
		})))
	}
}

// serveSession returns nil when its task has done its part, even if another invocation does the work.
func (a *Server) serveSession(r *http.Request, body sessionRequest, kind txmanager.Kind) error {
	s, err := a.Submitter("submitter", body.Submitter)
	if err != nil {
		return err
	}
	a.Log.DebugContext(r.Context(), "task", telemetry.SubmitterKey, s, "function", kind,
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	ctx := r.Context()
	if kind == txmanager.KindAdvance {
		ctx = store.WithPatience(ctx)
	}
	worker, err := a.WorkerOf(s)
	if err == nil {
		err = worker.ServeSubmitter(ctx, s, kind)
	}
	if errors.Is(err, store.ErrUnknownSubmitter) { // a retry would not help
		a.Log.ErrorContext(ctx, "task of an unknown submitter dropped", telemetry.SubmitterKey, s, "error", err.Error())
		return nil
	}
	return err
}
