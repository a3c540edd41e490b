package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/transactions"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type whyTxResponse struct {
	TxID            string           `json:"txId"`
	State           txmanager.State  `json:"state"`
	SubState        *string          `json:"subState"`
	LastError       *string          `json:"lastError"`
	LastErrorDetail *string          `json:"lastErrorDetail,omitempty"`
	Waiting         *store.Waiting   `json:"waiting,omitempty"` // nil: it has ended
	NextActor       string           `json:"nextActor,omitempty"`
	Action          string           `json:"action,omitempty"` // what an operator can do
	Runbook         string           `json:"runbook,omitempty"`
	NextCheckAt     *time.Time       `json:"nextCheckAt,omitempty"`
	LeasedBy        string           `json:"leasedBy,omitempty"` // the node that works on the submitter now
	RequestedAction txmanager.Action `json:"requestedAction,omitempty"`
}

// whyTx shows what a transaction waits for, who ends the wait, and what an operator can do.
func (a *Server) whyTx(r *http.Request, txID string) (out whyTxResponse, err error) {
	rec, waiting, err := a.Store.TxWaiting(r.Context(), txID, store.Viewer{Operator: true})
	if err != nil {
		return out, err
	}
	out = whyTxResponse{TxID: rec.TxID, State: rec.State, SubState: rec.SubState, LastError: rec.LastError, LastErrorDetail: rec.LastErrorDetail, Waiting: waiting}
	if waiting != nil {
		guide := waiting.Cause.Guide()
		transactions.Estimate(a.RulesOf, rec, waiting)
		out.NextActor, out.Action, out.Runbook = guide.NextActor, guide.Action, "docs/runbooks/"+guide.Runbook+".md"
		out.NextCheckAt, out.LeasedBy, out.RequestedAction = waiting.NextAt, waiting.Leased, waiting.Requested
	}
	return out, nil
}

// listPast serves a list of a transaction's numbered rows, the oldest first.
func listPast[Row interface{ Number() int64 }](
	name string, p serve.Place[int64], read func(ctx context.Context, txID string, after int64, limit int) ([]Row, error),
) serve.Handler {
	return serve.ShowList(serve.PathTxID, func(r *http.Request, txID string, q map[string]string) (serve.List, error) {
		return serve.PageList(name, q, p, func(after int64, limit int) ([]Row, error) { return read(r.Context(), txID, after, limit) }, Row.Number)
	})
}
