package admin

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/transactions"
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

// inspectedTx is a transaction with what its caller asked for.
type inspectedTx struct {
	Transaction transactions.View `json:"transaction"`
	Caller      string            `json:"caller"`
	TraceID     string            `json:"traceId,omitempty"` // absent: the request was not traced
	Payload     *payloadView      `json:"payload,omitempty"` // absent: none is stored, or none any more
}

// payloadView is a stored payload: a call, or a handler with its arguments.
type payloadView struct {
	*callView
	Handler   string          `json:"handler,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"` // absent: they have more than shownArgs bytes
	ArgsBytes int             `json:"argsBytes,omitempty"`
}

// callView is a call, with the beginning of its data. An absent bound was not given.
type callView struct {
	To                   *txmanager.Address `json:"to,omitempty"` // absent: the data is a contract to deploy
	Value                string             `json:"value"`
	Data                 string             `json:"data"`
	DataBytes            int                `json:"dataBytes"` // of the whole data
	Gas                  string             `json:"gas,omitempty"`
	MaxGas               string             `json:"maxGas,omitempty"`
	MaxFeePerGas         string             `json:"maxFeePerGas,omitempty"`
	MaxPriorityFeePerGas string             `json:"maxPriorityFeePerGas,omitempty"`
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
	transactions.Estimate(a.Base, rec, waiting)
	out = inspectedTx{Transaction: transactions.ViewOf(rec, waiting, operator), Caller: order.Caller, TraceID: telemetry.TraceID(order.Trace)}
	switch {
	case order.PayloadBytes == 0:
	case order.Handler != nil:
		out.Payload = &payloadView{Handler: *order.Handler, ArgsBytes: order.PayloadBytes}
		if order.PayloadBytes <= shownArgs {
			out.Payload.Args = order.Payload
		}
	default:
		call, err := a.callOf(rec.Submitter, order.Payload)
		if err != nil { // the transaction is shown all the same
			a.Log.WarnContext(r.Context(), "a stored payload is unreadable", telemetry.TxIDKey, txID, "error", err.Error())
			break
		}
		out.Payload = &payloadView{callView: call}
	}
	return out, nil
}

// callOf reads a stored call.
func (a *Server) callOf(s txmanager.Submitter, payload []byte) (*callView, error) {
	family, err := a.Families.Of(s)
	if err != nil {
		return nil, err
	}
	call, err := family.StoredCall(payload)
	if err != nil {
		return nil, err
	}
	return &callView{
		To: call.To, Value: call.Value.String(), Data: "0x" + hex.EncodeToString(call.Data[:min(len(call.Data), shownData)]), DataBytes: len(call.Data),
		Gas: gasText(call.Gas), MaxGas: gasText(call.MaxGas), MaxFeePerGas: weiText(call.FeeCapWei), MaxPriorityFeePerGas: weiText(call.TipCapWei),
	}, nil
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
		transactions.Estimate(a.Base, rec, waiting)
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
