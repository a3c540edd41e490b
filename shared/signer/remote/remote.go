// Package remote signs by another service over JSON-RPC: eth_signTransaction as in web3signer,
// account_signTransaction as in clef. It verifies that the result is the requested transaction before
// it returns it.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The methods of the services' signatures.
const (
	EthSign     = "eth_signTransaction"     // web3signer, and nodes with keys
	AccountSign = "account_signTransaction" // clef
)

// listing is the method that lists accounts, by the signing method.
var listing = map[string]string{EthSign: "eth_accounts", AccountSign: "account_list"}

// maxAnswer bounds an answer, in bytes: a transaction of 128 KiB in hex, once raw and once in its
// fields.
const maxAnswer = 1 << 20

// methodNotFound is JSON-RPC's code for a method that a service does not have.
const methodNotFound = -32601

// Signer calls one service. It can be used concurrently, and prints as its name.
type Signer struct {
	options Options
	http    *http.Client
}

var _ signer.Service = (*Signer)(nil)

// New returns a signer without connecting. The error describes the mistake in o and never contains a
// secret.
func New(o Options) (*Signer, error) {
	transport, err := o.transport()
	if err != nil {
		return nil, fmt.Errorf("remote signer %s: %w", o.Name, err)
	}
	return &Signer{o, &http.Client{
		Transport: transport,
		// A redirect would send the token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (r *Signer) Close() { r.http.CloseIdleConnections() }

// Sign implements [txmanager.Signer].
func (r *Signer) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	if _, err := signer.Digest(s, tx); err != nil { // an invalid request is not sent
		return txmanager.Signed{}, err
	}
	var answer json.RawMessage
	if err := r.call(ctx, r.options.Method, []any{request(s, tx)}, &answer); err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s by %s: %w", s, r, err)
	}
	raw, err := rawOf(answer)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s by %s: %w", s, r, err)
	}
	return signer.Verify(s, tx, raw)
}

// request returns tx with the names that both kinds of services know.
func request(s txmanager.Submitter, tx txmanager.Unsigned) map[string]any {
	fields := map[string]any{
		"from": s.Address().String(), "gas": hexutil.Uint64(tx.Gas), "nonce": hexutil.Uint64(tx.Nonce),
		"value": (*hexutil.Big)(tx.Value), "data": hexutil.Bytes(tx.Data),
		"chainId": (*hexutil.Big)(new(big.Int).SetUint64(tx.ChainID)),
	}
	if tx.Legacy {
		fields["gasPrice"] = (*hexutil.Big)(tx.FeeCapWei)
	} else {
		fields["maxFeePerGas"], fields["maxPriorityFeePerGas"] = (*hexutil.Big)(tx.FeeCapWei), (*hexutil.Big)(tx.TipCapWei)
	}
	if tx.To != nil {
		fields["to"] = tx.To.String()
	}
	return fields
}

// rawOf returns the signed bytes of an answer: web3signer returns their hex digits, clef and
// go-ethereum an object with them as raw.
func rawOf(answer json.RawMessage) ([]byte, error) {
	var object struct {
		Raw hexutil.Bytes `json:"raw"`
	}
	var text hexutil.Bytes
	switch {
	case json.Unmarshal(answer, &text) == nil && len(text) > 0:
		return text, nil
	case json.Unmarshal(answer, &object) == nil && len(object.Raw) > 0:
		return object.Raw, nil
	}
	return nil, errors.New("the answer has no signed transaction")
}

// Check implements [signer.Service] by the service's list of accounts. A service without a list may
// still sign, so Check reports no error.
func (r *Signer) Check(ctx context.Context, s txmanager.Submitter) error {
	account, err := eip155.Bytes(s.Address())
	if err != nil {
		return fmt.Errorf("%s: %w: %w", r, err, signer.ErrNoKey)
	}
	var accounts []common.Address // services write them in any letter case
	err = r.call(ctx, listing[r.options.Method], []any{}, &accounts)
	refusal, refused := errors.AsType[*rpcError](err)
	switch {
	case refused && refusal.Code == methodNotFound:
		return nil
	case err != nil:
		return fmt.Errorf("accounts of %s: %w", r, err)
	case !slices.Contains(accounts, account):
		return fmt.Errorf("%s has no account %s: %w", r, s.Address(), signer.ErrNoKey)
	}
	return nil
}

// InProcess implements [txmanager.Signer]: never.
func (r *Signer) InProcess(txmanager.Submitter) bool { return false }

// String returns the signer's name.
func (r Signer) String() string { return "remote signer " + r.options.Name }

// Format prints the signer's name for any verb.
func (r Signer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// rpcError is a service's refusal in its own text, shortened.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string {
	return fmt.Sprintf("it answered error %d %q", e.Code, strings.ToValidUTF8(e.Message[:min(len(e.Message), 200)], ""))
}

// call makes one call and decodes its result.
func (r *Signer) call(ctx context.Context, method string, params []any, result any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.options.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("its URL cannot be used")
	}
	q.Header.Set("Content-Type", "application/json")
	if r.options.BearerToken != "" {
		q.Header.Set("Authorization", "Bearer "+r.options.BearerToken)
	}
	answer, err := r.http.Do(q)
	if err != nil {
		return withoutURL(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read its answer: %w", err)
	}
	err = read(answer.StatusCode, text, result)
	if refusal, ok := errors.AsType[*rpcError](err); ok && r.options.BearerToken != "" { // some services repeat the request in it
		refusal.Message = strings.ReplaceAll(refusal.Message, r.options.BearerToken, "…")
	}
	return err
}

// read decodes the result of an answer.
func read(status int, text []byte, result any) error {
	var envelope struct {
		Result json.RawMessage `json:"result"`
		Error  *rpcError       `json:"error"`
	}
	err := json.Unmarshal(text, &envelope)
	switch {
	case len(text) > maxAnswer:
		return fmt.Errorf("its answer has more than %d bytes", maxAnswer)
	case err == nil && envelope.Error != nil:
		return envelope.Error
	case status != http.StatusOK:
		return fmt.Errorf("it answered status %d", status)
	case err != nil:
		return errors.New("its answer is not JSON-RPC")
	}
	if err := json.Unmarshal(envelope.Result, result); err != nil {
		return errors.New("its answer has no result of the right form")
	}
	return nil
}
