// Package chain is the port to a family of chains, such as those of the EVM. A [Family] reads
// payloads, addresses and receipts; a [Node] is one node of one chain. The transaction manager's
// own part of the port is [txmanager.ChainConnector].
package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Accounts is the form of a family's accounts.
type Accounts interface {
	// Namespace returns the family's CAIP-2 namespace, such as "eip155".
	Namespace() string

	// AddressForm describes an address for callers, such as "0x<40 hex digits>".
	AddressForm() string

	// ParseAccount reads the address of an account id in any spelling, and returns its canonical form.
	ParseAccount(text string) (txmanager.Address, error)
}

// Family reads and writes addresses, payloads and receipts, whose forms differ between families of
// chains. It queries no node. The database has the canonical form of its accounts too, and how its
// signed transactions are read.
type Family interface {
	Accounts

	// Open opens a node without connecting to it. The error names the invalid option.
	Open(o NodeOptions) (Node, error)

	// Verify checks that raw is exactly tx, signed by s, and returns it with its hash.
	Verify(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error)

	// ParseAddress reads an address that a caller wants to pay or to call. It is stricter than ParseAccount
	// where a form has a checksum. The error is a [*FieldError].
	ParseAddress(text string) (txmanager.Address, error)

	// Unpayable returns why no payment may go to the address, such as one that no account has, or "".
	Unpayable(a txmanager.Address) string

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

// CostReader is a [Family] that reads what a transaction cost.
type CostReader interface {
	// ReadCost returns the fees of a node's receipt, in the chain's smallest unit. The error names the
	// missing part.
	ReadCost(receipt []byte) (*big.Int, error)
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
func (f Families) Of(s txmanager.Submitter) (Family, error) { return f.Named(s.Namespace()) }

// Named returns the family of a namespace.
func (f Families) Named(namespace string) (Family, error) {
	family, ok := f[namespace]
	if !ok {
		return nil, fmt.Errorf("this deployment serves no chains of namespace %q: it serves %s", namespace, strings.Join(f.namespaces(), ", "))
	}
	return family, nil
}

func (f Families) namespaces() []string { return slices.Sorted(maps.Keys(f)) }

// ParseSubmitter reads an account id of any of the families, or an address on the default chain. The error
// wraps [ErrNotSubmitter].
func (f Families) ParseSubmitter(text, defaultNamespace string, defaultChain uint64) (txmanager.Submitter, error) {
	namespace, _, _ := strings.Cut(text, ":")
	family, ok := f[namespace]
	if !ok {
		family = f[defaultNamespace]
	}
	if family == nil {
		return "", ErrNotSubmitter
	}
	return ParseSubmitter(family, text, defaultChain)
}

// SubmitterForms describes an account id for callers.
func (f Families) SubmitterForms() string {
	forms := f.namespaces()
	for i, namespace := range forms {
		forms[i] = namespace + ":<chainId>:" + f[namespace].AddressForm()
	}
	return strings.Join(forms, " or ")
}

// Verify checks that raw is exactly tx, signed by s, by the rules of its family.
func (f Families) Verify(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error) {
	family, err := f.Of(s)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	return family.Verify(s, tx, raw)
}

// ErrNotSubmitter reports a text that names no account.
var ErrNotSubmitter = errors.New("not an account of this deployment's chains: want <namespace>:<chainId>:<address>, or an address of the default chain")

// ParseSubmitter reads an account id, or an address on the default chain, in any spelling that the family
// accepts, and returns the canonical form. The error wraps [ErrNotSubmitter].
func ParseSubmitter(family Accounts, text string, defaultChain uint64) (txmanager.Submitter, error) {
	chain, address := defaultChain, text
	if rest, ok := strings.CutPrefix(text, family.Namespace()+":"); ok {
		id, after, _ := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil || id != strconv.FormatUint(n, 10) {
			return "", fmt.Errorf("chain id %q: %w", id, ErrNotSubmitter)
		}
		chain, address = n, after
	}
	if chain == 0 {
		return "", fmt.Errorf("chain id 0: %w", ErrNotSubmitter)
	}
	a, err := family.ParseAccount(address)
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotSubmitter, err)
	}
	return txmanager.NewSubmitter(family.Namespace(), chain, a), nil
}

// NodeOptions define one node of a chain.
type NodeOptions struct {
	URL          string        // http or https; may have credentials, which are never shown
	ChainID      uint64        // that the node must report
	Timeout      time.Duration // of one round trip, including the wait for a request slot; 0: the family's default
	RequestSlots RequestSlots  // bound the concurrent round trips, of other nodes with the same slots too; nil: own ones
	MaxBatch     int           // calls in one round trip; a larger query takes several; 0: the family's default
	Fees         Fees          // how the chain prices gas
	FinalDepth   *uint64       // for a chain without the tag "finalized": how many blocks below the head a count is final; nil: the chain has the tag
	Node         string        // the node's name in evidence; "": host and port of URL

	// OnRoundTrip is called before each HTTP request, and the function that it returns after it; nil: none is.
	OnRoundTrip func(context.Context) (end func(error))

	// Took gets the time of each HTTP request, once for each method of its calls; nil: nothing does.
	Took func(ctx context.Context, method string, took time.Duration)
}

// Fees define how a chain prices gas, and the source of the tip. The zero value is a chain with a base
// fee and a tip, whose node is asked.
type Fees struct {
	Legacy bool // one price, as on EVM chains without EIP-1559

	// HistoryBlocks is the number of last blocks whose paid tips are requested, in the same round trip; 0:
	// the node's suggestion is used. Percentile selects one of each block's tips, weighted by gas, from 1
	// to 100.
	HistoryBlocks int
	Percentile    int
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
var ErrChanged = errors.New("a reorg changed the chain during the query")

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
