package transactions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteCreate serves the function create.
func (a *Server) RouteCreate(mux *web.Mux) {
	a.Handle(mux, "create", "POST /api/v1/tx", a.DeliverAfter(serve.By(a.Viewer, serve.WithBody(a.Base, a.create))))
	a.Handle(mux, "create", "POST /api/v1/tx:batch", a.DeliverAfter(serve.By(a.Viewer, serve.WithBody(a.Base, a.createBatch))))
	// The list is served by the same function as create, since the load balancer chooses the service
	// by the path alone.
	a.Handle(mux, "list", "GET /api/v1/tx", serve.ShowList(a.Viewer, a.list, "submitter", "state"))
}

type createRequest struct {
	Submitter  string          `json:"submitter"`
	RequestID  string          `json:"requestId"`
	Handler    serve.Optional  `json:"handler"`
	Payload    json.RawMessage `json:"payload"`
	ValidUntil serve.Optional  `json:"validUntil"`
}

// create stores an intent once. It answers 202 with the new txId, or 200 with the txId already stored
// under the requestId. It takes no lease; the unique key protects the row.
func (a *Server) create(w http.ResponseWriter, r *http.Request, v store.Viewer, body createRequest) (err error) {
	if body.RequestID, err = serve.KeyOf(r, "requestId", body.RequestID); err != nil {
		return err
	}
	allowed, faults, err := a.allowedIntents(r.Context(), v, []createRequest{body})
	switch {
	case err != nil:
		telemetry.TxCreate.Add(r.Context(), 1, telemetry.Result("error"))
		return err
	case faults[0] != nil:
		return faults[0]
	}
	in := allowed[0]
	a.Points.At("create.received")
	accepted, err := a.Store.Create(r.Context(), in, a.MaxQueued)
	if err != nil {
		a.delayRefusal(r, err)
		return err
	}
	a.Points.At("create.committed")
	status := a.logCreated(r, in, accepted)
	if accepted.Queued {
		a.EnqueueAdvance(r.Context(), in.Submitter, accepted.Token, telemetry.TxIDKey, accepted.TxID)
	}
	a.Points.At("create.enqueued")
	return web.Reply(w, r, status, client.Created{TxID: accepted.TxID})
}

// logCreated logs whether the intent was stored or found, and returns the HTTP status.
func (a *Server) logCreated(r *http.Request, in store.Intent, accepted store.StoredIntent) (status int) {
	status = http.StatusOK
	if accepted.New {
		status = http.StatusAccepted
		a.Log.InfoContext(r.Context(), "intent accepted", telemetry.SubmitterKey, in.Submitter,
			telemetry.TxIDKey, accepted.TxID, telemetry.NodeIDKey, a.Node, telemetry.FencingTokenKey, accepted.Token)
	}
	return status
}

// parseIntent checks all members of the request except the payload.
func (a *Server) parseIntent(v store.Viewer, body createRequest) (in store.Intent, err error) {
	in = store.Intent{RequestID: body.RequestID, Caller: v.Caller, Names: v.Names}
	if in.Submitter, err = a.Submitter("submitter", body.Submitter); err != nil {
		return in, err
	}
	if err := serve.NewRequestID("requestId", in.RequestID); err != nil {
		return in, err
	}
	if len(body.Payload) == 0 {
		return in, web.FieldProblem("payload", "is required: what to do, such as {\"to\": \"0x…\", \"value\": \"1\"}")
	}
	if _, err := a.ChainOf(in.Submitter); err != nil {
		return in, err
	}
	if in.Handler, err = body.Handler.Of("handler"); err != nil {
		return in, err
	}
	in.ValidUntil, err = validUntil(body.ValidUntil)
	return in, err
}

// withPayload returns the intent of [Server.parseIntent] with its payload, ready to be stored. The
// parameter may reports whether the caller may use the submitter.
func (a *Server) withPayload(in store.Intent, body createRequest, may bool) (_ store.Intent, err error) {
	if !may {
		return in, fmt.Errorf("%s: %w", in.Submitter, store.ErrUnknownSubmitter)
	}
	family, err := a.Families.Of(in.Submitter)
	if err != nil {
		return in, err
	}
	if in.Handler == "" {
		in.Payload, in.Fingerprint, err = family.ParsePayload(body.Payload)
	} else {
		in.Payload, in.Fingerprint, err = a.inputOf(in.Handler, body.Payload)
	}
	if err != nil {
		return in, err
	}
	if in.ValidUntil != nil {
		in.Fingerprint = txmanager.FingerprintUntil(in.Handler, in.Payload, in.ValidUntil)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return in, errors.Join(errors.New("make a txId"), err)
	}
	in.TxID = id.String()
	in.Refused = serve.Unprintable("requestId", in.RequestID)
	if in.Refused == nil && in.Handler == "" {
		in.Refused = a.tooMuchGas(family, in)
	}
	return in, nil
}

// tooMuchGas refuses an intent whose gas can cost more than the deployment allows for one transaction.
// It returns nil if the payload sets no gas.
func (a *Server) tooMuchGas(family chain.Family, in store.Intent) error {
	of, err := a.ChainOf(in.Submitter)
	if err != nil {
		return err
	}
	call, err := family.StoredCall(in.Payload)
	if err != nil {
		return err
	}
	if reason := of.Rules.FeeTooHighReason(call); reason != "" {
		return &chain.FieldError{Code: chain.CodeInvalidField, Field: "payload.maxFeePerGas", Problem: reason + ": want less gas or a lower maxFeePerGas"}
	}
	return nil
}

// inputOf returns the payload of a request that names a handler. It is any JSON value; only the
// handler interprets it. Two inputs are equal if they have the same members and values, with numbers
// compared by their digits.
func (a *Server) inputOf(handler string, payload json.RawMessage) (canonical []byte, fingerprint [32]byte, err error) {
	if !slices.Contains(a.Handlers, handler) {
		return nil, fingerprint, web.FieldProblem("handler", "is none of this deployment: leave it out to post a transaction, or name one that is compiled in or in handlers.urls")
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fingerprint, &web.Problem{Code: web.InvalidJSON, Field: "payload", Detail: "is no JSON value", Cause: err}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fingerprint, fmt.Errorf("write the payload: %w", err)
	}
	canonical = bytes.TrimSpace(b.Bytes())
	return canonical, txmanager.Fingerprint(handler, canonical), nil
}

// timestamp matches RFC 3339 with an offset, in upper case and with at most microseconds, which is
// what the database stores.
var timestamp = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// validUntil returns the time of the field; nil if the body omits it.
func validUntil(field serve.Optional) (*time.Time, error) {
	text, err := field.Of("validUntil")
	if err != nil || text == "" {
		return nil, err
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if at = at.UTC(); err != nil || !timestamp.MatchString(text) || at.Year() < 1970 || at.Year() > 9999 {
		return nil, web.FieldProblem("validUntil", "is %.40q: want a time by RFC 3339 with its offset and at most 6 digits of a second, such as 2027-01-31T12:00:00Z", text)
	}
	return &at, nil
}
