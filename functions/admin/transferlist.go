package admin

import (
	"errors"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// listTransfers lists the transfers and payouts of all users, newest first.
func (a *TransferServer) listTransfers(r *http.Request, q map[string]string) (out serve.List, err error) {
	query, err := transferQuery(q)
	if err != nil {
		return out, err
	}
	page, next, err := a.Transfers.Store.ListAll(r.Context(), query)
	switch {
	case errors.Is(err, transfers.ErrNoIndex):
		return out, web.FieldProblem("asset", "no index has it alone: give user too, or a state other than COMMITTED")
	case errors.Is(err, store.ErrCursor):
		return out, serve.NoSuchPage()
	}
	listed := serve.ViewsOf(page, func(t transfer.Transfer) client.OperatorsTransfer {
		return client.OperatorsTransfer{Transfer: usertransfers.ViewOf(t), UserID: t.UserID, RetryCount: t.RetryCount}
	})
	return serve.List{Name: "transfers", Rows: listed, Next: serve.PageToken(next, serve.TransferPlace)}, err
}

func transferQuery(q map[string]string) (query transfers.ListQuery, err error) {
	query.Asset = q["asset"]
	if query.State, err = usertransfers.StateOf(q["state"]); err != nil {
		return query, err
	}
	if text := q["user"]; text != "" {
		user, ok := serve.Digits(text)
		if !ok || user == 0 {
			return query, web.FieldProblem("user", "is %.40q: want a user id, a whole number above 0", text)
		}
		query.UserID = user
	}
	if query.Before, err = timeOf("before", q["before"]); err != nil {
		return query, err
	}
	query.Size, query.After, err = serve.PageOf(q, serve.TransferPlace)
	return query, err
}
