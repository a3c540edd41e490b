package transactions

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type replayedEvent struct {
	Cursor string          `json:"cursor"`
	Event  json.RawMessage `json:"event"`
}

// replay shows events page by page, oldest first. A caller sees the events of its transactions, an
// operator sees all. A reader that continues from nextPageToken misses no event while events are retained.
func (a *Server) replay(r *http.Request, v store.Viewer) (out serve.List, err error) {
	if !a.EventsKept {
		return out, web.NewProblem(web.NotFound, "this deployment stores no events: events.mode is %s; they need mq_outbox or webhook. GET /api/v1/tx/{txId} shows a transaction's state", a.EventsMode)
	}
	q, err := serve.Parameters(r, "submitter", "pageSize", "pageToken")
	if err != nil {
		return out, err
	}
	query, err := a.eventQuery(q)
	if err != nil {
		return out, err
	}
	stored := events.New(a.Store.Store)
	if err := stored.NumberEvents(r.Context(), a.Endpoints); err != nil { // events need a number before a page can show them; delivery does not wait for it
		a.Log.WarnContext(r.Context(), "events not numbered: the newest events are not shown yet", "error", err.Error())
	}
	page, next, err := stored.Events(r.Context(), query, v)
	var forgotten events.EventsDeletedError
	switch {
	case errors.Is(err, store.ErrCursor):
		return out, web.FieldProblem("pageToken", "is no position of these events: give nextPageToken of the page before, the cursor of an event, or leave it out")
	case errors.As(err, &forgotten):
		p := web.FieldProblem("pageToken", "is too old: the events after it were deleted (events.keep). Read the transactions by GET /api/v1/tx, then continue with %d", forgotten.Oldest)
		p.Members = map[string]any{"oldest": strconv.FormatUint(forgotten.Oldest, 10)}
		return out, p
	}
	shown := serve.ViewsOf(page, func(e txmanager.Event) replayedEvent {
		return replayedEvent{strconv.FormatUint(e.Position, 10), e.Body}
	})
	return serve.List{Name: "events", Rows: shown, Next: strconv.FormatUint(next, 10)}, err // always with a token: events follow later
}

func (a *Server) eventQuery(q map[string]string) (query events.EventQuery, err error) {
	if query.Size, _, err = serve.PageOf(map[string]string{"pageSize": q["pageSize"]}, serve.TxPlace); err != nil {
		return query, err
	}
	if q["submitter"] != "" {
		if query.Submitter, err = a.Submitter("submitter", q["submitter"]); err != nil {
			return query, err
		}
	}
	if q["pageToken"] != "" {
		n, ok := serve.Digits(q["pageToken"])
		if !ok {
			return query, web.FieldProblem("pageToken", "is %.40q: want nextPageToken of the page before, the cursor of an event, or nothing", q["pageToken"])
		}
		query.After = new(uint64(n))
	}
	return query, nil
}
