package transactions

import (
	"encoding/json"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteQuery serves the function query.
func (a *Server) RouteQuery(mux *web.Mux) {
	a.Handle(mux, "query", "GET /api/v1/tx/{txId}", a.queryByID)
	a.Handle(mux, "query", "GET /api/v1/tx/by-request", a.queryByRequest)
	a.Handle(mux, "events", "GET /api/v1/events", a.replay)
}

// txResponse is a transaction on the wire. Only an operator is shown the nonce and the members that
// reveal it.
type txResponse struct {
	store.Record
	Nonce   *int64          `json:"nonce,omitempty"`
	Mempool json.RawMessage `json:"mempool,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`
}

func (a *Server) queryByID(w http.ResponseWriter, r *http.Request) error {
	v, err := a.Viewer(r)
	if err != nil {
		return err
	}
	id, err := serve.PathTxID(r)
	if err != nil {
		return err
	}
	rec, err := a.Store.Tx(r.Context(), id, v)
	return reply(w, r, rec, v, err)
}

func (a *Server) queryByRequest(w http.ResponseWriter, r *http.Request) error {
	v, err := a.Viewer(r)
	if err != nil {
		return err
	}
	q, err := serve.Parameters(r, "submitter", "requestId")
	if err != nil {
		return err
	}
	s, err := a.Submitter("submitter", q["submitter"])
	if err != nil {
		return err
	}
	if err := serve.RequestID("requestId", q["requestId"]); err != nil {
		return err
	}
	rec, err := a.Store.TxByRequest(r.Context(), s, q["requestId"], v)
	return reply(w, r, rec, v, err)
}

func reply(w http.ResponseWriter, r *http.Request, rec store.Record, v store.Viewer, err error) error {
	if err != nil {
		return err
	}
	out := txResponse{Record: rec}
	if v.Operator {
		out.Nonce, out.Mempool, out.LastErrorDetail = rec.Nonce, rec.Mempool, rec.LastErrorDetail
	}
	return web.Reply(w, r, http.StatusOK, out)
}
