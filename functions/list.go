package functions

import (
	"errors"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type listResponse struct {
	Transactions  []listedTx `json:"transactions"`
	NextPageToken string     `json:"nextPageToken,omitempty"` // absent on the last page
}

// listedTx is a transaction in a list. Only an operator is shown the nonce.
type listedTx struct {
	store.Listed
	Nonce *int64 `json:"nonce,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`
}

// list shows a submitter's transactions, newest first and one page a call. A caller sees its own, an
// operator sees all. An intent's absence proves nothing; only GET …/by-request does.
func (a *App) list(w http.ResponseWriter, r *http.Request) error {
	v, err := a.Viewer(r)
	if err != nil {
		return err
	}
	q, err := serve.Parameters(r, "submitter", "state", "pageSize", "pageToken")
	if err != nil {
		return err
	}
	query := store.ListQuery{State: txmanager.State(q["state"])}
	if query.Submitter, err = a.Submitter("submitter", q["submitter"]); err != nil {
		return err
	}
	if query.State != "" && !slices.Contains(txmanager.States(), query.State) {
		return web.FieldProblem("state", "is no state: want one of %v", txmanager.States())
	}
	if query.Size, query.After, err = serve.PageOf(q, serve.TxPlace); err != nil {
		return err
	}
	page, next, err := a.store.List(r.Context(), query, v)
	if errors.Is(err, store.ErrCursor) {
		return serve.NoSuchPage()
	}
	if err != nil {
		return err
	}
	out := listResponse{Transactions: make([]listedTx, len(page)), NextPageToken: serve.PageToken(next, serve.TxPlace)}
	for i, one := range page {
		out.Transactions[i].Listed = one
		if v.Operator {
			out.Transactions[i].Nonce, out.Transactions[i].LastErrorDetail = one.Nonce, one.LastErrorDetail
		}
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

type transfersResponse struct {
	Transfers     []transferView `json:"transfers"`
	NextPageToken string         `json:"next_page_token,omitempty"` // absent on the last page
}

// listTransfers shows a user's own transfers and payouts, newest first and one page a call.
func (a *App) listTransfers(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	q, err := serve.Parameters(r, "state", "pageSize", "pageToken")
	if err != nil {
		return err
	}
	query := transfers.ListQuery{UserID: user}
	if q["state"] != "" {
		states := transfer.States()
		i := slices.IndexFunc(states, func(s transfer.State) bool { return s.String() == q["state"] })
		if i < 0 {
			return web.FieldProblem("state", "is no state: want one of %v", states)
		}
		query.State = &states[i]
	}
	if query.Size, query.After, err = serve.PageOf(q, serve.TransferPlace); err != nil {
		return err
	}
	page, next, err := a.transfers.store.List(r.Context(), query)
	if errors.Is(err, transfers.ErrCursor) {
		return serve.NoSuchPage()
	}
	if err != nil {
		return err
	}
	out := transfersResponse{Transfers: make([]transferView, len(page)), NextPageToken: serve.PageToken(next, serve.TransferPlace)}
	for i, t := range page {
		out.Transfers[i] = viewOf(t)
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}
