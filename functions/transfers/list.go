package transfers

import (
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// listTransfers shows a user's own transfers and payouts, newest first and one page a call.
func (a *Server) listTransfers(r *http.Request, user int64, q map[string]string) (out serve.List, err error) {
	query := transfers.ListQuery{UserID: user}
	if query.State, err = StateOf(q["state"]); err != nil {
		return out, err
	}
	if query.Size, query.After, err = serve.PageOf(q, serve.TransferPlace); err != nil {
		return out, err
	}
	page, next, err := a.Store.List(r.Context(), query)
	return serve.List{Name: "transfers", Rows: serve.ViewsOf(page, ViewOf), Next: serve.PageToken(next, serve.TransferPlace)}, err
}

// StateOf returns the state of a query; nil if the text is empty.
func StateOf(text string) (*transfer.State, error) {
	if text == "" {
		return nil, nil
	}
	states := transfer.States()
	i := slices.IndexFunc(states, func(s transfer.State) bool { return s.String() == text })
	if i < 0 {
		return nil, web.FieldProblem("state", "is not a state; send one of %v", states)
	}
	return &states[i], nil
}
