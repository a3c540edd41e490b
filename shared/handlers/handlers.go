// Package handlers calls business services over HTTP for the transactions of their requests: a service
// in any language is a [txmanager.Handler] by its URL.
//
// The request is a POST, signed by the scheme of Standard Webhooks (package webhook). Its webhook-id is
// the txId. Each attempt for one (submitter, nonce) has the same webhook-id and body:
//
//	{"submitter": "eip155:1:0x…", "nonce": 7, "chainId": 1, "requestId": "order-4711", "payload": {…}}
//
// The answer is 200 with a transaction, in the form of an intent's payload, or with bytes that the
// submitter's own key has signed for the nonce:
//
//	{"transaction": {"to": "0x…", "value": "1"}}
//	{"signedTransaction": "0x02f8…"}
//
// The statuses 429, 502, 503 and 504, a missing connection and an incomplete answer mean "not now". Any
// other answer is a failure, whose reason is the "detail" of the answer's JSON, if it has one.
package handlers

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
	"github.com/fencepost/fencepost/shared/webhook"
)

// maxAnswer bounds an answer, in bytes: the largest transaction in hex, and a margin.
const maxAnswer = 512 << 10

// Service is a business service that makes transactions.
type Service struct {
	webhook.Endpoint

	// Read reads a transaction of a submitter in the form of an intent's payload.
	Read func(s txmanager.Submitter, payload json.RawMessage) (txmanager.Call, error)

	Log *slog.Logger
}

// question is the body of a request. Its members have a fixed order, so that one question always has
// the same bytes.
type question struct {
	Submitter txmanager.Submitter `json:"submitter"`
	Nonce     uint64              `json:"nonce"`
	ChainID   uint64              `json:"chainId"`
	RequestID string              `json:"requestId"`
	Payload   json.RawMessage     `json:"payload"`
}

// answer is the body of an answer: one of the two.
type answer struct {
	Transaction       json.RawMessage `json:"transaction"`
	SignedTransaction *string         `json:"signedTransaction"`
}

// Handle is a [txmanager.Handler].
func (s Service) Handle(ctx context.Context, n txmanager.NonceContext) (txmanager.Transaction, error) {
	body, err := web.Encode(question{n.Submitter, n.Nonce, n.Submitter.ChainID(), n.RequestID, n.Input})
	if err != nil {
		return txmanager.Transaction{}, fmt.Errorf("write the question: %w", err)
	}
	s.Accept = "application/json"
	status, text, err := s.Post(ctx, n.TxID, bytes.TrimSpace(body), maxAnswer+1)
	switch {
	case err != nil:
		return txmanager.Transaction{}, s.noAnswer(ctx, n, err)
	case len(text) > maxAnswer:
		return txmanager.Transaction{}, fmt.Errorf("it answered more than %d bytes", maxAnswer)
	case status != http.StatusOK:
		return txmanager.Transaction{}, refused(status, text)
	}
	return s.read(n.Submitter, text)
}

// noAnswer returns the error of a request without an answer. The network's own text contains addresses,
// so it is only logged: callers see the reason.
func (s Service) noAnswer(ctx context.Context, n txmanager.NonceContext, err error) error {
	s.Log.WarnContext(ctx, "handler's service gave no answer", "submitter", n.Submitter, "txId", n.TxID, "error", err.Error())
	if errors.Is(err, webhook.ErrLate) {
		return err
	}
	return fmt.Errorf("its service gave no answer: %w", txmanager.ErrRetryLater)
}

// refused returns the error of an answer other than 200.
func refused(status int, text []byte) error {
	var problem struct{ Detail string }
	reason := fmt.Sprintf("its service answered %d", status)
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		reason += ": " + problem.Detail
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("%s: %w", reason, txmanager.ErrRetryLater)
	}
	return errors.New(reason)
}

// read decodes an answer strictly: an unknown member may be important to the service.
func (s Service) read(of txmanager.Submitter, text []byte) (txmanager.Transaction, error) {
	a, err := web.DecodeText[answer](text)
	if err != nil {
		return txmanager.Transaction{}, errors.New(`its answer is not a JSON object with "transaction" or "signedTransaction" and nothing else`)
	}
	switch hasCall := len(a.Transaction) > 0; {
	case hasCall == (a.SignedTransaction != nil):
		return txmanager.Transaction{}, errors.New(`its answer has not one of "transaction" and "signedTransaction"`)
	case hasCall:
		call, err := s.Read(of, a.Transaction)
		if err != nil {
			return txmanager.Transaction{}, fmt.Errorf("its transaction is invalid: %w", err)
		}
		return txmanager.Transaction{Call: call}, nil
	}
	digits, ok := strings.CutPrefix(*a.SignedTransaction, "0x")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) == 0 {
		return txmanager.Transaction{}, errors.New(`its "signedTransaction" is not 0x and hex digits`)
	}
	return txmanager.Transaction{Signed: raw}, nil
}
