package functions

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// batchMost is how many intents one request may bring.
const batchMost = 500

type batchRequest struct {
	Intents []createRequest `json:"intents"`
}

type batchResponse struct {
	Results []batchResult `json:"results"` // one for each intent, in order
}

// batchResult is what POST /api/v1/tx would have answered to the intent alone.
type batchResult struct {
	Status int    `json:"status"`
	TxID   string `json:"txId,omitempty"`
	Code   string `json:"code,omitempty"`
	Field  string `json:"field,omitempty"` // within the intent
	Detail string `json:"detail,omitempty"`

	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"` // the header Retry-After
}

// createBatch stores many intents in one round trip and one commit. Each has a
// result of its own: one that is refused keeps no other from being stored.
func (a *App) createBatch(w http.ResponseWriter, r *http.Request) error {
	v, err := a.viewer(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[batchRequest](w, r, a.config.HTTP.MaxBodyBytes)
	if err != nil {
		return err
	}
	if len(r.Header.Values(keyHeader)) > 0 {
		return &web.Problem{Code: web.UnsupportedField, Field: keyHeader, Detail: "a batch has no key of its own: each of its intents has a requestId"}
	}
	if n := len(body.Intents); n == 0 || n > batchMost {
		return web.FieldProblem("intents", "has %d intents: want 1 to %d", n, batchMost)
	}
	results := make([]batchResult, len(body.Intents))
	intents, places, err := a.allowedOf(r, v, body.Intents, results)
	if err != nil {
		return err
	}
	a.points.At("create.received")
	if len(intents) > 0 {
		created, err := a.watched().CreateAll(r.Context(), intents, a.config.Queue.MaxPerSubmitter)
		if err != nil {
			return err
		}
		a.points.At("create.committed")
		for i, c := range created {
			results[places[i]] = a.createdResult(r, intents[i], c)
		}
		a.wakeAll(r, intents, created)
	}
	a.points.At("create.enqueued")
	web.Reply(w, r, http.StatusOK, batchResponse{Results: results})
	return nil
}

// allowedOf are the intents that can be stored, and their places in the batch; it fills
// the results of the others. Payloads are read only for submitters that the caller may
// use.
func (a *App) allowedOf(r *http.Request, v store.Viewer, bodies []createRequest, results []batchResult) (intents []store.Intent, places []int, err error) {
	names, faults := make([]store.Intent, len(bodies)), make([]error, len(bodies))
	var submitters []txmanager.Submitter
	for i, body := range bodies {
		if names[i], faults[i] = a.named(v, body); faults[i] == nil {
			submitters = append(submitters, names[i].Submitter)
		}
	}
	may, err := a.store.UsableSubmitters(r.Context(), v.Names, submitters)
	if err != nil {
		return nil, nil, err
	}
	for i, in := range names {
		if faults[i] == nil {
			in, faults[i] = a.intent(in, bodies[i], may[in.Submitter])
		}
		if faults[i] != nil {
			telemetry.TxCreate.Add(r.Context(), 1, telemetry.Result("refused"))
			results[i] = refusedResult(r, faults[i])
			continue
		}
		intents, places = append(intents, in), append(places, i)
	}
	return intents, places, nil
}

// wakeWithin bounds all CreateTask calls of one batch. Whoever gets no task by then
// is the sweep's.
const wakeWithin = 5 * time.Second

// wakeAll asks for one advance for each submitter that has something new queued.
// Where it cannot, the intents are safe all the same: the sweep finds them.
func (a *App) wakeAll(r *http.Request, intents []store.Intent, created []store.Created) {
	tokens := make(map[txmanager.Submitter]int64)
	for i, c := range created {
		if c.Err == nil && c.Queued {
			tokens[intents[i].Submitter] = c.Token
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), wakeWithin)
	defer cancel()
	failed, first := makeTasks(ctx, slices.Collect(maps.Keys(tokens)), func(s txmanager.Submitter) error {
		return a.tasks.EnqueueAdvance(ctx, s, tokens[s])
	})
	if failed > 0 {
		a.log.WarnContext(r.Context(), "no advance tasks: the sweep will find the intents",
			"submitters", failed, "of", len(tokens), "error", first.Error())
	}
}

func (a *App) createdResult(r *http.Request, in store.Intent, c store.Created) batchResult {
	if c.Err != nil {
		return refusedResult(r, c.Err)
	}
	return batchResult{Status: a.tellCreated(r, in, c.Accepted), TxID: c.TxID}
}

// refusedResult is the problem that the intent alone would have been answered.
func refusedResult(r *http.Request, err error) batchResult {
	p := web.ProblemOf(r, problem(err))
	return batchResult{Status: p.Code.Status, Code: p.Code.Name, Field: p.Field, Detail: p.Detail, RetryAfterSeconds: p.RetryAfterSeconds()}
}
