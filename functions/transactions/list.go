package transactions

import (
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
func (a *Server) list(r *http.Request, v store.Viewer, q map[string]string) (out serve.List, err error) {
	query := store.ListQuery{State: txmanager.State(q["state"])}
	if query.Submitter, err = a.Submitter("submitter", q["submitter"]); err != nil {
		return out, err
	}
	if query.State != "" && !slices.Contains(txmanager.States(), query.State) {
		return out, web.FieldProblem("state", "is not a state; send one of %v", txmanager.States())
	}
	if query.Size, query.After, err = serve.PageOf(q, serve.TxPlace); err != nil {
		return out, err
	}
	page, next, err := a.Store.List(r.Context(), query, v)
	listed := make([]listedTx, len(page))
	for i, one := range page {
		listed[i].Listed = one
		if v.Operator {
			listed[i].Nonce, listed[i].LastErrorDetail = one.Nonce, one.LastErrorDetail
		}
	}
	return serve.List{Name: "transactions", Rows: listed, Next: serve.PageToken(next, serve.TxPlace)}, err
}
