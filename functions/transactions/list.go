package transactions

import (
	"errors"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// listedTx is a transaction in a list. Only an operator is shown the nonce.
type listedTx struct {
	store.Listed
	Nonce *int64 `json:"nonce,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`
}

// list shows a submitter's transactions, newest first and one page a call. A caller sees its own, an
// operator sees all. An intent's absence proves nothing; only GET …/by-request does.
func (a *Server) list(w http.ResponseWriter, r *http.Request, v store.Viewer) error {
	q, err := serve.Parameters(r, "submitter", "state", "pageSize", "pageToken")
	if err != nil {
		return err
	}
	query := store.ListQuery{State: txmanager.State(q["state"])}
	if query.Submitter, err = a.Submitter("submitter", q["submitter"]); err != nil {
		return err
	}
	if query.State != "" && !slices.Contains(txmanager.States(), query.State) {
		return web.FieldProblem("state", "is not a state; send one of %v", txmanager.States())
	}
	if query.Size, query.After, err = serve.PageOf(q, serve.TxPlace); err != nil {
		return err
	}
	page, next, err := a.Store.List(r.Context(), query, v)
	if errors.Is(err, store.ErrCursor) {
		return serve.NoSuchPage()
	}
	if err != nil {
		return err
	}
	listed := make([]listedTx, len(page))
	for i, one := range page {
		listed[i].Listed = one
		if v.Operator {
			listed[i].Nonce, listed[i].LastErrorDetail = one.Nonce, one.LastErrorDetail
		}
	}
	return web.Reply(w, r, http.StatusOK, serve.List{Name: "transactions", Rows: listed, Next: serve.PageToken(next, serve.TxPlace)})
}
