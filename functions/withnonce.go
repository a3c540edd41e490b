package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrNoHandler reports a handler name that is neither compiled in nor in handlers.urls. Nothing was
// stored.
var ErrNoHandler = errors.New("no handler has that name")

// WithNonce accepts a request and returns its txId at once. Once the request's nonce is allocated, any
// process of the deployment calls the handler of that name to make the transaction. The same request
// again returns the same txId. The input is stored as JSON and given to the handler.
//
// The submitter's callers must name "handler:<name>"; "*" does not include it. The error wraps
// [ErrNoHandler] or is one of [store.Store.Create]. After any other error the result is unknown: call
// again.
func (a *App) WithNonce(ctx context.Context, s txmanager.Submitter, request, handler string, input any) (txID string, err error) {
	if !slices.Contains(a.handlers, handler) {
		return "", fmt.Errorf("%s: %w", handler, ErrNoHandler)
	}
	if err := serve.NewRequestID("requestId", request); err != nil {
		return "", err
	}
	payload, err := json.Marshal(input)
	if err == nil && bytes.Contains(payload, []byte(`\u0000`)) {
		err = errors.New("it has the character U+0000, which no text column takes")
	}
	if err != nil {
		return "", fmt.Errorf("input of handler %s: %w", handler, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make a txId: %w", err)
	}
	in := store.Intent{
		TxID: id.String(), Submitter: s, RequestID: request, Caller: store.HandlerCaller + handler,
		Payload: payload, Handler: handler, Fingerprint: txmanager.Fingerprint(handler, payload),
		Refused: serve.Unprintable("requestId", request),
	}
	if err := a.base.Mark.Compare(ctx, a.base.Log); err != nil {
		return "", err
	}
	ctx, deliver := a.base.CollectEvents(ctx)
	defer deliver()
	accepted, err := a.store.Create(ctx, in, a.config.Intents.MaxQueued)
	if err != nil {
		return "", err
	}
	if accepted.Queued {
		a.base.EnqueueAdvance(ctx, s, accepted.Token, telemetry.TxIDKey, accepted.TxID)
	}
	return accepted.TxID, nil
}
