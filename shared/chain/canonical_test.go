package chain_test

import (
	"context"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const canonical = txmanager.Address("0xabcdef0123456789abcdef0123456789abcdef01")

// spelling is a node that returns its addresses as they are given here.
type spelling struct {
	chain.Node
	from, to *txmanager.Address
}

func (spelling) Name() string { return "a.example" }

func (s spelling) ParsePayload([]byte) (txmanager.Call, error) { return txmanager.Call{To: s.to}, nil }

func (s spelling) ParseSigned([]byte) (txmanager.Address, txmanager.Unsigned, txmanager.Signed, error) {
	return *s.from, txmanager.Unsigned{To: s.to}, txmanager.Signed{}, nil
}

func (s spelling) FindConsumingTx(context.Context, txmanager.Submitter, uint64) (txmanager.ConsumingTx, error) {
	return txmanager.ConsumingTx{To: s.to}, nil
}

func (s spelling) ReadBlocks(context.Context, txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	return txmanager.BlocksRead{Transactions: map[uint64]txmanager.ConsumingTx{1: {To: s.to}}}, nil
}

func (s spelling) Transaction(context.Context, txmanager.Hash) (txmanager.SignedTransaction, error) {
	return txmanager.SignedTransaction{From: *s.from, Tx: txmanager.ConsumingTx{To: s.to}}, nil
}

func (s spelling) Payments(context.Context, chain.PaymentsQuery) (chain.Payments, error) {
	return chain.Payments{Found: []chain.Payment{{To: s.to}, {Token: s.to}}}, nil
}

// returning are the methods of a node that return addresses.
var returning = map[string]func(context.Context, chain.Node) error{
	"ParsePayload": func(_ context.Context, n chain.Node) error { _, err := n.ParsePayload(nil); return err },
	"ParseSigned":  func(_ context.Context, n chain.Node) error { _, _, _, err := n.ParseSigned(nil); return err },
	"FindConsumingTx": func(ctx context.Context, n chain.Node) error {
		_, err := n.FindConsumingTx(ctx, "", 0)
		return err
	},
	"ReadBlocks": func(ctx context.Context, n chain.Node) error {
		_, err := n.ReadBlocks(ctx, txmanager.BlocksQuery{})
		return err
	},
	"Transaction": func(ctx context.Context, n chain.Node) error {
		_, err := n.Transaction(ctx, txmanager.Hash{})
		return err
	},
	"Payments": func(ctx context.Context, n chain.Node) error {
		_, err := n.Payments(ctx, chain.PaymentsQuery{})
		return err
	},
}

// An address in another form than the canonical one is refused, in each method that returns one. Digests
// and policies would not recognize it.
func TestNodesReturnCanonicalAddresses(t *testing.T) {
	t.Parallel()
	for method, call := range returning {
		for _, to := range []*txmanager.Address{nil, new(canonical)} {
			check.Err(t, method+" of canonical addresses", nil)(call(t.Context(), chain.Canonical(evm.Family{}, spelling{from: new(canonical), to: to})))
		}
		for text, want := range map[string]string{
			"0xABCDEF0123456789ABCDEF0123456789ABCDEF01": "want the canonical form",
			"0xaBcDef0123456789AbcdEf0123456789aBcDEF01": "want the canonical form",
			"0xabcdef": "want the canonical form 0x<40 hex digits>",
			"":         "want the canonical form 0x<40 hex digits>",
		} {
			wrong := txmanager.Address(text)
			nodes := []spelling{{from: new(canonical), to: &wrong}}
			if method == "ParseSigned" || method == "Transaction" {
				nodes = append(nodes, spelling{from: &wrong})
			}
			for _, node := range nodes {
				err := call(t.Context(), chain.Canonical(evm.Family{}, node))
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "node a.example: "+method) || !strings.Contains(err.Error(), `"`+text+`"`) {
					t.Errorf("%s of %q: got %v, want an error with the node, the method, the address and its canonical form", method, text, err)
				}
			}
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	node := chain.Canonical(evm.Family{}, spelling{from: new(canonical), to: new(canonical)})
	for b.Loop() {
		_, _, _, _ = node.ParseSigned(nil)
	}
}
