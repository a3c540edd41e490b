// Package chain is the port to a family of chains, such as those of the EVM. A [Family] reads
// payloads, addresses and receipts; a [Node] is one node of one chain. The transaction manager's
// own part of the port is [txmanager.ChainConnector].
package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Family reads and writes addresses, payloads and receipts, whose forms differ between families of
// chains. It queries no node.
type Family interface {
	// Namespace returns the family's CAIP-2 namespace, such as "eip155".
	Namespace() string

	// ParseAddress reads an address in any form that a caller may use. The error is a [*FieldError].
	ParseAddress(text string) (txmanager.Address, error)

	// ParsePayload reads a caller's payload strictly. It returns the canonical form, which is stored,
	// and a fingerprint that is equal for equal calls. The error is a [*FieldError].
	ParsePayload(raw json.RawMessage) (canonical []byte, fingerprint [32]byte, err error)

	// StoredCall reads a canonical payload.
	StoredCall(canonical []byte) (txmanager.Call, error)

	// ParseFunction reads a contract's function, by its signature or its selector, and returns the form
	// in which a policy's targets are compared.
	ParseFunction(text string) (string, error)

	// PaymentPayload returns the canonical payload that pays amount, in the smallest unit, to an
	// address: in the chain's own coin if token is nil. The payment is refused if it needs more than
	// maxGas.
	PaymentPayload(token *txmanager.Address, to txmanager.Address, amount *big.Int, maxGas uint64) ([]byte, error)

	// ReadProof reads a node's receipt. The error names the missing part.
	ReadProof(receipt []byte) (PaymentProof, error)
}

// Families are the families that a deployment serves, by namespace.
type Families map[string]Family

// NewFamilies returns the families by their namespaces.
func NewFamilies(all ...Family) Families {
	families := make(Families, len(all))
	for _, f := range all {
		families[f.Namespace()] = f
	}
	return families
}

// Of returns the family of an account.
func (f Families) Of(s txmanager.Submitter) (Family, error) {
	namespace, _, _ := strings.Cut(string(s), ":")
	family, ok := f[namespace]
	if !ok {
		return nil, fmt.Errorf("account %s: this deployment serves no chains of namespace %q", s, namespace)
	}
	return family, nil
}

// Node is one node of a chain. It can be used concurrently.
type Node interface {
	txmanager.ChainConnector

	// Name returns the node's name in evidence, without credentials.
	Name() string

	// VerifyAgain makes the next round trip verify the node's chain id.
	VerifyAgain()

	// Balances reads the balances of accounts, in the chain's smallest unit, in their order.
	Balances(ctx context.Context, of []txmanager.Submitter) ([]*big.Int, error)

	// Transaction reads a transaction by its hash and verifies it by the hash. The error wraps
	// [txmanager.ErrNoTransaction] if the node has none.
	Transaction(ctx context.Context, hash txmanager.Hash) (txmanager.SignedTransaction, error)

	// Payments reads the payments of an account in final blocks.
	Payments(ctx context.Context, q PaymentsQuery) (Payments, error)

	// PaymentsStart returns the last final block that is older than a time, or the first block of the
	// chain.
	PaymentsStart(ctx context.Context, q PaymentsQuery, before time.Time) (PaymentsStart, error)

	// Close closes idle connections. The node can still be used.
	Close()
}

// ErrWrongChain reports a node, or a submitter, of another chain than the connector's.
var ErrWrongChain = errors.New("wrong chain")

// ErrNoRequestSlot reports a round trip that got no request slot of rpc.maxInFlight in time. No node was
// called.
var ErrNoRequestSlot = errors.New("no free request slot for a round trip")

// ErrChanged reports a query whose answers are of two chains, because of a reorg. It is no fault of the
// node.
var ErrChanged = errors.New("the chain changed meanwhile")

// RequestSlots are request slots: each round trip holds one. They limit the concurrent round trips of all
// connectors that share them.
type RequestSlots chan struct{}

// NewRequestSlots returns n request slots.
func NewRequestSlots(n int) RequestSlots { return make(RequestSlots, n) }

// Codes of a [FieldError], as in the public API.
const (
	CodeInvalidJSON      = "INVALID_JSON"
	CodeInvalidField     = "INVALID_FIELD"
	CodeUnsupportedField = "UNSUPPORTED_FIELD"
)

// FieldError describes an invalid field of a payload, and the expected value.
type FieldError struct {
	Field   string // as "payload.args[1]"
	Code    string // CodeInvalidJSON, CodeInvalidField or CodeUnsupportedField
	Problem string // shown to the caller
}

// Error names the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }
