package admin

import (
	"context"
	"encoding/hex"
	"math/big"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/transactions"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	// shownData and shownArgs are the most bytes that are shown of a call's data, and of a handler's arguments.
	shownData = 4 << 10
	shownArgs = 64 << 10

	// maxReadPayload is the most bytes of a payload that is read. No call has as many.
	maxReadPayload = 512 << 10
)

// inspectedTx is a transaction with what its caller asked for, with the view of the transaction that callers have.
type inspectedTx struct {
	client.InspectedTx
	Transaction transactions.View `json:"transaction"`
}

// inspectTx shows a transaction with its payload and its trace.
func (a *Server) inspectTx(r *http.Request, txID string) (out inspectedTx, err error) {
	operator := store.Viewer{Operator: true}
	rec, waiting, err := a.Store.TxWaiting(r.Context(), txID, operator)
	if err != nil {
		return out, err
	}
	order, err := a.Store.TxOrder(r.Context(), txID, maxReadPayload)
	if err != nil {
		return out, err
	}
	out.Transaction = transactions.ViewOf(a.Base, rec, waiting, operator)
	out.Caller, out.TraceID = order.Caller, telemetry.TraceID(order.Trace)
	switch {
	case order.PayloadBytes == 0:
	case order.Handler != nil:
		out.Payload = &client.TxPayload{Handler: *order.Handler, ArgsBytes: order.PayloadBytes}
		if order.PayloadBytes <= shownArgs {
			out.Payload.Args = order.Payload
		}
	default:
		if out.Payload, err = a.callOf(rec.Submitter, order.Payload); err != nil { // the transaction is shown all the same
			a.Log.WarnContext(r.Context(), "a stored payload is unreadable", telemetry.TxIDKey, txID, "error", err.Error())
		}
	}
	return out, nil
}

// callOf reads a stored call. It shows the beginning of the call's data.
func (a *Server) callOf(s txmanager.Submitter, payload []byte) (*client.TxPayload, error) {
	family, err := a.Families.Of(s)
	if err != nil {
		return nil, err
	}
	call, err := family.StoredCall(payload)
	if err != nil {
		return nil, err
	}
	shown := &client.TxPayload{
		Value: call.Value.String(), Data: "0x" + hex.EncodeToString(call.Data[:min(len(call.Data), shownData)]), DataBytes: new(len(call.Data)),
		Gas: gasText(call.Gas), MaxGas: gasText(call.MaxGas), MaxFeePerGas: weiText(call.FeeCapWei), MaxPriorityFeePerGas: weiText(call.TipCapWei),
	}
	if call.To != nil {
		shown.To = call.To.String()
	}
	return shown, nil
}

// gasText is an amount of gas; "" if none was given.
func gasText(gas uint64) string {
	if gas == 0 {
		return ""
	}
	return strconv.FormatUint(gas, 10)
}

// weiText is an amount of wei; "" if none was given.
func weiText(wei *big.Int) string {
	if wei == nil {
		return ""
	}
	return wei.String()
}

// txWhy is a [client.TxWhy] with null where the client has an empty text, and with the store's view of the wait.
type txWhy struct {
	client.TxWhy
	SubState        *string        `json:"subState"`
	LastError       *string        `json:"lastError"`
	LastErrorDetail *string        `json:"lastErrorDetail,omitempty"`
	Waiting         *store.Waiting `json:"waiting,omitempty"` // nil: it has ended
}

// whyTx shows what a transaction waits for, who ends the wait, and what an operator can do.
func (a *Server) whyTx(r *http.Request, txID string) (out txWhy, err error) {
	rec, waiting, err := a.Store.TxWaiting(r.Context(), txID, store.Viewer{Operator: true})
	if err != nil {
		return out, err
	}
	out = txWhy{SubState: rec.SubState, LastError: rec.LastError, LastErrorDetail: rec.LastErrorDetail, Waiting: waiting}
	out.TxID, out.State = rec.TxID, client.TxState(rec.State)
	if waiting != nil {
		guide := waiting.Cause.Guide()
		transactions.Estimate(a.Base, rec, waiting)
		out.NextActor, out.Action, out.Runbook = guide.NextActor, guide.Action, "docs/runbooks/"+guide.Runbook+".md"
		out.NextCheckAt, out.LeasedBy, out.RequestedAction = waiting.NextAt, waiting.Leased, string(waiting.Requested)
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
