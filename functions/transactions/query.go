package transactions

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteQuery serves the function query.
func (a *Server) RouteQuery(mux *web.Mux) {
	a.Handle(mux, "query", "GET /api/v1/tx/{txId}", serve.Show(a.Viewer, a.queryByID))
	a.Handle(mux, "query", "GET /api/v1/tx/by-request", serve.Show(a.Viewer, a.queryByRequest))
	a.Handle(mux, "events", "GET /api/v1/events", serve.Show(a.Viewer, a.replay))
}

// View is a transaction on the wire. Only an operator is shown the nonce and the members that
// reveal it.
type View struct {
	store.Record
	Nonce   *int64          `json:"nonce,omitempty"`
	Mempool json.RawMessage `json:"mempool,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`

	Waiting *store.Waiting `json:"waiting,omitempty"`
}

func (a *Server) queryByID(r *http.Request, v store.Viewer) (out View, err error) {
	id, err := serve.PathTxID(r)
	if err != nil {
		return out, err
	}
	return a.viewFor(v)(a.Store.TxWaiting(r.Context(), id, v))
}

func (a *Server) queryByRequest(r *http.Request, v store.Viewer) (out View, err error) {
	q, err := serve.Parameters(r, "submitter", "requestId")
	if err != nil {
		return out, err
	}
	s, err := a.Submitter("submitter", q["submitter"])
	if err != nil {
		return out, err
	}
	if err := serve.RequestID("requestId", q["requestId"]); err != nil {
		return out, err
	}
	return a.viewFor(v)(a.Store.TxWaitingByRequest(r.Context(), s, q["requestId"], v))
}

// Estimate sets when the wait of a transaction is expected to end, if it waits and this process serves its chain.
func Estimate(b *serve.Base, rec store.Record, w *store.Waiting) {
	if w == nil {
		return
	}
	if of, err := b.ChainOf(rec.Submitter); err == nil {
		w.ExpectedAt = expectedEnd(of.Rules.Finality, rec, *w)
	}
}

// expectedEnd estimates when a transaction is final that waits for finality, or when a queued one gets
// a nonce if only the window limits its queue. It assumes blocks at the expected times. nil: it waits
// for something else, or its position is not counted.
func expectedEnd(of rules.Finality, rec store.Record, w store.Waiting) *time.Time {
	var blocks []json.RawMessage
	switch {
	case w.Cause == txmanager.WaitFinality:
		_ = json.Unmarshal(rec.Confirmations, &blocks) // an estimate: without the list it is later
		return new(rec.UpdatedAt.Add(max(0, of.TimeToFinality()-time.Duration(len(blocks))*of.BlockTime)))
	case w.Position == nil || w.PositionMore || w.Window < 1 || w.Head != txmanager.WaitWindowFull && w.Head != txmanager.WaitNext:
		return nil
	}
	turns := (*w.Position + w.Window - 1) / w.Window
	if w.Head == txmanager.WaitNext {
		turns--
	}
	return new(w.Now.Add(time.Duration(turns) * of.TimeToFinality()))
}

// viewFor is what v is shown of a transaction that was read: viewFor(v)(read()).
func (a *Server) viewFor(v store.Viewer) func(store.Record, *store.Waiting, error) (View, error) {
	return func(rec store.Record, waiting *store.Waiting, err error) (View, error) {
		return ViewOf(a.Base, rec, waiting, v), err
	}
}

// ViewOf is what a viewer is shown of a transaction, with the estimate of [Estimate].
func ViewOf(b *serve.Base, rec store.Record, waiting *store.Waiting, v store.Viewer) View {
	Estimate(b, rec, waiting)
	out := View{Record: rec, Waiting: waiting}
	if v.Operator {
		out.Nonce, out.Mempool, out.LastErrorDetail = rec.Nonce, rec.Mempool, rec.LastErrorDetail
	}
	return out
}
