package transactions

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// maxBatchIntents is the most intents in one request.
const maxBatchIntents = 500

type batchRequest struct {
	Intents []createRequest `json:"intents"`
}

type batchResponse struct {
	Results []client.BatchResult `json:"results"` // one per intent, in the same order
}

// createBatch stores many intents in one round trip and one commit. Each intent has its own result; a
// refused intent does not stop the others.
func (a *Server) createBatch(w http.ResponseWriter, r *http.Request, v store.Viewer, body batchRequest) error {
	if len(r.Header.Values(serve.KeyHeader)) > 0 {
		return &web.Problem{Code: web.UnsupportedField, Field: serve.KeyHeader, Detail: "is not accepted for a batch; give each intent a requestId"}
	}
	if n := len(body.Intents); n == 0 || n > maxBatchIntents {
		return web.FieldProblem("intents", "has %d intents: want 1 to %d", n, maxBatchIntents)
	}
	results := make([]client.BatchResult, len(body.Intents))
	allowed, faults, err := a.allowedIntents(r.Context(), v, body.Intents)
	if err != nil {
		return err
	}
	var intents []store.Intent
	var places []int // of the intents in the batch
	for i, in := range allowed {
		if faults[i] != nil {
			results[i] = refusedResult(r, faults[i])
			continue
		}
		intents, places = append(intents, in), append(places, i)
	}
	a.Points.At("create.received")
	if len(intents) > 0 {
		created, err := a.Store.CreateAll(r.Context(), intents, a.MaxQueued)
		if err != nil {
			return err
		}
		a.Points.At("create.committed")
		refusals := make([]error, len(created))
		for i, c := range created {
			results[places[i]], refusals[i] = a.createdResult(r, intents[i], c), c.Err
		}
		a.enqueueAll(r, intents, created)
		a.delayRefusal(r, refusals...)
	}
	a.Points.At("create.enqueued")
	return web.Reply(w, r, http.StatusOK, batchResponse{Results: results})
}

// allowedIntents returns the intents of the bodies, and the fault of each that cannot be stored. It reads payloads only for
// submitters that the caller may use.
func (a *Server) allowedIntents(ctx context.Context, v store.Viewer, bodies []createRequest) (intents []store.Intent, faults []error, err error) {
	intents, faults = make([]store.Intent, len(bodies)), make([]error, len(bodies))
	var submitters []txmanager.Submitter
	for i, body := range bodies {
		if intents[i], faults[i] = a.parseIntent(v, body); faults[i] == nil {
			submitters = append(submitters, intents[i].Submitter)
		}
	}
	may, err := a.Store.UsableSubmitters(ctx, v.Names, submitters)
	if err != nil {
		return nil, nil, err
	}
	for i, in := range intents {
		if faults[i] == nil {
			intents[i], faults[i] = a.withPayload(in, bodies[i], may[in.Submitter])
		}
		if faults[i] != nil {
			telemetry.TxCreate.Add(ctx, 1, telemetry.Result("refused"))
		}
	}
	return intents, faults, nil
}

// enqueueAll enqueues one advance for each submitter that has new queued intents. If a call fails, the
// intents stay stored and the sweep finds them.
func (a *Server) enqueueAll(r *http.Request, intents []store.Intent, created []store.Created) {
	tokens := make(map[txmanager.Submitter]int64)
	for i, c := range created {
		if c.Err == nil && c.Queued {
			tokens[intents[i].Submitter] = c.Token
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), serve.EnqueueTimeout)
	defer cancel()
	failed, first := serve.MakeTasks(ctx, slices.Collect(maps.Keys(tokens)), func(s txmanager.Submitter) error {
		return a.Tasks.EnqueueAdvance(ctx, s, tokens[s])
	})
	if failed > 0 {
		a.Log.WarnContext(r.Context(), "no advance tasks: the sweep will find the intents",
			"submitters", failed, "of", len(tokens), "error", first.Error())
	}
}

func (a *Server) createdResult(r *http.Request, in store.Intent, c store.Created) client.BatchResult {
	if c.Err != nil {
		return refusedResult(r, c.Err)
	}
	return client.BatchResult{Status: a.logCreated(r, in, c.StoredIntent), TxID: c.TxID}
}

// refusedResult returns the problem that the intent alone would have been answered with.
func refusedResult(r *http.Request, err error) client.BatchResult {
	p := web.ProblemOf(r, serve.Problem(err))
	return client.BatchResult{Status: p.Code.Status, Code: p.Code.Name, Field: p.Field, Detail: p.Detail, RetryAfterSeconds: int(p.RetryAfterSeconds())}
}
