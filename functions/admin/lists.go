package admin

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// foundTx is a transaction with what only operators are shown.
type foundTx struct {
	store.FoundTx
	Nonce *int64 `json:"nonce,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`
}

// findTxs lists transactions of all submitters. Each filter is served by an index.
func (a *Server) findTxs(r *http.Request, q map[string]string) (out serve.List, err error) {
	f, err := a.txFilter(q)
	if err != nil {
		return out, err
	}
	if f.Size, f.After, err = serve.PageOf(q, serve.FoundPlace); err != nil {
		return out, err
	}
	page, next, err := a.Store.FindTxs(r.Context(), f)
	if unserved, ok := errors.AsType[store.NoIndexError](err); ok {
		return out, web.FieldProblem(unserved.Field, "%s", unserved.Do)
	}
	found := serve.ViewsOf(page, func(one store.FoundTx) foundTx { return foundTx{one, one.Nonce, one.LastErrorDetail} })
	return serve.List{Name: "transactions", Rows: found, Next: serve.PageToken(next, serve.FoundPlace)}, err
}

// txFilter reads the filter of a list of transactions.
func (a *Server) txFilter(q map[string]string) (f store.TxFilter, err error) {
	f = store.TxFilter{State: txmanager.State(q["state"]), Cause: txmanager.WaitCause(q["cause"]), Caller: q["caller"], RequestID: q["requestId"]}
	if q["submitter"] != "" {
		if f.Submitter, err = a.Submitter("submitter", q["submitter"]); err != nil {
			return f, err
		}
	}
	if f.State != "" && !slices.Contains(txmanager.States(), f.State) {
		return f, web.FieldProblem("state", "is not a state; send one of %v", txmanager.States())
	}
	if f.Cause != "" && !slices.Contains(txmanager.StoredCauses(), f.Cause) {
		return f, web.FieldProblem("cause", "is not stored with a transaction; send one of %v. Other causes follow from the state or the queue: filter by state, or read GET …/{submitter}/queue", txmanager.StoredCauses())
	}
	if f.RequestID != "" {
		if err := serve.RequestID("requestId", f.RequestID); err != nil {
			return f, err
		}
	}
	if f.Since, err = timeOf("since", q["since"]); err != nil {
		return f, err
	}
	if q["hash"] != "" {
		if f.Hash, err = hashOf("hash", q["hash"]); err != nil {
			return f, err
		}
	}
	f.Nonce, err = nonceOf("nonce", q["nonce"])
	return f, err
}

// timeOf reads a time; "" is none.
func timeOf(name, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Unix() < 0 {
		return nil, web.FieldProblem(name, "is %.40q: want a time from 1970 on, as 2026-01-31T08:00:00Z", text)
	}
	return &t, nil
}

// nonceOf reads a nonce; "" is none.
func nonceOf(name, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	n, ok := serve.Digits(text)
	if !ok {
		return nil, web.FieldProblem(name, "is %.40q: want a nonce, a number from 0 on", text)
	}
	return &n, nil
}

type laneResponse struct {
	store.Lane
	NextPageToken string `json:"nextPageToken,omitempty"` // absent on the last page
}

// lane lists the nonces of a submitter with the record of each.
func (a *Server) lane(r *http.Request, s txmanager.Submitter, q map[string]string) (out laneResponse, err error) {
	from, err := nonceOf("from", q["from"])
	if err != nil {
		return out, err
	}
	size, after, err := serve.PageOf(q, serve.LanePlace)
	if err != nil {
		return out, err
	}
	if q["pageToken"] != "" {
		from = new(after + 1)
	}
	out.Lane, err = a.Store.Lane(r.Context(), s, from, size)
	if n := len(out.Nonces); n == 0 {
		out.Nonces = []store.LaneNonce{}
	} else if last := out.Nonces[n-1].Nonce; last+1 < out.Beyond {
		out.NextPageToken = serve.PageToken(last, serve.LanePlace)
	}
	return out, err
}

type queuedTx struct {
	Position     int  `json:"position"`     // from 1 on
	PositionMore bool `json:"positionMore"` // it is above Position
	store.QueuedTx
}

// queue lists the intents that wait for a nonce, in the order in which they are served.
func (a *Server) queue(r *http.Request, s txmanager.Submitter, q map[string]string) (serve.List, error) {
	page, next, err := serve.Page(q, serve.QueuePlace, func(after int64, limit int) ([]store.QueuedTx, error) {
		return a.Store.Queue(r.Context(), s, after, limit)
	}, func(t store.QueuedTx) int64 { return t.Seq })
	waiting := serve.ViewsOf(page, func(one store.QueuedTx) queuedTx {
		return queuedTx{min(one.Ahead+1, store.MaxPosition), one.Ahead >= store.MaxPosition, one}
	})
	return serve.List{Name: "queue", Rows: waiting, Next: next}, err
}
