package functions

import (
	"errors"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/web"
)

func (a *App) routeSweep(mux *web.Mux) {
	inner := web.NewMux()
	a.handle(inner, "sweep", "POST /internal/sweep", a.sweep)
	mux.Handle("POST /internal/sweep", a.internalOnly(inner))
}

type sweepResponse struct {
	Overdue  int `json:"overdue"`  // submitters found with overdue work
	Enqueued int `json:"enqueued"` // of which so many have a task again
}

// sweep finds what lost tasks left behind and enqueues it again, batch by batch,
// until nothing is overdue or half its time is up. One failure does not stop
// the rest; all are reported.
func (a *App) sweep(w http.ResponseWriter, r *http.Request) error {
	var out sweepResponse
	var failures []error
	for began := time.Now(); time.Since(began) < a.config.Tasks.DispatchDeadline/2; {
		found, minute, err := a.store.Overdue(r.Context(), a.config.Sweep.Grace, a.config.Sweep.Batch)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			a.points.At("sweep.found")
		}
		for _, s := range found {
			if err := a.tasks.Sweep(r.Context(), s, minute); err != nil {
				failures = append(failures, err)
				continue
			}
			out.Enqueued++
		}
		out.Overdue += len(found)
		if len(found) < a.config.Sweep.Batch || len(failures) > 0 {
			break
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if out.Overdue > 0 {
		a.log.InfoContext(r.Context(), "sweep enqueued overdue submitters", "overdue", out.Overdue)
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}
