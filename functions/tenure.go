package functions

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

type tenureRequest struct {
	Submitter string `json:"submitter"`
}

// routeTenure serves advance, receipt, confirm and resubmit. They look at all
// that the submitter has due; what tells them apart is the queue that paces
// them and whether they hold the signer's rights.
func (a *App) routeTenure(kind nonce.Kind) func(*web.Mux) {
	return func(mux *web.Mux) {
		path := "POST /internal/" + string(kind)
		inner := web.NewMux()
		a.handle(inner, string(kind), path, a.telling(func(w http.ResponseWriter, r *http.Request) error {
			return a.tenure(w, r, kind)
		}))
		mux.Handle(path, a.internalOnly(inner))
	}
}

// tenure answers 204 whenever its task has done its part, also where another
// invocation does the work; anything else makes the task come again.
func (a *App) tenure(w http.ResponseWriter, r *http.Request, kind nonce.Kind) error {
	body, err := web.Decode[tenureRequest](w, r, a.config.HTTP.MaxBodyBytes)
	if err != nil {
		return err
	}
	s, err := a.submitter("submitter", body.Submitter)
	if err != nil {
		return err
	}
	a.log.DebugContext(r.Context(), "task", telemetry.SubmitterKey, s, "function", kind,
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	ctx, cancel := context.WithTimeout(r.Context(), a.config.Tasks.DispatchDeadline-time.Second)
	defer cancel()
	worker, err := a.workerOf(s)
	if err == nil {
		err = worker.Serve(ctx, s, kind)
	}
	if errors.Is(err, store.ErrUnknownSubmitter) { // coming again would not help
		a.log.ErrorContext(ctx, "task of an unknown submitter dropped", telemetry.SubmitterKey, s, "error", err.Error())
		err = nil
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
