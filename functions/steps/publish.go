package steps

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// RoutePublish serves the function publish.
func (a *Server) RoutePublish(mux *web.Mux) {
	a.HandleInternal(mux, "publish", serve.Task(a.Base, a.publish))
}

type publishRequest struct {
	Submitter string `json:"submitter"`
	Endpoint  string `json:"endpoint"`
	Test      int64  `json:"test"` // number of an operator's test; 0: the submitter's events
}

const (
	// totalSlots is the number of delivery queues that one process serves at once, over all endpoints.
	// It is this process's share of the 50 concurrent tasks of the queue publish, with five instances.
	totalSlots = 10
	// slotTimeout is how long a task waits for a delivery slot. Tasks of a slow endpoint must not fill
	// the queue by waiting.
	slotTimeout = 200 * time.Millisecond
)

// DeliverySlots bounds each endpoint's share of a process, so that a slow endpoint uses no other's
// share.
type DeliverySlots map[string]chan struct{}

func NewDeliverySlots(endpoints []string) DeliverySlots {
	all := make(DeliverySlots)
	if len(endpoints) < 2 { // a single endpoint takes no other's share
		return all
	}
	for _, name := range endpoints {
		all[name] = make(chan struct{}, max(1, totalSlots/len(endpoints)))
	}
	return all
}

// acquire takes one of the endpoint's slots; the caller must call release. A single or unknown
// endpoint needs no slot.
func (t DeliverySlots) acquire(ctx context.Context, endpoint string) (release func(), ok bool) {
	turn, known := t[endpoint]
	if !known {
		return func() {}, true
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, true
	case <-ctx.Done():
		return nil, false
	}
}

// publish delivers one submitter's events to one endpoint. It returns nil when its task has done its
// part, even if the endpoint accepted nothing: another task or the sweep then tries again.
func (a *Server) publish(r *http.Request, body publishRequest) error {
	if body.Endpoint == "" {
		return web.FieldProblem("endpoint", "is required: the name of the endpoint")
	}
	if body.Test != 0 {
		return a.Deliveries.Test(r.Context(), body.Endpoint, body.Test)
	}
	s, err := a.Submitter("submitter", body.Submitter)
	if err != nil {
		return err
	}
	a.Log.DebugContext(r.Context(), "task", telemetry.SubmitterKey, s, "endpoint", body.Endpoint, "function", "publish",
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	release, ok := a.Slots.acquire(r.Context(), body.Endpoint)
	if !ok {
		a.Log.DebugContext(r.Context(), "all delivery slots of the endpoint are in use: the sweep tries again", telemetry.SubmitterKey, s, "endpoint", body.Endpoint)
		return nil
	}
	defer release()
	return a.Deliveries.Serve(r.Context(), events.DeliveryQueue{Submitter: s, Endpoint: body.Endpoint})
}
